"""The exporter: follows the loop's topics, keeps their present state, and returns it as metrics at each scrape."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from types import MappingProxyType

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connectors.exporter.loop_view import LoopView
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Tail
from connectors.views import Family, LoopSnapshot, Sample, metrics
from policies.decisions import Decision
from policies.settings import PolicySettings
from policies.units import from_millis, human_seconds

VERSION = version("headgate")
"""As in `pyproject.toml`."""

BUILD_INFO = Family("headgate_build_info", "1, labelled with the running version.", ("version",))
SETTINGS_INFO = Family("headgate_settings_info", "1, labelled with a hash of this process's settings.", ("hash",))
LOOP_ALIVE = Family(
    "headgate_loop_alive",
    "0 if the loop does not decide: this process's query fails or stalls, or no heartbeat of a query came for 90 s.",
    (),
)

SILENT_MS = 90_000
"""A query whose last heartbeat is older is dead or far behind. Each policy's heartbeat is due at whole minutes."""
_POLL_SECONDS = 0.2


class Exporter(Collector):
    """Registers itself; `run` keeps it up to date until `stop` is set.

    Until it has caught up it shows nothing of the loop: an old decision in a topic's history is not the present, and a
    scrape must not see it. So a restarted exporter is silent for a moment, but never wrong.

    Args:
        policies: each policy's settings by its name; a policy that is absent has its defaults.
        clusters: the clusters to show; None: all, up to a limit.
        on_decision: called once for each decision and alert, on the thread of `run`. It should be quick.
        needs: see `DecisionsInForce`.
        problem: the problem of the query if it runs in this process; None without one.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        prefix: str,
        policies: Mapping[str, PolicySettings],
        registry: CollectorRegistry,
        *,
        settings_hash: str,
        clusters: frozenset[str] | None = None,
        on_decision: Callable[[Decision], None] = lambda _decision: None,
        needs: Mapping[tuple[str, str], str] = MappingProxyType({}),
        problem: Callable[[], str | None] = lambda: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._connection = connection
        self._client_id = f"{prefix}-exporter"
        self._info = [Sample(BUILD_INFO, (VERSION,), 1.0), Sample(SETTINGS_INFO, (settings_hash,), 1.0)]
        self._on_decision = on_decision
        self._query_problem = problem
        self._now_ms = now_ms
        self._view = LoopView(prefix, policies, clusters, needs)
        self._lock = threading.Lock()
        self._caught_up = False
        self._behind: str | None = "the exporter has not started yet"
        self._problem: str | None = None
        self._heartbeat_ms: int | None = None
        self._alive_ms: int | None = None
        """When the query was last seen alive, by this machine's clock; None before anything is observed."""
        registry.register(self)

    def run(self, stop: threading.Event) -> None:
        """Follow the topics until `stop` is set, through outages of Kafka.

        Raises UserError if the connection's files cannot be used, at the start.
        """
        with Tail(self._connection, self._view.histories(), self._client_id) as tail:
            try:
                while not stop.is_set():
                    self._poll(tail)
            finally:
                self._behind, self._problem = "the exporter has stopped", None

    def _poll(self, tail: Tail) -> None:
        records = tail.poll(_POLL_SECONDS)
        live = self._caught_up
        with self._lock:
            decisions = self._view.fold(records, live=live)
            self._caught_up = live or tail.caught_up
            self._note_heartbeat(live=live)
        self._problem = tail.problem
        self._behind = None if self._caught_up else f"the exporter is reading its history: {tail.backlog}"
        for decision in decisions:
            self._on_decision(decision)

    def _note_heartbeat(self, *, live: bool) -> None:
        """Take the time of a live heartbeat from this clock, so that a difference of clocks is no silence."""
        if self._view.heartbeat_ms != self._heartbeat_ms:
            self._heartbeat_ms = self._view.heartbeat_ms
            self._alive_ms = self._now_ms() if live else self._heartbeat_ms
        elif self._caught_up and self._alive_ms is None and self._view.has_observations:
            self._alive_ms = self._now_ms()

    def silence(self) -> str | None:
        """Return why the loop does not decide, from the query in this process and its heartbeats; None if it does."""
        if (problem := self._query_problem()) is not None:
            return problem
        silent_ms = 0 if self._alive_ms is None else self._now_ms() - self._alive_ms
        if not self._caught_up or silent_ms <= SILENT_MS:
            return None
        return f"no heartbeat of a query has come for {human_seconds(silent_ms / 1000)}, and one is due each minute"

    def caught_up(self) -> str | None:
        """Readiness: None once all records that were in the topics at the start are read, else a sentence."""
        return None if self._behind is None else self._problem or self._behind

    def snapshot(self) -> LoopSnapshot:
        """Return the present state of the loop; an empty one until the exporter has caught up."""
        now_ms = self._now_ms()
        with self._lock:
            if self._caught_up:
                problem = self._problem or self._view.find_foreign(now_ms)
                return replace(self._view.snapshot(now_ms), problem=problem, silence=self.silence())
        return LoopSnapshot(from_millis(now_ms), self.caught_up())

    def describe(self) -> list[Metric]:
        """Return every possible family, so that a registry finds clashes and can filter by name."""
        return [BUILD_INFO.metric(), SETTINGS_INFO.metric(), LOOP_ALIVE.metric(), *self._view.families()]

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        with self._lock:
            alive = Sample(LOOP_ALIVE, (), float(self.silence() is None))
            of_process = [*self._info, alive, *self._view.process_samples()]
            of_loop = self._view.metrics(self._now_ms()) if self._caught_up else []
        yield from metrics(of_process)
        yield from of_loop
