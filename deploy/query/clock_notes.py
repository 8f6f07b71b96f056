"""Stores by how much the time of each batch was corrected, beside the checkpoint: repeated batches need the same."""

import json
from pathlib import Path
from typing import NamedTuple

from deploy.query.checkpoint import Checkpoint
from streaming.clocks import BatchClock

_FILE = "clock"
_MOST = 30
"""Spark keeps the plans of fewer batches."""


class _Note(NamedTuple):
    first: int
    """The batch from which on it holds."""
    ahead_ms: int


class ClockNotes:
    """Those of one checkpoint.

    Args:
        folder: of the checkpoint; None where only Spark can read it: then nothing is noted.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._notes: tuple[_Note, ...] = ()
        self.leaves_timers_late = False
        """Whether timers that were set before the query was started are late: its clock was set back since."""

    def ahead_ms_of(self, batch: int) -> int:
        """What the time of a batch was corrected by; from any thread."""
        return next((note.ahead_ms for note in reversed(self._notes) if note.first <= batch), 0)

    def begin(self, ahead_ms: int) -> BatchClock:
        """The query is being started, and none runs: what is planned from now on is corrected by so much.

        Raises:
            OSError: the checkpoint cannot be written to.
        """
        if self._folder is None:
            self.leaves_timers_late = ahead_ms < self.ahead_ms_of(0)
            self._notes = (_Note(0, ahead_ms),)
            return BatchClock(ahead_ms)
        checkpoint = Checkpoint(self._folder)
        newest, noted = checkpoint.newest_batch, self._read()
        # After the newest none was planned, whatever was noted; in a new checkpoint none at all.
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
