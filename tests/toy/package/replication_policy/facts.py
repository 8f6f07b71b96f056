"""What is the case as of now, by what is known."""

from dataclasses import dataclass
from datetime import datetime

from policies.units import millis_of, to_millis

from .settings import ReplicationSettings
from .state import LastReading, ReplicationState


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """What the verdict is made of."""

    now_ms: int
    reading: LastReading | None
    is_fresh: bool
    is_over: bool
    """Whether too many are under-replicated, by the last good reading."""
    was_degraded: bool
    well_since_ms: int | None


def facts_as_of(
    now: datetime, reading: LastReading | None, before: ReplicationState, settings: ReplicationSettings
) -> ReplicationFacts:
    """Join what is known."""
    now_ms, last = to_millis(now), before.last_published
    is_fresh = reading is not None and now_ms < reading.at_ms + millis_of(settings.validity)
    is_over = reading is not None and reading.under_replicated > settings.degraded_above
    well_since_ms = (before.well_since_ms or now_ms) if is_fresh and not is_over else None
    return ReplicationFacts(
        now_ms, reading, is_fresh, is_over, last is not None and last.verdict == "degraded", well_since_ms
    )
