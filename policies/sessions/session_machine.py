"""Folds readings about one member: its session, its health endpoint, and its own reports during a recovery."""

from msgspec.structs import replace

from policies.confirmation import Doubt, follow
from policies.observations import Observation, Outcome
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import MemberHealth, Recovery, RecoveryAction, RecoveryResult, SessionState, ZkSession
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, SHORTEST_INTERVAL_MS, SessionsSettings
from policies.sessions.state import NEVER, Health, Member, SessionTrack

# The state machine of one member's ZooKeeper session: `observe` applies a reading, `pass_time` the passing of time.
# Both return the new track and the events.
#
# Invariants, asserted after each transition:
#     - While the status is `session_lost`, `lost_ms` is set and `reestablished_ms` is not.
#     - The present status began in the past (`since_ms <= now`).
#     - The session a member has now is not among its past ones.

FLAPPING_LOSSES = 3
"""More losses of the session than this within `settle` are flapping."""
_PAST_SESSIONS = 4
MOST_LOSSES = 16

Events = tuple[SessionEvent, ...]


def observe(
    track: SessionTrack | None, seen: ZkSession, read_ms: int, settings: SessionsSettings
) -> tuple[SessionTrack, Events]:
    """Return the track after a good reading. One older than the last, or of a past session, changes nothing.

    If two readings in a row show a past session connected, the reading of the present one was wrong.
    """
    state = seen.state or SessionState.CONNECTED
    if track is None:
        timeout_ms = seen.timeout_ms or DEFAULT_TIMEOUT_MS
        track = SessionTrack(
            SessionStatus.ESTABLISHED, read_ms, NEVER, SessionState.CONNECTED, seen.session, timeout_ms=timeout_ms
        )
    if read_ms < track.read_ms:
        return track, ()
    if seen.session is not None and seen.session in track.past:
        if state is not SessionState.CONNECTED or track.denied_ms == read_ms:
            return track, ()
        if track.denied_ms == NEVER:
            return replace(track, denied_ms=read_ms), ()
        track = replace(track, past=tuple(session for session in track.past if session != seen.session))
    if track.status is SessionStatus.CONNECTION_LOST and not track.is_fresh(read_ms, settings.validity_ms):
        # The connection may have come back and gone again in the gap, so the disconnection counts from this reading.
        track = replace(track, since_ms=read_ms)
    track, before = pass_time(track, read_ms, settings)
    doubt = _doubt(track, seen, read_ms, settings)
    read = replace(
        track,
        read_ms=read_ms,
        # Two readings of one moment count as one.
        before_ms=track.read_ms if read_ms > track.read_ms else track.before_ms,
        state=state,
        timeout_ms=seen.timeout_ms or track.timeout_ms,
        connected_ms=read_ms if state is SessionState.CONNECTED else track.connected_ms,
        denied_ms=NEVER,
        doubt=doubt,
        unsettled=track.unsettled or (doubt is not None and doubt.is_in_turn),
    )
    # If time alone has already changed the status after this reading was taken, the reading applies from that change.
    at_ms = max(read_ms, track.since_ms)
    if state is SessionState.CONNECTED:
        after, events = _connect(read, seen.session, at_ms, settings, is_repeated=track.state is state)
    else:
        after, events = _end(read, state, at_ms, settings)
    # The reading may bring a shorter timeout, by which the session is lost already.
    after, late = pass_time(after, at_ms, settings)
    return after, (*before, *events, *late)


def _doubt(track: SessionTrack, seen: ZkSession, read_ms: int, settings: SessionsSettings) -> Doubt | None:
    """Return the doubt about whether it is connected; a new session ends it, since it contradicts no reading before."""
    if seen.state is SessionState.CONNECTED and seen.session not in (None, track.session):
        return None
    before, now = (str(state is SessionState.CONNECTED) for state in (track.state, seen.state))
    return follow(track.doubt, before, now, read_ms, settings.settle_ms)


def pass_time(track: SessionTrack, now_ms: int, settings: SessionsSettings) -> tuple[SessionTrack, Events]:
    """Return the track as of `now_ms` if no further reading comes. A time before its status began changes nothing."""
    events: Events = ()
    now_ms = max(now_ms, track.since_ms)
    lapse_ms = track.lapse_ms
    # The session lapses only while its last reading is valid: after that, nothing is known of the connection.
    if lapse_ms is not None and lapse_ms <= now_ms and track.is_fresh(lapse_ms, settings.validity_ms):
        track, events = _lose(track, lapse_ms, settings)
    # Only a reading shows that the session was stable; silence does not.
    if track.unsettled and min(now_ms, track.read_ms) >= track.since_ms + settings.settle_ms:
        track = replace(track, unsettled=False)
    _check(track, now_ms)
    return track, events


