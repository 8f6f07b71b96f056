"""Stores the clock correction of each batch beside the checkpoint, because a repeated batch needs the same one."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Gauge

from connectors.kafka.probes import ClockDifference
from deploy.query.checkpoint import Checkpoint
from streaming.clocks import BatchClock
from streaming.progress import BatchProgress

_FILE = "clock"
_MOST = 30
"""More than the number of plans that Spark keeps."""


class _Note(NamedTuple):
    first: int
    """The first batch with this correction."""
    ahead_ms: int


class ClockNotes:
    """The stored corrections of one checkpoint.

    Args:
        folder: the checkpoint's folder; None if only Spark can read it: then nothing is stored.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._notes: tuple[_Note, ...] = ()
        self.leaves_timers_late = False
        """Whether timers from before the query's start are late, because the driver's clock was set back since."""

    def ahead_ms_of(self, batch: int) -> int:
        """Return the correction of a batch; callable from any thread."""
        return next((note.ahead_ms for note in reversed(self._notes) if note.first <= batch), 0)

    def begin(self, ahead_ms: int) -> BatchClock:
        """Set the correction of all batches that are planned from now on; call it while no query runs.

        Raises:
            OSError: the checkpoint cannot be written to.
        """
        if self._folder is None:
            self.leaves_timers_late = ahead_ms < self.ahead_ms_of(0)
            self._notes = (_Note(0, ahead_ms),)
            return BatchClock(ahead_ms)
        checkpoint = Checkpoint(self._folder)
        newest, noted = checkpoint.newest_batch, self._read()
        # No batch was planned after the newest one, whatever is stored; in a new checkpoint no batch was planned at
        # all.
        self._notes = tuple(note for note in noted if note.first <= newest)
        before_ms = self.ahead_ms_of(newest)
        self.leaves_timers_late = ahead_ms < before_ms
        if before_ms != ahead_ms:
            self._notes = (*self._notes, _Note(newest + 1, ahead_ms))[-_MOST:]
        if self._notes != noted:
            self._write()
        return BatchClock(ahead_ms, checkpoint.plan.at_ms if before_ms != ahead_ms else None, before_ms)

    def _read(self) -> tuple[_Note, ...]:
        try:
            return tuple(_Note(int(first), int(ahead_ms)) for first, ahead_ms in json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return ()

    def _write(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._path.with_name(f".{_FILE}.new")
        beside.write_text(json.dumps(self._notes))
        beside.chmod(0o600)
        beside.replace(self._path)

    @property
    def _path(self) -> Path:
        return (self._folder or Path()) / _FILE


_log = structlog.get_logger(__name__)


class ClockWatch:
    """Measures how far this machine's clock, which determines the batches' times, is ahead of Kafka's."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._difference = ClockDifference(clock)
        self._gauge = Gauge(
            "headgate_query_clock_ahead_seconds",
            "How far this machine's clock is ahead of Kafka's, if by more than a minute; then ages are measured by "
            "Kafka's clock. 0 if they agree.",
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
        if not self._difference.note(batch.began_ms, batch.newest_ms):
            return
        ahead_seconds = self.ahead_ms / 1000
        self._gauge.set(ahead_seconds)
        if ahead_seconds:
            _log.error(
                "this machine's clock and Kafka's differ: ages are measured by Kafka's until they agree again; "
                "set the wrong clock",
                ahead_seconds=round(ahead_seconds),
            )
        else:
            _log.info("this machine's clock and Kafka's agree again")
