"""Finds a clock that leapt: holds Kafka's append times against this machine's clock, batch by batch.

A batch that left nothing behind took what had just been appended. When its newest record seems far older or newer than
that, and so do those of the batches that follow, the two clocks differ; what was left lying while the loop was down is
as old only once.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Gauge

from streaming.progress import BatchProgress

TOLERATED_MS = 60_000
"""What the clocks may differ by before ages are counted by Kafka's."""
_SPREAD_MS = 15_000
"""Between batches of one difference: how much longer one may have waited than the other."""
_CONFIRM_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class _Suspicion(NamedTuple):
    ahead_ms: int
    since: float


class ClockWatch:
    """How far this machine's clock, which gives batches their time, is ahead of Kafka's.

    Args:
        registry: where its metric goes.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspicion: _Suspicion | None = None
        self._ahead_ms = 0
        self._difference = Gauge(
            "headgate_query_clock_ahead_seconds",
            "How far this machine's clock is ahead of Kafka's, where that is more than a minute: "
            "ages are counted by Kafka's clock then. 0: they agree.",
            registry=registry,
        )

    @property
    def ahead_ms(self) -> int:
        """What batch times are to be corrected by; 0 while the clocks agree well enough."""
        return self._ahead_ms

    def on_batch(self, batch: BatchProgress) -> None:
        """A micro-batch has finished."""
        if batch.newest_ms is None or batch.lag_records:
            return
        ahead_ms, now = batch.began_ms - batch.newest_ms, self._clock()
        if abs(ahead_ms - self._ahead_ms) <= TOLERATED_MS:
            self._suspicion = None
        elif self._suspicion is None or abs(ahead_ms - self._suspicion.ahead_ms) > _SPREAD_MS:
            self._suspicion = _Suspicion(ahead_ms, now)
        elif now - self._suspicion.since >= _CONFIRM_SECONDS:
            self._correct(0 if abs(ahead_ms) <= TOLERATED_MS else ahead_ms)

    def _correct(self, ahead_ms: int) -> None:
        self._suspicion, self._ahead_ms = None, ahead_ms
        self._difference.set(ahead_ms / 1000)
        if ahead_ms:
            _log.error(
                "this machine's clock and Kafka's differ: ages are counted by Kafka's until they agree again; "
                "set the clock that is wrong",
                ahead_seconds=round(ahead_ms / 1000),
            )
        else:
            _log.info("this machine's clock and Kafka's agree again")
