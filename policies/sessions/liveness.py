"""Members whose process contradicts their session: dead, alive without a registration, or not ready.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

from dataclasses import dataclass

from policies.observations import Outcome
from policies.sessions.decisions import SessionReason, SessionStatus
from policies.sessions.freshness import Certainty, Paced, least
from policies.sessions.readings import SessionState
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import Health, Member, NodeRecord
from policies.units import millis_of


@dataclass(frozen=True, slots=True)
class Absence:
    """Somebody is healthy by its own word, and is not where it ought to be."""

    gone_ms: int
    """Since when it is not there."""
    due_ms: int
    """When it has had longer than any took that was seen to come back by itself; may have passed."""
    certainty: Certainty
    """How sure the readings are that say so."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a member's health and registration say of it."""

    is_dead: bool
    """Its session has expired, and its process refuses connections since it was last connected."""
    unregistered: Absence | None
    """It answers healthy and has no registration; None for others, and where that is not known."""
    unlisted: Absence | None
    """It has a session again and is registered, and the cluster has not listed it since; None for others."""
    is_registered: bool
    """By a reading that counts."""
    is_no_zombie: bool
    """Readings say that it is none: it is registered, unwell by its own word, dead, or has gone in order."""


def liveness_of(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Liveness:
    """What is known of a member's process, by its registration as last read."""
    oldest_ms = now_ms - millis_of(settings.validity)
    is_dead = _is_dead(member, oldest_ms)
    registered = node is not None and node.exists and node.read_ms >= oldest_ms
    unlisted = _unlisted(member, node, now_ms, settings) if registered else None
    health, closed = member.health, member.track is not None and member.track.status is SessionStatus.CLOSED
    refuses = health is not None and _refuses_twice(health, 0)
    unwell = health is not None and health.at_ms >= oldest_ms and (refuses or health.healthy is False)
    return Liveness(
        is_dead,
        _unregistered(member, node, now_ms, settings),
        unlisted,
        is_registered=registered,
        is_no_zombie=registered or closed or is_dead or unwell,
    )


def _refuses_twice(health: Health, since_ms: int) -> bool:
    """Whether both of its last readings since then found nobody to talk to."""
    return health.outcome == Outcome.UNREACHABLE.value and health.before_ms > max(health.answered_ms, since_ms - 1)


def _is_dead(member: Member, oldest_ms: int) -> bool:
    track, health, last = member.track, member.health, member.last_published
    if track is None or health is None or not (track.is_lost and track.state is SessionState.EXPIRED):
        return False
    was_said = last is not None and last.reason is SessionReason.UNREACHABLE and last.lost_ms == track.lost_ms
    if not was_said and health.at_ms < oldest_ms:
        return False
    return _refuses_twice(health, track.connected_ms or 0)


def _unregistered(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Absence | None:
    health, oldest_ms = member.health, now_ms - millis_of(settings.validity)
    if node is None or node.exists or health is None or not health.healthy or health.outcome != Outcome.OK.value:
        return None
    closed = member.track is not None and member.track.status is SessionStatus.CLOSED
    if closed or min(node.read_ms, health.at_ms) < oldest_ms or health.at_ms < node.changed_ms:
        return None
    # A process that was down in between, or without a session, had no chance to register itself before.
    reestablished_ms = member.track.reestablished_ms if member.track else None
    since_ms = max(node.changed_ms, health.down_ms, reestablished_ms or 0)
    healthy = _of_health(health, max(node.changed_ms, health.down_ms + 1), member)
    readings = (_of_node(node, node.changed_ms, member), healthy)
    return Absence(node.changed_ms, since_ms + settings.zombie_after_ms, least(readings, now_ms))


def _unlisted(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Absence | None:
    """Lists of brokers lag, by minutes at times: only who has been missing for as long as a zombie is not ready."""
    track, health, oldest_ms = member.track, member.health, now_ms - millis_of(settings.validity)
    if track is None or track.reestablished_ms is None or track.status is not SessionStatus.ESTABLISHED:
        return None
    if node is None or health is None or health.outcome != Outcome.OK.value or health.at_ms < oldest_ms:
        return None
    back_ms = max(track.reestablished_ms, node.changed_ms)
    if health.listed is not False or health.listed_ms >= track.reestablished_ms or health.at_ms < back_ms:
        return None
    since_ms = max(back_ms, health.unlisted_ms)
    readings = (
        Paced(track.read_ms, track.before_ms, track.reestablished_ms, member.timeout_ms),
        _of_node(node, back_ms, member),
        _of_health(health, since_ms, member),
    )
    return Absence(since_ms, since_ms + settings.zombie_after_ms, least(readings, now_ms))


def certainty_of_loss(member: Member, now_ms: int) -> tuple[Certainty, tuple[str, ...]]:
    """How sure it is that a member is without a session, and the readings that say so.

    They are those of its session, or its own reports of failed attempts, whichever is surer.
    """
    track = member.track
    if track is None:
        return Certainty.STALE, ()
    read = Paced(track.read_ms, track.before_ms, track.lost_ms or 0, track.timeout_ms).certainty(now_ms)
    reported_ms, reported_id = member.attempted
    reported = Paced(reported_ms, member.attempted_before_ms, track.lost_ms or 0, track.timeout_ms).certainty(now_ms)
    if reported is not Certainty.SURE:
        return read, (member.read_id,)
    return Certainty.SURE, (reported_id, member.read_id) if read is Certainty.SURE else (reported_id,)


def _of_node(node: NodeRecord, event_ms: int, member: Member) -> Paced:
    return Paced(node.read_ms, node.before_ms, event_ms, member.timeout_ms)


def _of_health(health: Health, event_ms: int, member: Member) -> Paced:
    return Paced(health.at_ms, health.before_ms, event_ms, member.timeout_ms)
