"""The exporter: follows the loop's topics, keeps their present state, and serves it as metrics at each scrape."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connectors.exporter.loop_view import LoopView
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, Tail
from connectors.loop_snapshot import LoopSnapshot
from connectors.metric_families import Family, Sample, metrics
from connectors.version import VERSION
from policies.decisions import Decision
from policies.settings import PolicySettings
from policies.units import from_millis

BUILD_INFO = Family("headgate_build_info", "1, with the version that runs.", ("version",))
SETTINGS_INFO = Family("headgate_settings_info", "1, with a hash of the settings this process runs with.", ("hash",))

_POLL_SECONDS = 0.2


def _unheard(decision: Decision, caught_up: bool) -> None:
    """Nobody listens."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Exporter(Collector):
    """Registers itself; `run` keeps it up to date until it is told to stop.

    Until it has caught up it shows nothing of the loop: what an old decision in a topic's history said was never the
    present, and a scrape must not see it. So a restarted exporter is silent for a moment, never wrong.

    Args:
        connection: how to reach the loop's own Kafka.
        prefix: of the loop's topics.
        policies: each policy's block by its name; one that is not named runs with its defaults.
        registry: where the metrics are to be seen.
        settings_hash: identifies the settings this process runs with.
        clusters: those to be shown; None: all that there are, up to a limit.
        on_decision: called on the thread of `run` for each decision and alert once, with whether the exporter had
            caught up before it came, so that news can be told from history. Should be quick.
        on_records: called likewise with all that was read.
        now_ms: the clock, in milliseconds since the epoch.
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
        on_decision: Callable[[Decision, bool], None] = _unheard,
        on_records: Callable[[Sequence[Record]], None] | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._connection = connection
        self._client_id = f"{prefix}-exporter"
        self._info = [Sample(BUILD_INFO, (VERSION,), 1.0), Sample(SETTINGS_INFO, (settings_hash,), 1.0)]
        self._on_decision = on_decision
        self._on_records = on_records
        self._now_ms = now_ms
        self._view = LoopView(prefix, policies, clusters)
        self._lock = threading.Lock()
        self._caught_up = False
        self._behind: str | None = "the exporter has not started yet"
        self._problem: str | None = None
        registry.register(self)

    def run(self, stop: threading.Event) -> None:
        """Follow the topics until `stop` is set; Kafka may come and go meanwhile.

        Raises:
            UserError: the connection's files cannot be used, at the start.
        """
        with Tail(self._connection, self._view.histories(), self._client_id) as tail:
            try:
                while not stop.is_set():
                    self._advance(tail)
            finally:
                self._behind, self._problem = "the exporter has stopped", None

    def _advance(self, tail: Tail) -> None:
        records = tail.poll(_POLL_SECONDS)
        if self._on_records is not None:
            self._on_records(records)
        live = self._caught_up
        with self._lock:
            decisions = self._view.take(records, live=live)
            self._caught_up = live or tail.caught_up
        self._problem = tail.problem
        self._behind = None if self._caught_up else f"the exporter is reading its history: {tail.backlog}"
        for decision in decisions:
            self._on_decision(decision, live)

    def caught_up(self) -> str | None:
        """Readiness: None once all that was in the topics at the start has been read."""
        return None if self._behind is None else self._problem or self._behind

    def picture(self) -> LoopSnapshot:
        """What there is to show at this moment; nothing until all has been read."""
        now_ms = self._now_ms()
        with self._lock:
            if self._caught_up:
                return replace(self._view.picture(now_ms), problem=self._problem)
        return LoopSnapshot(from_millis(now_ms), self.caught_up())

    def describe(self) -> list[Metric]:
        """Every family there may be, so that a registry finds clashes and can filter by name."""
        return [BUILD_INFO.metric(), SETTINGS_INFO.metric(), *self._view.families()]

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        with self._lock:
            own = [*self._info, *self._view.own_samples()]
            of_loop = self._view.metrics(self._now_ms()) if self._caught_up else []
        yield from metrics(own)
        yield from of_loop
