"""The verdict on a cluster, as of now."""

from datetime import datetime
from typing import NamedTuple

from policies.units import millis_of, to_millis

from .decisions import ReplicationReason, ReplicationVerdict
from .settings import ReplicationSettings
from .state import LastReading, ReplicationState


class Judgement(NamedTuple):
    """The verdict, and the facts that decided."""

    verdict: ReplicationVerdict
    reason: ReplicationReason
    is_over: bool
    """Whether too many are under-replicated, by the last good reading."""
    well_since_ms: int | None


def judge(
    reading: LastReading | None, before: ReplicationState, settings: ReplicationSettings, now: datetime
) -> Judgement:
    """What is not known counts as degraded; what was degraded is ok only after the hold."""
    now_ms = to_millis(now)
    is_over = reading is not None and reading.under_replicated > settings.degraded_above
    if reading is None or now_ms >= reading.at_ms + millis_of(settings.validity):
        return Judgement(ReplicationVerdict.DEGRADED, ReplicationReason.UNREAD, is_over, None)
    if is_over:
        return Judgement(ReplicationVerdict.DEGRADED, ReplicationReason.UNDER_REPLICATED, is_over, None)
    well_since_ms = before.well_since_ms or now_ms
    if before.is_degraded and now_ms < well_since_ms + millis_of(settings.hold):
        return Judgement(ReplicationVerdict.DEGRADED, ReplicationReason.HOLD, is_over, well_since_ms)
    return Judgement(ReplicationVerdict.OK, ReplicationReason.REPLICATED, is_over, well_since_ms)
