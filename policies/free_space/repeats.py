"""When the decision on a factor is repeated, and when its time to full is worth another decision."""

from policies.free_space.settings import FreeSpaceSettings
from policies.publication import RepeatSchedule
from policies.units import millis_of

_MISLEADING = 2
"""A published time to full that is wrong by more than this factor is replaced."""
_INSTANT_MS = 5000
"""A shorter time makes no difference."""
_STILL_SOON = 1.25
"""The alert of a volume that is full soon ends when it has a quarter more time than the setting."""


def repeat_schedule(settings: FreeSpaceSettings) -> RepeatSchedule:
    """Return when a decision is repeated: two heartbeats may be late before it expires."""
    return RepeatSchedule(settings.heartbeat, valid_for=3)


def is_misleading(published_ms: int | None, full_ms: int | None, now_ms: int, settings: FreeSpaceSettings) -> bool:
    """Return whether the published time to full is wrong by now.

    Sentence, metric and alert state one number, so a new one for the alert needs a new decision.
    """
    published, left = (None if ms is None else max(ms - now_ms, 0) for ms in (published_ms, full_ms))
    soon = millis_of(settings.time_to_full_alert)
    was_soon, is_soon = published is not None and published < soon, left is not None and left < soon
    if published is None or left is None or not (was_soon and is_soon):
        return was_soon != is_soon
    return max(published, left) > _MISLEADING * min(published, left) + _INSTANT_MS


def is_full_soon(seconds: float, settings: FreeSpaceSettings, *, is_firing: bool) -> bool:
    """Return whether a volume that is full in some seconds is an alert; one that fires ends by a margin only."""
    margin = _STILL_SOON if is_firing else 1.0
    return seconds < settings.time_to_full_alert.total_seconds() * margin
