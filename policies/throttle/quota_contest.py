"""Who else sets a quota: how often it was put back, at which period, and when to look for the next time. Pure."""

from dataclasses import dataclass
from itertools import pairwise

from policies.throttle.quota_originals import Rate

TIMES_CONTESTED = 3
"""A quota that was put back this many times is fought over."""
_KEPT = 5
_FORGOTTEN_AFTER_PERIODS = 3.0
_FORGOTTEN_AFTER_SECONDS = 900.0
_EARLY_SECONDS = 2.5
_LATE_SECONDS = 3.0
CLOSE_LOOK_SECONDS = 0.5
"""The time between two looks when a quota is expected to be put back."""
_OPEN_SHARE = 0.04
"""The time until the next look, as a share of the time since the quota was put back last."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The last times at which somebody else put one quota back. Seconds are those of any monotonic clock."""

    at: tuple[float, ...]
    value: Rate
    """The value that was found; None: the quota was removed."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody sets it again and again."""
        return len(self.at) >= TIMES_CONTESTED

    @property
    def period_seconds(self) -> float | None:
        """The median time between two, if it came back more than once."""
        between = sorted(after - before for before, after in pairwise(self.at))
        return between[len(between) // 2] if between else None

    def is_over(self, now: float) -> bool:
        """Whether it has not come back for so long that it need not be expected any more."""
        period = self.period_seconds
        patience = _FORGOTTEN_AFTER_SECONDS if period is None else _FORGOTTEN_AFTER_PERIODS * period + _LATE_SECONDS
        return now - self.at[-1] > patience

    def look_seconds(self, now: float, longest: float) -> float:
        """Return the time until the next look.

        If it came back at even intervals, that is often for a few seconds around each expected time. Otherwise it is a
        small share of the time since it came back last, so that the quota is open for at most that share.
        """
        *_, before, last = (0.0, 0.0, *(after - at for at, after in pairwise(self.at)))
        passed = now - self.at[-1]
        if not before or abs(last - before) > _LATE_SECONDS or last <= _EARLY_SECONDS + _LATE_SECONDS:
            return min(max(CLOSE_LOOK_SECONDS, _OPEN_SHARE * passed), longest)
        due = max(1, round(passed / last)) * last
        if due - _EARLY_SECONDS <= passed <= due + _LATE_SECONDS:
            return min(CLOSE_LOOK_SECONDS, longest)
        ahead = due if passed < due else due + last
        return min(ahead - _EARLY_SECONDS - passed, longest)


def note_put_back(before: Contest | None, now: float, value: Rate) -> Contest:
    """Return the contest after a quota was found put back; another value begins another contest."""
    at = before.at if before is not None and before.value == value else ()
    return Contest((*at, now)[-_KEPT:], value)
