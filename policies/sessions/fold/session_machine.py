"""The state machine of one member's ZooKeeper session: transitions by observation and by time.

Plain values in, plain values out: the policy and the exporter use the same functions. All times are milliseconds since
the epoch. `observe` applies a reading, `pass_time` the passing of time; both return the new track and the events.

Invariants, asserted after each transition:
    - `disconnected_ms` is set if and only if the status is `connection_lost`. While the status is `session_lost`,
      `lost_ms` is set and `reestablished_ms` is not.
    - The present status began in the past (`since_ms <= now`).
    - The session a member has now is not among its past ones.
"""

from msgspec import Struct
from msgspec.structs import replace

from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import SessionState
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, SHORTEST_INTERVAL_MS
from policies.sessions.state import NEVER, SessionTrack

FLAPPING_LOSSES = 3
"""More losses than this of the session, or of its connection, within `settle` are flapping."""
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
    )
    after, events = _TRANSITIONS[seen.state](read, moment, timeouts)
    # The reading may bring a shorter timeout, by which the session is lost already.
    after, late = pass_time(after, moment.at_ms, timeouts)
    return after, (*before, *events, *late)


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
            reopened = () if is_new else add_recent(track.reopened, seen.at_ms, timeouts)
            joined = _restart(_replace_session(track, seen.session), SessionStatus.ESTABLISHED, seen, reopened)
            return replace(joined, unsettled=_is_flapping(reopened, timeouts)), (SessionEvent.JOINED,)
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


def _disconnect(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is not SessionStatus.ESTABLISHED:
        return track, ()
    cuts = add_recent(track.cuts, seen.at_ms, timeouts)
    lost = replace(
        track,
        status=SessionStatus.CONNECTION_LOST,
        since_ms=seen.at_ms,
        disconnected_ms=seen.at_ms,
        cuts=cuts,
        unsettled=track.unsettled or _is_flapping(cuts, timeouts),
    )
    return lost, (SessionEvent.CONNECTION_LOST,)


def _expire(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status in (SessionStatus.SESSION_LOST, SessionStatus.CLOSED):
        return track, ()
    return _lose(track, seen.at_ms, timeouts)


def _close(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is SessionStatus.CLOSED:
        return track, ()
    closed = _restart(track, SessionStatus.CLOSED, seen, track.reopened)
    is_flapping = track.unsettled and _is_flapping(track.reopened, timeouts)
    return replace(closed, unsettled=is_flapping), (SessionEvent.CLOSED,)


_TRANSITIONS = {
    SessionState.CONNECTED: _connect,
    SessionState.DISCONNECTED: _disconnect,
    SessionState.EXPIRED: _expire,
    SessionState.CLOSED: _close,
}


def _lose(track: SessionTrack, at_ms: int, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    recent = add_recent(track.losses, at_ms, timeouts)
    gap_ms = track.timeout_ms if track.before_ms == NEVER else track.read_ms - track.before_ms
    lost = replace(
        track,
        status=SessionStatus.SESSION_LOST,
        since_ms=at_ms,
        disconnected_ms=None,
        lost_ms=at_ms,
        reestablished_ms=None,
        losses=recent,
        unsettled=track.unsettled or _is_flapping(recent, timeouts),
        interval_ms=min(max(gap_ms, SHORTEST_INTERVAL_MS), track.timeout_ms),
    )
    return lost, (SessionEvent.SESSION_LOST,)


def add_recent(before: tuple[int, ...], at_ms: int, timeouts: Timeouts) -> tuple[int, ...]:
    """Append an instant to those within `settle` before it, and keep the last `MOST_LOSSES`."""
    return (*(ms for ms in before if ms > at_ms - timeouts.settle_ms), at_ms)[-MOST_LOSSES:]


def _is_flapping(losses: tuple[int, ...], timeouts: Timeouts) -> bool:
    return len(losses) > FLAPPING_LOSSES and timeouts.settle_ms > 0


def _restart(
    track: SessionTrack, status: SessionStatus, seen: SessionReading, reopened: tuple[int, ...]
) -> SessionTrack:
    """Return a track without losses: the member has ended its session in order, or has joined again after that."""
    return SessionTrack(
        status, seen.at_ms, track.read_ms, seen.state, track.session, track.past, track.timeout_ms,
        track.connected_ms, before_ms=track.before_ms, reopened=reopened,
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
