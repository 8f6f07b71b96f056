"""Members whose process contradicts their session: dead, alive without a registration, or not listed.

A member is brought down only if readings are certain (`Certainty`): recent, taken after the event, and two in a row.
Plain values in, plain values out. All times are milliseconds since the epoch.
"""

from enum import Enum

from msgspec import Struct

from policies.confirmation import MOST_CHANGES
from policies.observations import Outcome
from policies.sessions.decisions import SessionReason, SessionStatus
from policies.sessions.readings import SessionState
from policies.sessions.settings import IN_A_ROW_MS, SHORTEST_INTERVAL_MS, SessionsSettings
from policies.sessions.state import NEVER, Member, NodeRecord
from policies.units import millis_of

INTERVALS = 2
"""A reading is fresh for this many of its own intervals."""


class Certainty(Enum):
    """How certain the readings behind a shutdown or restart are, least certain first."""

    STALE = "stale"
    """The last reading is too old: what it showed may be over."""
    ONCE = "once"
    """Only one reading since the event shows it; the next may contradict it."""
    SURE = "sure"
    """The last two readings show it. They are in a row, both were taken after the event, and the last is fresh."""


class ReadingPair(Struct, frozen=True, gc=False):
    """The last two readings of one thing, which agree."""

    read_ms: int
    before_ms: int
    """The time of the reading before; `NEVER` if there was none."""
    event_ms: int
    """Both readings must have been taken after this event."""
    timeout_ms: int
    """T of the member; no older reading is fresh."""

    @property
    def interval_ms(self) -> int:
        """The time between the two readings, at most T."""
        gap_ms = self.timeout_ms if self.before_ms == NEVER else self.read_ms - self.before_ms
        return min(max(gap_ms, SHORTEST_INTERVAL_MS), self.timeout_ms)

    def judge_certainty(self, now_ms: int) -> Certainty:
        """Return how certain these readings are as of now."""
        if now_ms - self.read_ms >= min(INTERVALS * self.interval_ms, self.timeout_ms):
            return Certainty.STALE
        is_in_a_row = self.before_ms != NEVER and self.read_ms - self.before_ms <= IN_A_ROW_MS
        return Certainty.SURE if is_in_a_row and self.before_ms >= self.event_ms else Certainty.ONCE


class Absence(Struct, frozen=True, gc=False):
    """A member whose health endpoint answers healthy is not registered, or not listed."""

    gone_ms: int
    """Since when its present process is absent."""
    due_ms: int
    """When it has been absent for longer than any member that came back by itself; may be past."""
    certainty: Certainty
    read_ms: int
    """The time of the oldest of the last readings that show it."""


class Liveness(Struct, frozen=True, gc=False):
    """The state of a member's process, by its health endpoint and its registration."""

    is_dead: bool
    """Its process has refused connections since it was last connected, and its session has expired, or it has none."""
    unregistered: Absence | None
    """Set if its health endpoint answers healthy and it has no registration; None if that is not known."""
    unlisted: Absence | None
    """Set if it has a session again and is registered, but the cluster has not listed it since."""
    is_registered: bool
    """Whether a valid reading shows its registration."""
    is_no_zombie: bool
    """Whether readings show that it is no zombie: it is registered, unwell by its own answer, dead, or closed."""
    is_unstable: bool
    """Whether its registration comes and goes, or collectors disagree about it. Then nothing is concluded from it."""
    is_restless: bool
    """Whether its process dies and starts in turn, or collectors disagree about it. Then it is not declared dead."""


