"""Follows the sessions decisions, and has those about each cluster's bundles carried out on a thread of its own.

Decisions about the broker itself (`shutdown`, `restart`) are for its platform to carry out: nothing here reads them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event

from connectors.actuation.actuator import Actuator, LoopTopics, Publish, parsed
from connectors.kafka.tail import Record
from connectors.sessions.unload.reports import UnloadMetrics
from connectors.sessions.unload.worker import UnloadWorker, WatchedUnloads
from policies.sessions.decisions import OwnershipDecision
from policies.sessions.unload_events import BundleReOwned, BundleUnloaded, UnloadOutcome
from policies.wire import EventReader

_CLOCK_SLACK = timedelta(minutes=1)
"""Between our clock and Kafka's."""


class UnloadActuator(Actuator[OwnershipDecision]):
    """Carries out the decisions about the bundles of some clusters.

    Args:
        topics: where the decisions are.
        clusters: whose.
        publish: takes what is said.
        metrics: where it counts.
    """

    def __init__(
        self, topics: LoopTopics, clusters: Sequence[WatchedUnloads], publish: Publish, metrics: UnloadMetrics
    ) -> None:
        audit = partial(publish, topics.audit)
        self._own = {w.cluster: UnloadWorker(w, audit, metrics) for w in clusters}
        super().__init__("unload actuator", "headgate-unload", topics, self._own)
        self._decisions = EventReader((OwnershipDecision,))
        self._reports = EventReader((BundleUnloaded, BundleReOwned))

    def _decision(self, record: Record) -> OwnershipDecision | None:
        return parsed(self._decisions, record)

    def _prepare(self, stop: Event) -> None:
        """Learn what was carried out before this start: the broker may serve a bundle again since, and rightly."""
        oldest = min((since for worker in self._own.values() if (since := worker.pending_since)), default=None)
        if oldest is not None:
            history = max(timedelta(0), datetime.now(UTC) - oldest) + _CLOCK_SLACK
            with self._tail({self._topics.audit: history}) as tail:
                self._catch_up(tail, stop, self._recall_done)

    def _recall_done(self, record: Record) -> None:
        report = parsed(self._reports, record)
        if report is not None and report.outcome is UnloadOutcome.DONE and report.cluster in self._own:
            self._own[report.cluster].recall_done(report.decision_id)
