"""Detects a wrong clock: compares Kafka's append times with this machine's clock, batch by batch.

A batch that left no backlog took records that had just been appended. If its newest record, and those of the following
batches, seem much older or newer, the two clocks differ. Records that waited while the loop was down look old in one
batch only.
"""

import time
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Gauge

from connectors.kafka.clock_difference import ClockDifference
from streaming.progress import BatchProgress

_log = structlog.get_logger(__name__)


class ClockWatch:
    """Measures how far this machine's clock, which determines the batches' times, is ahead of Kafka's.

    Args:
        registry: for its metric.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._difference = ClockDifference(clock)
        self._told = Gauge(
            "headgate_query_clock_ahead_seconds",
            "How far this machine's clock is ahead of Kafka's, where that is more than a minute: "
            "ages are counted by Kafka's clock then. 0: they agree.",
            registry=registry,
        )

    @property
    def ahead_ms(self) -> int:
        """The correction for batch times; 0 while the clocks agree well enough."""
        return self._difference.ahead_ms

    def on_batch(self, batch: BatchProgress) -> None:
        """Compare the clocks after a finished micro-batch."""
        if batch.newest_ms is None or batch.lag_records:
            return
        if self._difference.note(batch.began_ms, batch.newest_ms):
            self._say(self.ahead_ms / 1000)

    def _say(self, ahead_seconds: float) -> None:
        self._told.set(ahead_seconds)
        if ahead_seconds:
            _log.error(
                "this machine's clock and Kafka's differ: ages are counted by Kafka's until they agree again; "
                "set the clock that is wrong",
                ahead_seconds=round(ahead_seconds),
            )
        else:
            _log.info("this machine's clock and Kafka's agree again")
