"""A clock that moves only when somebody waits, or a test says so."""

from datetime import UTC, datetime, timedelta
from threading import Event

from connectors.actuation.worker import Clock

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class VirtualClock(Clock):
    """Begins at noon.

    Args:
        still: whether time stands still while somebody waits.
    """

    def __init__(self, *, still: bool = False) -> None:
        self.time = NOON
        self.waits: list[float] = []
        self._still = still

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def wait(self, event: Event, seconds: float | None) -> None:
        """Let all the time pass at once, unless the event is set. A wait without end is an error of the test."""
        if event.is_set():
            return
        assert seconds is not None, "nothing would ever end this"
        self.waits.append(seconds)
        if not self._still:
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
