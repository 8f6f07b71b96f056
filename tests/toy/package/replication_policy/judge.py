"""The verdict on the facts."""

from policies.units import millis_of

from .decisions import ReplicationReason, ReplicationVerdict
from .facts import ReplicationFacts
from .settings import ReplicationSettings

Judgement = tuple[ReplicationVerdict, ReplicationReason]


def judge(facts: ReplicationFacts, settings: ReplicationSettings) -> Judgement:
    """What is not known counts as degraded; what was degraded is ok only after the hold."""
    if not facts.is_fresh:
        return ReplicationVerdict.DEGRADED, ReplicationReason.UNREAD
    if facts.is_over:
        return ReplicationVerdict.DEGRADED, ReplicationReason.UNDER_REPLICATED
    if facts.was_degraded and facts.now_ms < ok_at_ms(facts, settings):
        return ReplicationVerdict.DEGRADED, ReplicationReason.HOLD
    return ReplicationVerdict.OK, ReplicationReason.REPLICATED


def ok_at_ms(facts: ReplicationFacts, settings: ReplicationSettings) -> int:
    """When the hold ends; 0 while nothing is well."""
    return 0 if facts.well_since_ms is None else facts.well_since_ms + millis_of(settings.hold)
