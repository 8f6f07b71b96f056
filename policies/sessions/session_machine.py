"""Folds readings about one member: its session, its health endpoint, and its own reports during a recovery.

Each reading changes one field of the member's read model. A reading that is older than the last one changes nothing.
"""

from msgspec import Struct
from msgspec.structs import replace

from policies.confirmation import Doubt, follow
from policies.observations import Observation, Outcome
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import MemberHealth, Recovery, RecoveryAction, RecoveryResult, SessionState, ZkSession
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, SHORTEST_INTERVAL_MS
from policies.sessions.state import NEVER, Health, Member, SessionTrack

# The state machine of one member's ZooKeeper session: transitions by observation and by time.
#
# Plain values in, plain values out: the policy and the exporter use the same functions. All times are milliseconds
# since the epoch. `observe` applies a reading, `pass_time` the passing of time; both return the new track and the
# events.
#
# Invariants, asserted after each transition:
#     - `disconnected_ms` is set if and only if the status is `connection_lost`. While the status is `session_lost`,
#       `lost_ms` is set and `reestablished_ms` is not.
#     - The present status began in the past (`since_ms <= now`).
#     - The session a member has now is not among its past ones.

FLAPPING_LOSSES = 3
"""More losses of the session than this within `settle` are flapping."""
_PAST_SESSIONS = 4
MOST_LOSSES = 16

Events = tuple[SessionEvent, ...]


class Timeouts(Struct, frozen=True, gc=False):
    """The timeouts of the state machine (milliseconds), apart from the session's own T."""

    settle_ms: int
    validity_ms: int


class SessionReading(Struct, frozen=True, gc=False):
    """A good reading of a session."""

    at_ms: int
    state: SessionState
    session: str | None = None
    timeout_ms: int | None = None
    is_repeated: bool = False
    """Whether the reading before it had the same state."""