def _connect(
    track: SessionTrack, session: str | None, at_ms: int, settings: SessionsSettings, *, is_repeated: bool
) -> tuple[SessionTrack, Events]:
    is_new = session is not None and track.session is not None and session != track.session
    past = (*track.past, track.session or "")[-_PAST_SESSIONS:] if is_new else track.past
    events: Events = ()
    if track.status is SessionStatus.CLOSED:
        # A session that was closed cannot come back: one reading of it is old, two contradict the one that it closed.
        if is_new or session is None or is_repeated:
            track = replace(track, session=session or track.session, past=past)
            return _restart(track, SessionStatus.ESTABLISHED, at_ms), (SessionEvent.JOINED,)
        return track, ()
    if is_new and track.status is not SessionStatus.SESSION_LOST:
        track, events = _lose(track, at_ms, settings)
    track = replace(track, session=session or track.session, past=past)
    if track.status is SessionStatus.CONNECTION_LOST:
        return replace(track, status=SessionStatus.ESTABLISHED, since_ms=at_ms), (SessionEvent.RECONNECTED,)
    if track.status is SessionStatus.SESSION_LOST:
        again = replace(track, status=SessionStatus.ESTABLISHED, since_ms=at_ms, reestablished_ms=at_ms)
        return again, (*events, SessionEvent.RECONNECTED, SessionEvent.SESSION_REESTABLISHED)
    return track, events


def _end(
    track: SessionTrack, state: SessionState, at_ms: int, settings: SessionsSettings
) -> tuple[SessionTrack, Events]:
    """Apply a reading that shows no connection."""
    status = track.status
    if state is SessionState.CLOSED and status is not SessionStatus.CLOSED:
        return _restart(track, SessionStatus.CLOSED, at_ms), (SessionEvent.CLOSED,)
    if state is SessionState.EXPIRED and status not in (SessionStatus.SESSION_LOST, SessionStatus.CLOSED):
        return _lose(track, at_ms, settings)
    if state is SessionState.DISCONNECTED and status is SessionStatus.ESTABLISHED:
        return replace(track, status=SessionStatus.CONNECTION_LOST, since_ms=at_ms), (SessionEvent.CONNECTION_LOST,)
    return track, ()


def _lose(track: SessionTrack, at_ms: int, settings: SessionsSettings) -> tuple[SessionTrack, Events]:
    recent = (*(ms for ms in track.losses if ms > at_ms - settings.settle_ms), at_ms)[-MOST_LOSSES:]
    gap_ms = track.timeout_ms if track.before_ms == NEVER else track.read_ms - track.before_ms
    interval_ms = min(max(gap_ms, SHORTEST_INTERVAL_MS), track.timeout_ms)
    lost = replace(
        track, status=SessionStatus.SESSION_LOST, since_ms=at_ms, lost_ms=at_ms, reestablished_ms=None,
        losses=recent, unsettled=track.unsettled or len(recent) > FLAPPING_LOSSES, interval_ms=interval_ms,
    )  # fmt: skip
    return lost, (SessionEvent.SESSION_LOST,)


def _restart(track: SessionTrack, status: SessionStatus, at_ms: int) -> SessionTrack:
    """Return a track without losses: the member has ended its session in order, or has joined again after that."""
    return SessionTrack(
        status, at_ms, track.read_ms, track.state, track.session, track.past, track.timeout_ms,
        track.connected_ms, before_ms=track.before_ms, doubt=track.doubt,
        unsettled=track.doubt is not None and track.doubt.is_in_turn,
    )  # fmt: skip


def _check(track: SessionTrack, now_ms: int) -> None:
    """Assert the invariants above."""
    assert not track.is_lost or (track.lost_ms is not None and track.reestablished_ms is None), track  # noqa: S101
    assert track.since_ms <= now_ms, track  # noqa: S101
    assert track.session is None or track.session not in track.past, track  # noqa: S101


MOST_EVENTS = 8
_STARTS_RECOVERY_AGAIN = frozenset(
    {SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED, SessionEvent.CLOSED, SessionEvent.JOINED}
)
_NEVER_READ = Health(NEVER, "", "", healthy=None, listed=None)


