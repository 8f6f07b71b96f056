"""Folds readings of members' health endpoints."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.sessions.readings import MemberHealth
from policies.sessions.state import NEVER, Health, Member

_NONE_YET = Health(NEVER, "", "", healthy=None, listed=None)


def fold(member: Member, seen: Observation, reading: MemberHealth, validity_ms: int) -> Member:
    """One reading of a member's health; one older than the last changes nothing.

    Args:
        member: whose.
        seen: the reading.
        reading: what it says.
        validity_ms: after a longer gap nobody knows what the process did in between: it counts as down until now.
    """
    last, at_ms = member.health or _NONE_YET, seen.at_ms
    if (at_ms, seen.id) <= (last.at_ms, last.id):
        return member
    is_well = reading.outcome is Outcome.OK and reading.healthy is True
    has_gap = last.at_ms != NEVER and at_ms - last.at_ms > validity_ms
    unlisted_ms = at_ms if last.unlisted_ms == NEVER or has_gap else last.unlisted_ms
    health = Health(
        at_ms,
        seen.id,
        reading.outcome.value,
        reading.healthy,
        reading.listed,
        down_ms=last.down_ms if is_well and not has_gap else at_ms,
        before_ms=last.at_ms if at_ms > last.at_ms else last.before_ms,
        answered_ms=_answered_ms(last) if reading.outcome is Outcome.UNREACHABLE else at_ms,
        listed_ms=at_ms if reading.listed else _listed_ms(last),
        unlisted_ms=unlisted_ms if reading.listed is False else NEVER,
    )
    return replace(member, health=health, seen_ms=max(member.seen_ms, at_ms))


def _answered_ms(last: Health) -> int:
    """Until its last reading; what older versions remembered does not say."""
    return last.answered_ms if last.outcome in ("", Outcome.UNREACHABLE.value) else last.at_ms


def _listed_ms(last: Health) -> int:
    return last.at_ms if last.listed else last.listed_ms