def begin(seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """Return the track after the first reading of a member's session."""
    track = SessionTrack(
        SessionStatus.ESTABLISHED, seen.at_ms, seen.at_ms, SessionState.CONNECTED, seen.session,
        timeout_ms=seen.timeout_ms or DEFAULT_TIMEOUT_MS,
    )  # fmt: skip
    track, events = observe(track, seen, timeouts)
    return replace(track, before_ms=NEVER), events


def observe(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """Return the track after a reading. A reading older than the last, or of a past session, changes nothing.

    If two readings in a row show a past session connected, the reading of the present one was wrong.
    """
    if seen.at_ms < track.read_ms:
        return track, ()
    if seen.session is not None and seen.session in track.past:
        if seen.state is not SessionState.CONNECTED or track.denied_ms == seen.at_ms:
            return track, ()
        if track.denied_ms == NEVER:
            return replace(track, denied_ms=seen.at_ms), ()
        track = replace(track, past=tuple(session for session in track.past if session != seen.session))
    if track.disconnected_ms is not None and not track.is_fresh(seen.at_ms, timeouts.validity_ms):
        # The connection may have come back and gone again in the gap, so the disconnection counts from this reading.
        track = replace(track, since_ms=max(seen.at_ms, track.since_ms), disconnected_ms=seen.at_ms)
    track, before = pass_time(track, seen.at_ms, timeouts)
    # If time alone has already changed the status after this reading was taken, the reading applies from that change.
    at_ms, is_repeated = max(seen.at_ms, track.since_ms), track.state is seen.state
    moment = SessionReading(at_ms, seen.state, seen.session, seen.timeout_ms, is_repeated)
    read = replace(
        track,
        read_ms=seen.at_ms,
        # Two readings of one moment count as one.
        before_ms=track.read_ms if seen.at_ms > track.read_ms else track.before_ms,
        state=seen.state,
        timeout_ms=seen.timeout_ms or track.timeout_ms,
        connected_ms=seen.at_ms if seen.state is SessionState.CONNECTED else track.connected_ms,
        denied_ms=NEVER,
        doubt=_doubt(track, seen, timeouts),
    )
    if read.doubt is not None and read.doubt.is_in_turn:
        read = replace(read, unsettled=True)
    after, events = _TRANSITIONS[seen.state](read, moment, timeouts)
    # The reading may bring a shorter timeout, by which the session is lost already.
    after, late = pass_time(after, moment.at_ms, timeouts)
    return after, (*before, *events, *late)


def _doubt(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> Doubt | None:
    """Return the doubt about whether it is connected; a new session ends it, since it contradicts no reading before."""
    if seen.state is SessionState.CONNECTED and seen.session not in (None, track.session):
        return None
    before, now = (str(state is SessionState.CONNECTED) for state in (track.state, seen.state))
    return follow(track.doubt, before, now, seen.at_ms, timeouts.settle_ms)


def pass_time(track: SessionTrack, now_ms: int, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """Return the track as of `now_ms` if no further reading comes. A time before its status began changes nothing."""
    events: Events = ()
    now_ms = max(now_ms, track.since_ms)
    lapse_ms = track.lapse_ms
    # The session lapses only while its last reading is valid: after that, nothing is known of the connection.
    if lapse_ms is not None and lapse_ms <= now_ms and track.is_fresh(lapse_ms, timeouts.validity_ms):
        track, events = _lose(track, max(lapse_ms, track.since_ms), timeouts)
    # Only a reading shows that the session was stable; silence does not.
    if track.unsettled and min(now_ms, track.read_ms) >= track.since_ms + timeouts.settle_ms:
        track = replace(track, unsettled=False)
    _check(track, now_ms)
    return track, events


def _connect(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    is_new = seen.session is not None and track.session is not None and seen.session != track.session
    events: Events = ()
    if track.status is SessionStatus.CLOSED:
        # A session that was closed cannot come back: one reading of it is old, two contradict the one that it closed.
        if is_new or seen.session is None or seen.is_repeated:
            joined = _restart(_replace_session(track, seen.session), SessionStatus.ESTABLISHED, seen)
            return joined, (SessionEvent.JOINED,)
        return track, ()
    if is_new and track.status is not SessionStatus.SESSION_LOST:
        track, events = _lose(track, seen.at_ms, timeouts)
    track = _replace_session(track, seen.session)
    if track.status is SessionStatus.CONNECTION_LOST:
        established = replace(track, status=SessionStatus.ESTABLISHED, since_ms=seen.at_ms, disconnected_ms=None)
        return established, (SessionEvent.RECONNECTED,)
    if track.status is SessionStatus.SESSION_LOST:
        again = replace(track, status=SessionStatus.ESTABLISHED, since_ms=seen.at_ms, reestablished_ms=seen.at_ms)
        return again, (*events, SessionEvent.RECONNECTED, SessionEvent.SESSION_REESTABLISHED)
    return track, events


def _disconnect(track: SessionTrack, seen: SessionReading, _timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is not SessionStatus.ESTABLISHED:
        return track, ()
    lost = replace(track, status=SessionStatus.CONNECTION_LOST, since_ms=seen.at_ms, disconnected_ms=seen.at_ms)
    return lost, (SessionEvent.CONNECTION_LOST,)


def _expire(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status in (SessionStatus.SESSION_LOST, SessionStatus.CLOSED):
        return track, ()
    return _lose(track, seen.at_ms, timeouts)


def _close(track: SessionTrack, seen: SessionReading, _timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is SessionStatus.CLOSED:
        return track, ()
    return _restart(track, SessionStatus.CLOSED, seen), (SessionEvent.CLOSED,)


_TRANSITIONS = {
    SessionState.CONNECTED: _connect,
    SessionState.DISCONNECTED: _disconnect,
    SessionState.EXPIRED: _expire,
    SessionState.CLOSED: _close,
}


def _lose(track: SessionTrack, at_ms: int, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    recent = (*(ms for ms in track.losses if ms > at_ms - timeouts.settle_ms), at_ms)[-MOST_LOSSES:]
    gap_ms = track.timeout_ms if track.before_ms == NEVER else track.read_ms - track.before_ms
    lost = replace(
        track,
        status=SessionStatus.SESSION_LOST,
        since_ms=at_ms,
        disconnected_ms=None,
        lost_ms=at_ms,
        reestablished_ms=None,
        losses=recent,
        unsettled=track.unsettled or (len(recent) > FLAPPING_LOSSES and timeouts.settle_ms > 0),
        interval_ms=min(max(gap_ms, SHORTEST_INTERVAL_MS), track.timeout_ms),
    )
    return lost, (SessionEvent.SESSION_LOST,)


def _restart(track: SessionTrack, status: SessionStatus, seen: SessionReading) -> SessionTrack:
    """Return a track without losses: the member has ended its session in order, or has joined again after that."""
    return SessionTrack(
        status, seen.at_ms, track.read_ms, seen.state, track.session, track.past, track.timeout_ms,
        track.connected_ms, before_ms=track.before_ms, doubt=track.doubt,
        unsettled=track.doubt is not None and track.doubt.is_in_turn,
    )  # fmt: skip


def _replace_session(track: SessionTrack, session: str | None) -> SessionTrack:
    if session is None or session == track.session:
        return track
    past = track.past if track.session is None else (*track.past, track.session)[-_PAST_SESSIONS:]
    return replace(track, session=session, past=past)


def _check(track: SessionTrack, now_ms: int) -> None:
    """Assert the invariants in the module's docstring."""
    status = track.status
    assert (track.disconnected_ms is not None) == (status is SessionStatus.CONNECTION_LOST), track  # noqa: S101
    assert status is not SessionStatus.SESSION_LOST or track.lost_ms is not None, track  # noqa: S101
    assert status is not SessionStatus.SESSION_LOST or track.reestablished_ms is None, track  # noqa: S101
    assert track.since_ms <= now_ms, track  # noqa: S101
    assert track.session is None or track.session not in track.past, track  # noqa: S101


MOST_EVENTS = 8
_STARTS_RECOVERY_AGAIN = frozenset(
    {SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED, SessionEvent.CLOSED, SessionEvent.JOINED}
)
_NEVER_READ = Health(NEVER, "", "", healthy=None, listed=None)


def fold_session(member: Member, seen: Observation, reading: ZkSession, timeouts: Timeouts) -> tuple[Member, Events]:
    """Return the member after a reading of its session, and the events; a failed reading counts as an attempt only."""
    if (seen.at_ms, seen.id) <= (member.tried_ms, member.tried_id):
        return member, ()
    outcome = reading.outcome.value
    member = replace(member, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome, seen_ms=seen.at_ms)
    if reading.state is None or not reading.is_good:
        return member, ()
    read, before = SessionReading(seen.at_ms, reading.state, reading.session, reading.timeout_ms), member.track
    track, events = begin(read, timeouts) if before is None else observe(before, read, timeouts)
    if track is before:
        return member, ()
    # A collector takes a silent session for connected until T/2 after its last sign of life.
    is_same = before is not None and before.session == track.session and track.state is SessionState.CONNECTED
    if member.died_ms != NEVER and is_same and seen.at_ms >= member.died_ms + track.timeout_ms // 2:
        member = replace(member, died_ms=NEVER)
    return _add_events(replace(member, track=track, role=reading.role, read_id=seen.id), events), events


def pass_member_time(member: Member, to_ms: int, timeouts: Timeouts) -> tuple[Member, Events]:
    """Return the member as of `to_ms` if no further reading comes, and the events."""
    track = member.track
    if track is None:
        return member, ()
    after, events = pass_time(track, to_ms, timeouts)
    return (member, ()) if after is track else (_add_events(replace(member, track=after), events), events)


def _add_events(member: Member, events: Events) -> Member:
    """Record the events. A recovery starts from the beginning after a loss, and after an event that ends one."""
    for event in events:
        if event in _STARTS_RECOVERY_AGAIN:
            recovering = event is SessionEvent.SESSION_REESTABLISHED
            member = replace(member, attempts=0, fleet_wide=False, recovering=recovering, awaited_ms=None)
    return replace(member, events=(*member.events, *events)[-MOST_EVENTS:]) if events else member


def fold_health(member: Member, seen: Observation, reading: MemberHealth, timeouts: Timeouts) -> Member:
    """Return the member after a reading of its health endpoint.

    After a gap longer than `validity`, the process may have been down in between, so it counts as down until now.
    """
    last, at_ms = member.health or _NEVER_READ, seen.at_ms
    if (at_ms, seen.id) <= (last.at_ms, last.id):
        return member
    is_well = reading.outcome is Outcome.OK and reading.healthy is True
    has_gap = last.at_ms != NEVER and at_ms - last.at_ms > timeouts.validity_ms
    unlisted_ms = at_ms if last.unlisted_ms == NEVER or has_gap else last.unlisted_ms
    # States of older versions have no `answered_ms` and no `listed_ms`, so the last reading fills them in.
    has_answered = last.outcome not in ("", Outcome.UNREACHABLE.value)
    answered_ms = last.at_ms if has_answered else last.answered_ms
    was_unwell = last is not _NEVER_READ and not (last.outcome == Outcome.OK.value and last.healthy)
    has_started = last.outcome == Outcome.UNREACHABLE.value and reading.outcome is not Outcome.UNREACHABLE
    listed_ms = last.at_ms if last.listed else last.listed_ms
    refused, refuses = (outcome == Outcome.UNREACHABLE.value for outcome in (last.outcome, reading.outcome.value))
    doubt = follow(last.doubt, str(refused), str(refuses), at_ms, timeouts.settle_ms) if last.outcome else None
    health = Health(
        at_ms,
        seen.id,
        reading.outcome.value,
        reading.healthy,
        reading.listed,
        down_ms=last.down_ms if is_well and not has_gap else at_ms,
        before_ms=last.at_ms if at_ms > last.at_ms else last.before_ms,
        answered_ms=answered_ms if reading.outcome is Outcome.UNREACHABLE else at_ms,
        listed_ms=at_ms if reading.listed else listed_ms,
        unlisted_ms=unlisted_ms if reading.listed is False else NEVER,
        started_ms=at_ms if has_started else last.started_ms,
        recovered_ms=at_ms if is_well and was_unwell else last.recovered_ms,
        doubt=doubt,
    )
    attempts = 0 if has_started else member.attempts  # the attempts were those of the process before
    died_ms = at_ms if member.died_ms == NEVER and health.has_refused_twice() else member.died_ms
    return replace(member, health=health, attempts=attempts, seen_ms=max(member.seen_ms, at_ms), died_ms=died_ms)


def fold_report(member: Member, seen: Observation, reading: Recovery) -> Member:
    """Return the member after a report of its own; `claims` handles reports about bundles."""
    member = replace(member, seen_ms=max(member.seen_ms, seen.at_ms))
    match reading.action, reading.result:
        case RecoveryAction.RECONNECT, RecoveryResult.FAILED:
            return _count_attempt(member, seen, reading.attempt)
        case RecoveryAction.REPUBLISH_LOAD_DATA, RecoveryResult.OK:
            return replace(member, republished_ms=max(member.republished_ms, seen.at_ms))
    return member


def _count_attempt(member: Member, seen: Observation, attempt: int) -> Member:
    track = member.track
    # A report from before this loss belongs to the loss before.
    is_about_loss = track is not None and track.is_lost and seen.at_ms >= track.since_ms
    if not is_about_loss or (seen.at_ms, seen.id) <= member.attempted or seen.id == member.attempted[1]:
        return member
    attempts, before_ms = max(member.attempts + 1, attempt), member.attempted[0]
    return replace(member, attempts=attempts, attempted=(seen.at_ms, seen.id), attempted_before_ms=before_ms)