def fold_session(
    member: Member, seen: Observation, reading: ZkSession, settings: SessionsSettings
) -> tuple[Member, Events]:
    """Return the member after a reading of its session, and the events; a failed reading counts as an attempt only."""
    at_ms = seen.at_ms
    if (at_ms, seen.id) <= (member.tried_ms, member.tried_id):
        return member, ()
    member = replace(member, tried_ms=at_ms, tried_id=seen.id, outcome=reading.outcome.value, seen_ms=at_ms)
    if not reading.is_good:
        return member, ()
    before = member.track
    track, events = observe(before, reading, at_ms, settings)
    if track is before:
        return member, ()
    # A collector takes a silent session for connected until T/2 after its last sign of life.
    is_same = before is not None and before.session == track.session and track.state is SessionState.CONNECTED
    if is_same and at_ms >= member.died_ms + track.timeout_ms // 2:
        member = replace(member, died_ms=NEVER)
    return add_events(replace(member, track=track, role=reading.role, read_id=seen.id), events), events


def add_events(member: Member, events: Events) -> Member:
    """Record the events. A recovery starts from the beginning after a loss, and after an event that ends one."""
    for event in events:
        if event in _STARTS_RECOVERY_AGAIN:
            recovering = event is SessionEvent.SESSION_REESTABLISHED
            member = replace(member, attempts=0, fleet_wide=False, recovering=recovering, awaited_ms=None)
    return replace(member, events=(*member.events, *events)[-MOST_EVENTS:]) if events else member


def fold_health(member: Member, seen: Observation, reading: MemberHealth, settings: SessionsSettings) -> Member:
    """Return the member after a reading of its health endpoint.

    After a gap longer than `validity`, the process may have been down in between, so it counts as down until now.
    """
    last, at_ms = member.health or _NEVER_READ, seen.at_ms
    if (at_ms, seen.id) <= (last.at_ms, last.id):
        return member
    is_well = reading.outcome is Outcome.OK and reading.healthy is True
    has_gap = last.at_ms != NEVER and at_ms - last.at_ms > settings.validity_ms
    was_unwell = last is not _NEVER_READ and not (last.outcome == Outcome.OK.value and last.healthy)
    refused, refuses = (outcome == Outcome.UNREACHABLE.value for outcome in (last.outcome, reading.outcome.value))
    has_started = refused and not refuses
    unlisted_ms = at_ms if last.unlisted_ms == NEVER or has_gap else last.unlisted_ms
    health = Health(
        at_ms, seen.id, reading.outcome.value, reading.healthy, reading.listed,
        down_ms=last.down_ms if is_well and not has_gap else at_ms,
        before_ms=last.at_ms if at_ms > last.at_ms else last.before_ms,
        answered_ms=last.answered_ms if refuses else at_ms,
        listed_ms=at_ms if reading.listed else last.listed_ms,
        unlisted_ms=unlisted_ms if reading.listed is False else NEVER,
        started_ms=at_ms if has_started else last.started_ms,
        recovered_ms=at_ms if is_well and was_unwell else last.recovered_ms,
        doubt=follow(last.doubt, str(refused), str(refuses), at_ms, settings.settle_ms) if last.outcome else None,
    )  # fmt: skip
    attempts = 0 if has_started else member.attempts  # the attempts were those of the process before
    died_ms = at_ms if member.died_ms == NEVER and health.has_refused_twice() else member.died_ms
    return replace(member, health=health, attempts=attempts, seen_ms=max(member.seen_ms, at_ms), died_ms=died_ms)


def fold_report(member: Member, seen: Observation, reading: Recovery) -> Member:
    """Return the member after a report of its own; `Claims` handles reports about bundles."""
    at_ms, track = seen.at_ms, member.track
    member = replace(member, seen_ms=max(member.seen_ms, at_ms))
    match reading.action, reading.result:
        case RecoveryAction.REPUBLISH_LOAD_DATA, RecoveryResult.OK:
            return replace(member, republished_ms=max(member.republished_ms, at_ms))
        case RecoveryAction.RECONNECT, RecoveryResult.FAILED if track is not None and track.is_lost:
            # A report from before this loss belongs to the loss before.
            is_new = (at_ms, seen.id) > member.attempted and seen.id != member.attempted[1]
            if is_new and at_ms >= track.since_ms:
                attempts = max(member.attempts + 1, reading.attempt)
                return replace(member, attempts=attempts, attempted=(at_ms, seen.id))
    return member
