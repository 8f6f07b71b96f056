"""Members that are not what their sessions say: processes that are dead, alive without a registration, or not ready.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

from dataclasses import dataclass

from policies.observations import Outcome
from policies.sessions.decisions import SessionStatus
from policies.sessions.readings import SessionState
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Member, NodeRecord
from policies.units import millis_of

_NO_ANSWER = frozenset({Outcome.UNREACHABLE.value, Outcome.TIMEOUT.value})


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a member's health and registration say of it."""

    is_dead: bool
    """Its session has expired, and its process does not answer since it was last connected."""
    is_not_ready: bool
    """It has been established again, is registered, and the cluster does not list it all the same."""
    zombie_ms: int | None
    """When a member that answers healthy without a registration is a zombie; may have passed; None for others."""


def liveness_of(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Liveness:
    """What is known of a member's process, by its registration as last read."""
    unregistered_ms = _unregistered_ms(member, node, now_ms, settings)
    zombie_ms = None if unregistered_ms is None else unregistered_ms + settings.zombie_after_ms(member.timeout_ms)
    return Liveness(_is_dead(member, now_ms, settings), _is_not_ready(member, node, now_ms, settings), zombie_ms)


def _is_dead(member: Member, now_ms: int, settings: SessionsSettings) -> bool:
    track, health = member.track, member.health
    if track is None or health is None or now_ms - health.at_ms > millis_of(settings.validity):
        return False
    expired = track.is_lost and track.state is SessionState.EXPIRED
    return expired and health.outcome in _NO_ANSWER and health.at_ms >= (track.connected_ms or 0)


def _unregistered_ms(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> int | None:
    """Since when a member that answers healthy has had no registration; None when it has one, or not all is known."""
    health, validity_ms = member.health, millis_of(settings.validity)
    if node is None or node.exists or health is None or not health.healthy or health.outcome != Outcome.OK.value:
        return None
    if now_ms - node.read_ms > validity_ms or now_ms - health.at_ms > validity_ms:
        return None
    closed = member.track is not None and member.track.status is SessionStatus.CLOSED
    if closed or health.at_ms < node.changed_ms:
        return None
    # A process that was down in between had no chance to register itself before it was up again.
    return max(node.changed_ms, health.down_ms)


def _is_not_ready(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> bool:
    track, health, validity_ms = member.track, member.health, millis_of(settings.validity)
    if track is None or track.reestablished_ms is None or track.status is not SessionStatus.ESTABLISHED:
        return False
    if health is None or health.outcome != Outcome.OK.value or now_ms - health.at_ms > validity_ms:
        return False
    registered = node is not None and node.exists and now_ms - node.read_ms <= validity_ms
    early = health.at_ms < track.reestablished_ms or now_ms - track.reestablished_ms > millis_of(settings.settle)
    return registered and not early and health.listed is False
