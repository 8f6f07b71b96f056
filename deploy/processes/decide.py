"""Runs the query in one process at a time; the others stand by, with their Spark session started and warmed up."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from connectors.component import Component, first_problem
from connectors.kafka.publisher import Publisher
from connectors.kafka.topic_admin import TopicReport
from connectors.partitions.deciders import deciders_group
from connectors.partitions.lease import PartitionLease
from deploy.processes.running import run_components
from deploy.processes.shared_components import Held, Work, passing_registry
from deploy.query.components import query_components, require_own_checkpoint, take_checkpoint, warm_up
from deploy.query.sole_use import sole_query_in_turn
from deploy.query.spark_sessions import SparkSessions
from deploy.settings.application import Settings
from policies.shares import DECIDER_SHARE

_log = structlog.get_logger(__name__)


class Decider:
    """The query of a prefix, as work that one process holds at a time.

    Args:
        publisher: publishes ticks, batch records and tombstones.
        stop: set when this process is to end, and so will not stand by.

    Raises:
        UserError: the settings do not fit the checkpoint.
    """

    def __init__(
        self,
        settings: Settings,
        report: TopicReport,
        registry: CollectorRegistry,
        sessions: SparkSessions,
        publisher: Publisher,
        stop: threading.Event,
    ) -> None:
        require_own_checkpoint(settings, report)
        self._settings = settings
        self._report = report
        self._registry = registry
        self._sessions = sessions
        self._publisher = publisher
        self._stop = stop
        sessions.while_untaken(partial(warm_up, settings))

    def work(self) -> Work:
        """Return the query as work for `SharedComponents`: a single unit, held with the decider's share."""
        place = self._settings.checkpoint()
        checkpoint = str(place.folder or place.uri)
        return Work(
            name="query",
            group=deciders_group(self._settings.topics, checkpoint),
            of_shares=lambda shares: frozenset({checkpoint} if DECIDER_SHARE in shares else ()),
            units=lambda held: {"query": held} if held else {},
            open=self._open,
        )

    @contextmanager
    def _open(self, _unit: str, _held: Held, lease: PartitionLease) -> Iterator[Sequence[Component]]:
        tenure = _Tenure(self, lease)
        with passing_registry(self._registry) as registry:
            yield [Component("query", lambda stop: tenure.run(stop, registry), tenure.healthy, tenure.ready)]
            if not (lease.holds(DECIDER_SHARE) or self._stop.is_set()):
                self._sessions.start_ahead()
                self._sessions.while_untaken(partial(warm_up, self._settings))

    def components(self, registry: CollectorRegistry, lease: PartitionLease) -> list[Component]:
        """Make the query's components on the present checkpoint, while this process holds the share."""
        take_checkpoint(self._settings, self._report)
        return query_components(
            self._settings, registry, self._sessions, self._publisher, lambda: lease.holds(DECIDER_SHARE)
        )

    @property
    def settings(self) -> Settings:
        """Settings of the application."""
        return self._settings


class _Tenure:
    """The time from when this process gets the query until it gives it up."""

    def __init__(self, decider: Decider, lease: PartitionLease) -> None:
        self._decider = decider
        self._lease = lease
        self._components: Sequence[Component] | None = None

    def run(self, stop: threading.Event, registry: CollectorRegistry) -> None:
        """Decide until `stop` is set."""
        with sole_query_in_turn(self._decider.settings, stop) as is_ours:
            if is_ours:
                _log.info("this process decides from now on")
                self._components = self._decider.components(registry, self._lease)
                run_components(self._components, stop)

    def healthy(self) -> str | None:
        """Return the problem of the query; None without one."""
        return first_problem(component.healthy for component in self._components or ())

    def ready(self) -> str | None:
        """Return why the query does not decide yet; None when it does."""
        if self._components is None:
            return "waiting until the previous query has ended"
        return first_problem(component.ready for component in self._components)