def judge_liveness(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Liveness:
    """Return the state of a member's process; `node` is its registration by the last reading."""
    oldest_ms = now_ms - millis_of(settings.validity)
    is_restless = _is_restless(member, node, settings)
    is_dead = _is_dead(member, node, oldest_ms) and not is_restless
    is_registered = node is not None and node.exists and node.read_ms >= oldest_ms
    health = member.health
    is_closed = member.track is not None and member.track.status is SessionStatus.CLOSED
    refuses = health is not None and health.has_refused_twice()
    is_unwell = health is not None and health.at_ms >= oldest_ms and (refuses or health.healthy is False)
    is_unstable = node is not None and is_registration_unstable(node, settings)
    return Liveness(
        is_dead,
        None if is_unstable else _find_unregistered(member, node, now_ms, settings),
        _find_unlisted(member, node, now_ms, settings) if is_registered and not is_unstable else None,
        is_registered=is_registered,
        is_no_zombie=is_registered or is_closed or is_dead or is_unwell or is_unstable,
        is_unstable=is_unstable,
        is_restless=is_restless,
    )


def is_registration_unstable(node: NodeRecord, settings: SessionsSettings) -> bool:
    """Whether a registration came or went more than `MOST_CHANGES` times, and was not read as stable for `settle`."""
    return len(node.changes) > MOST_CHANGES and node.read_ms < node.changes[-1] + millis_of(settings.settle)


def _is_restless(member: Member, node: NodeRecord | None, settings: SessionsSettings) -> bool:
    """Whether a member without a session started more than `MOST_CHANGES` times, and not since `settle`."""
    health = member.health
    is_lost = member.track is not None and member.track.is_lost
    if health is None or not (is_lost or has_no_protection(member, node)):
        return False
    return len(health.starts) > MOST_CHANGES and health.at_ms < health.starts[-1] + millis_of(settings.settle)


def has_no_protection(member: Member, node: NodeRecord | None) -> bool:
    """Whether a member is registered by a node that outlives every session, and is known to have no session."""
    is_lasting, track = node is not None and node.exists and not node.ephemeral, member.track
    return is_lasting and (track is None or track.status in (SessionStatus.CLOSED, SessionStatus.SESSION_LOST))


def _is_dead(member: Member, node: NodeRecord | None, oldest_ms: int) -> bool:
    track, health, last = member.track, member.health, member.last_published
    if has_no_protection(member, node):
        return health is not None and health.at_ms >= oldest_ms and health.has_refused_twice()
    if track is None or health is None or not (track.is_lost and track.state is SessionState.EXPIRED):
        return False
    is_published = last is not None and last.reason is SessionReason.UNREACHABLE and last.lost_ms == track.lost_ms
    if not is_published and health.at_ms < oldest_ms:
        return False
    return health.has_refused_twice(track.connected_ms or 0)


def _find_unregistered(
    member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings
) -> Absence | None:
    health, oldest_ms = member.health, now_ms - millis_of(settings.validity)
    if node is None or node.exists or health is None or not health.healthy or health.outcome != Outcome.OK.value:
        return None
    is_closed = member.track is not None and member.track.status is SessionStatus.CLOSED
    if is_closed or min(node.read_ms, health.at_ms) < oldest_ms or health.at_ms < node.changed_ms:
        return None
    # A process that was down or without a session in the meantime could not register itself earlier.
    reestablished_ms = member.track.reestablished_ms if member.track else None
    since_ms = max(node.changed_ms, health.down_ms, health.started_ms, reestablished_ms or 0)
    readings = (
        ReadingPair(node.read_ms, node.before_ms, node.changed_ms, member.timeout_ms),
        ReadingPair(health.at_ms, health.before_ms, max(node.changed_ms, health.down_ms + 1), member.timeout_ms),
    )
    return _join_absence(since_ms, since_ms + settings.zombie_after_ms, readings, now_ms)


def _find_unlisted(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Absence | None:
    """Lists of brokers lag, sometimes by minutes, so a member has as long to be listed as a zombie to register."""
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
        ReadingPair(track.read_ms, track.before_ms, track.reestablished_ms, member.timeout_ms),
        ReadingPair(node.read_ms, node.before_ms, back_ms, member.timeout_ms),
        ReadingPair(health.at_ms, health.before_ms, since_ms, member.timeout_ms),
    )
    return _join_absence(since_ms, since_ms + settings.zombie_after_ms, readings, now_ms)


def _join_absence(gone_ms: int, due_ms: int, readings: tuple[ReadingPair, ...], now_ms: int) -> Absence:
    found = {each.judge_certainty(now_ms) for each in readings}
    least = next(c for c in Certainty if c in found)
    return Absence(gone_ms, due_ms, least, min(each.read_ms for each in readings))


def process_begun_ms(member: Member) -> int:
    """Since when the member's present process has been without a session: since the loss, or since its start."""
    lost_ms = (member.track.lost_ms if member.track else None) or 0
    return lost_ms if member.health is None else max(lost_ms, member.health.started_ms)


def judge_loss(member: Member, now_ms: int) -> tuple[Certainty, tuple[str, ...]]:
    """Return how certain it is that a member is without a session, and the ids of the readings that show it.

    These are the readings of its session, or its own reports of failed attempts, whichever are more certain. A member
    with an established session has neither.
    """
    track = member.track
    if track is None or track.status is SessionStatus.ESTABLISHED:
        return Certainty.STALE, ()
    begun_ms, timeout_ms, (reported_ms, reported_id) = process_begun_ms(member), track.timeout_ms, member.attempted
    read = ReadingPair(track.read_ms, track.before_ms, begun_ms, timeout_ms).judge_certainty(now_ms)
    reports = ReadingPair(reported_ms, member.attempted_before_ms, begun_ms, timeout_ms)
    if reports.judge_certainty(now_ms) is not Certainty.SURE:
        return read, (member.read_id,)
    return Certainty.SURE, (reported_id, member.read_id) if read is Certainty.SURE else (reported_id,)
