"""Whether the evidence for a shutdown or restart is certain: read recently, after the event, and twice in a row.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

from dataclasses import dataclass
from enum import Enum

from policies.sessions.state import NEVER

INTERVALS = 2
"""A reading is fresh for so many of its own intervals."""
SHORTEST_INTERVAL_MS = 1_000
"""Two readings of one moment say nothing of how often there is one."""
IN_A_ROW_MS = 120_000
"""Two readings further apart are not in a row: nobody looked in between, as while Headgate was away."""


class Certainty(Enum):
    """How sure what was read is."""

    STALE = "stale"
    """The last reading is too old: what it says may be over."""
    ONCE = "once"
    """One reading since the event says so; the next may say otherwise."""
    SURE = "sure"
    """The last two readings say so, in a row, both taken after the event, and the last is fresh."""


@dataclass(frozen=True, slots=True)
class Paced:
    """The last two readings of one thing, which say the same."""

    read_ms: int
    before_ms: int
    """The one before; `NEVER` when there was none."""
    event_ms: int
    """What they are to have been taken after."""
    timeout_ms: int
    """T of the member it is about: nothing older is fresh."""

    @property
    def interval_ms(self) -> int:
        """How often it is read: what lies between the last two readings; at most T."""
        gap_ms = self.timeout_ms if self.before_ms == NEVER else self.read_ms - self.before_ms
        return min(max(gap_ms, SHORTEST_INTERVAL_MS), self.timeout_ms)

    def certainty(self, now_ms: int) -> Certainty:
        """How sure it is now."""
        if now_ms - self.read_ms >= min(INTERVALS * self.interval_ms, self.timeout_ms):
            return Certainty.STALE
        in_a_row = self.before_ms != NEVER and self.read_ms - self.before_ms <= IN_A_ROW_MS
        return Certainty.SURE if in_a_row and self.before_ms >= self.event_ms else Certainty.ONCE


def least(readings: tuple[Paced, ...], now_ms: int) -> Certainty:
    """How sure all of them together are."""
    found = {each.certainty(now_ms) for each in readings}
    return next(c for c in Certainty if c in found)
