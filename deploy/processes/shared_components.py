"""Runs the parts of the work that a consumer group assigns to this process; stops them before another takes over."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import cast

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from connectors.component import Check, Component, first_problem
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import PartitionSettings
from connectors.membership import Group, Membership, PartitionLease, PartitionMetrics
from policies.units import UserError, name_some

_log = structlog.get_logger(__name__)

Held = frozenset[str]
"""The part of the work that this process holds: names of clusters, or the path of the query's checkpoint."""


@dataclass(frozen=True)
class Work:
    """A kind of work that processes share, and the functions for the part that a process holds."""

    name: str
    """The name of the component that does it, for logs and metrics."""
    group: Group
    of_shares: Callable[[frozenset[int]], Held]
    """Returns the work in the partitions that this process holds."""
    units: Callable[[Held], Mapping[str, Held]]
    """Divides the held work into units by name. The components of a unit start and stop together, and restart if the
    unit changes."""
    open: Callable[[str, Held, PartitionLease], AbstractContextManager[Sequence[Component]]]
    """Makes the components of a unit; the context closes their resources afterwards."""
    does: str = "works for"
    """What this process does with the held work, for the log."""


@dataclass
class _RunningUnit:
    """Components that run together, each on a thread of its own."""

    clusters: Held
    components: Sequence[Component]
    threads: list[threading.Thread] = field(default_factory=list)
    opened: ExitStack = field(default_factory=ExitStack)


class SharedComponents:
    """A component of the loop that runs other components: those for the shares that this process holds."""

    def __init__(
        self, connection: KafkaConnection, work: Work, settings: PartitionSettings, metrics: PartitionMetrics
    ) -> None:
        self._connection = connection
        self._work = work
        self._settings = settings
        self._metrics = metrics
        self._member: Membership | None = None
        self._ending = self._is_told = False
        self._held: Held = frozenset()
        self._units: dict[str, _RunningUnit] = {}
        """The units that run. One thread at a time changes them, with the lock; any thread may read them."""
        self._failures: list[BaseException] = []
        self._lock = threading.RLock()

    def component(self) -> Component:
        """Return it as a part of the loop."""
        return Component(self._work.name, self.run, self.healthy, self.ready)

    def run(self, stop: threading.Event) -> None:
        """Do this process's share of the work until `stop` is set, then stop in order while still a group member.

        Raises UserError if Kafka refuses the membership, or a component raised it.
        """
        with Membership(self._connection, self._work.group, self._settings, self._on_change) as member:
            self._member = member
            try:
                while not (stop.is_set() or self._failures):
                    member.step()
                    self._metrics.valid.labels(self._work.name).set(member.lease.is_valid)
            finally:
                self._end(member)
        if self._failures:
            raise self._failures[0]

    def healthy(self) -> str | None:
        """Return the first problem of its components; None if there is none."""
        return self._first_problem(lambda component: component.healthy)

    def ready(self) -> str | None:
        """Return why it is not ready; None once it has its share (possibly empty) and all its components are ready."""
        member = self._member
        if member is None:
            return "has not started yet"
        return member.problem or self._first_problem(lambda component: component.ready)

    def _first_problem(self, check_of: Callable[[Component], Check | None]) -> str | None:
        return first_problem(
            check_of(component) for unit in list(self._units.values()) for component in unit.components
        )

    def _end(self, member: Membership) -> None:
        """Stop everything. Components may take long to drain, so membership is kept up meanwhile: shares stay held."""
        self._ending = True
        ending = threading.Thread(target=self._keep, args=({},), name=f"end of {self._work.name}", daemon=True)
        ending.start()
        while ending.is_alive():
            try:
                member.step()
            except UserError:
                break  # not a member any more; the components stop all the same
        ending.join()

    def _on_change(self, assigned: frozenset[int] | None) -> None:
        shares = assigned or frozenset()
        held = self._work.of_shares(shares)
        self._metrics.held.labels(self._work.name).set(len(shares))
        if assigned is None:
            # The membership has logged why; without an assignment, nobody else need have the work.
            self._is_told = False
        elif held != self._held or not self._is_told:
            self._log_change(held)
        self._held = held
        wanted = {} if self._ending else self._work.units(held)
        self._keep(wanted)
        for name, clusters in wanted.items():
            self._start(name, clusters)

    def _log_change(self, held: Held) -> None:
        self._is_told = True
        if not held and not self._ending:
            _log.info(f"{self._work.name}: stands by, other processes have all the work")
            return
        change = {self._work.does: held, f"no longer {self._work.does}": self._held - held}
        told = " and ".join(f"{verb} {name_some(sorted(names))}" for verb, names in change.items() if names)
        if told:
            _log.info(f"{self._work.name}: this process {told}")

    def _keep(self, wanted: Mapping[str, Held]) -> None:
        """Stop all units except these, and wait until they have ended."""
        with self._lock:
            leaving = [name for name, unit in self._units.items() if wanted.get(name) != unit.clusters]
            units = [self._units.pop(name) for name in leaving]
            for unit in units:  # all at once; the components of each unit stop in their order
                for component in unit.components[:1]:
                    component.stop.set()
            for unit in units:
                for component, thread in zip(unit.components, unit.threads, strict=True):
                    component.stop.set()
                    thread.join()
                unit.opened.close()

    def _start(self, name: str, clusters: Held) -> None:
        """Start a unit, unless it runs."""
        with self._lock:
            if name in self._units:
                return
            assert self._member is not None  # noqa: S101 - which has called this
            with ExitStack() as stack:
                opened = self._work.open(name, clusters, self._member.lease)
                unit = _RunningUnit(clusters, stack.enter_context(opened))
                unit.opened = stack.pop_all()
            self._units[name] = unit
            unit.threads += [component.start(self._failures) for component in unit.components]


@contextmanager
def passing_registry(registry: CollectorRegistry) -> Iterator[CollectorRegistry]:
    """Yield a registry whose metrics appear in `registry` while the block runs."""
    own = CollectorRegistry(auto_describe=True)
    passing = cast("Collector", own)  # it has all that a collector needs; its names depend on the components that run
    registry.register(passing)
    try:
        yield own
    finally:
        registry.unregister(passing)
