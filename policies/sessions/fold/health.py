"""Readings of members' health endpoints."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.sessions.readings import MemberHealth
from policies.sessions.state import NEVER, Health, Member


def fold(member: Member, seen: Observation, reading: MemberHealth) -> Member:
    """One reading of a member's health; one older than the last changes nothing."""
    last = member.health
    if last is not None and (seen.at_ms, seen.id) <= (last.at_ms, last.id):
        return member
    is_well = reading.outcome is Outcome.OK and reading.healthy is True
    last_down_ms = NEVER if last is None else last.down_ms
    down_ms = last_down_ms if is_well else seen.at_ms
    health = Health(seen.at_ms, seen.id, reading.outcome.value, reading.healthy, reading.listed, down_ms)
    return replace(member, health=health, seen_ms=max(member.seen_ms, seen.at_ms))
