"""The state machine of one member's ZooKeeper session: transitions by observation and by time.

Plain values in, plain values out: the policy, the exporter and the ownership agent use the same functions. All times
are milliseconds since the epoch. `observe` takes a reading, `pass_time` applies the passing of time; both return the
new track and the events that happened.

Invariants, asserted after each transition:
    - `disconnected_ms` is set exactly while the status is `connection_lost`; `lost_ms` always while it is
      `session_lost`; `reestablished_ms` never while it is.
    - no status began before it was seen (`since_ms <= now`).
    - the session a member has now is not among its past ones.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import SessionState
from policies.sessions.settings import DEFAULT_TIMEOUT_MS
from policies.sessions.state import NEVER, SessionTrack

FLAPPING_LOSSES = 3
"""More losses than this within `settle` are flapping."""
_PAST_SESSIONS = 4
_MOST_LOSSES = 16

Events = tuple[SessionEvent, ...]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The lengths of time (milliseconds) the state machine depends on, besides T."""

    settle_ms: int
    validity_ms: int


@dataclass(frozen=True, slots=True)
class SessionReading:
    """A good reading of a session."""

    at_ms: int
    state: SessionState
    session: str | None = None
    timeout_ms: int | None = None


def begin(seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """The track of a member whose session is read for the first time."""
    track = SessionTrack(
        SessionStatus.ESTABLISHED, seen.at_ms, seen.at_ms, SessionState.CONNECTED, seen.session,
        timeout_ms=seen.timeout_ms or DEFAULT_TIMEOUT_MS,
    )  # fmt: skip
    track, events = observe(track, seen, timeouts)
    return replace(track, before_ms=NEVER), events


def observe(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """What a reading makes of it; one older than the last changes nothing, nor one of a session of the past."""
    if seen.at_ms < track.read_ms or (seen.session is not None and seen.session in track.past):
        return track, ()
    track, before = pass_time(_after_a_gap(track, seen, timeouts), seen.at_ms, timeouts)
    # A reading that arrives after time alone has moved the status on changes it from there.
    moment = SessionReading(max(seen.at_ms, track.since_ms), seen.state, seen.session, seen.timeout_ms)
    read = replace(
        track,
        read_ms=seen.at_ms,
        # Two of one moment are one look.
        before_ms=track.read_ms if seen.at_ms > track.read_ms else track.before_ms,
        state=seen.state,
        timeout_ms=seen.timeout_ms or track.timeout_ms,
        connected_ms=seen.at_ms if seen.state is SessionState.CONNECTED else track.connected_ms,
    )
    after, events = _TRANSITIONS[seen.state](read, moment, timeouts)
    # A longer wait may have run out by a shorter timeout that this reading brings.
    after, late = pass_time(after, moment.at_ms, timeouts)
    return after, (*before, *events, *late)


def pass_time(track: SessionTrack, now_ms: int, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    """What has come by `now_ms` without a further reading; a moment before its status began changes nothing."""
    events: Events = ()
    now_ms = max(now_ms, track.since_ms)
    lapse_ms = track.lapse_ms
    if lapse_ms is not None and lapse_ms <= now_ms and track.is_fresh(lapse_ms, timeouts.validity_ms):
        # A reading that is younger than the moment it brought about is the first to tell of it.
        track, events = _lost(track, max(lapse_ms, track.since_ms), timeouts)
    # That it was stable all the while takes a reading: none at all is no sign of it.
    if track.unsettled and min(now_ms, track.read_ms) >= track.since_ms + timeouts.settle_ms:
        track = replace(track, unsettled=False)
    _check(track, now_ms)
    return track, events


def _connected(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    renewed = seen.session is not None and track.session is not None and seen.session != track.session
    events: Events = ()
    if track.status is SessionStatus.CLOSED:
        return (_joined(track, seen), (SessionEvent.JOINED,)) if renewed or seen.session is None else (track, ())
    if renewed and track.status is not SessionStatus.SESSION_LOST:
        track, events = _lost(track, seen.at_ms, timeouts)
    track = _of_session(track, seen.session)
    if track.status is SessionStatus.CONNECTION_LOST:
        established = replace(track, status=SessionStatus.ESTABLISHED, since_ms=seen.at_ms, disconnected_ms=None)
        return established, (SessionEvent.RECONNECTED,)
    if track.status is SessionStatus.SESSION_LOST:
        again = replace(track, status=SessionStatus.ESTABLISHED, since_ms=seen.at_ms, reestablished_ms=seen.at_ms)
        return again, (*events, SessionEvent.RECONNECTED, SessionEvent.SESSION_REESTABLISHED)
    return track, events


def _disconnected(track: SessionTrack, seen: SessionReading, _: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is not SessionStatus.ESTABLISHED:
        return track, ()
    lost = replace(track, status=SessionStatus.CONNECTION_LOST, since_ms=seen.at_ms, disconnected_ms=seen.at_ms)
    return lost, (SessionEvent.CONNECTION_LOST,)


def _expired(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status in (SessionStatus.SESSION_LOST, SessionStatus.CLOSED):
        return track, ()
    return _lost(track, seen.at_ms, timeouts)


def _closed(track: SessionTrack, seen: SessionReading, _: Timeouts) -> tuple[SessionTrack, Events]:
    if track.status is SessionStatus.CLOSED:
        return track, ()
    closed = SessionTrack(
        SessionStatus.CLOSED, seen.at_ms, track.read_ms, seen.state, track.session, track.past, track.timeout_ms,
        track.connected_ms, before_ms=track.before_ms,
    )  # fmt: skip
    return closed, (SessionEvent.CLOSED,)


_TRANSITIONS = {
    SessionState.CONNECTED: _connected,
    SessionState.DISCONNECTED: _disconnected,
    SessionState.EXPIRED: _expired,
    SessionState.CLOSED: _closed,
}


def _lost(track: SessionTrack, at_ms: int, timeouts: Timeouts) -> tuple[SessionTrack, Events]:
    recent = (*(ms for ms in track.losses if ms > at_ms - timeouts.settle_ms), at_ms)[-_MOST_LOSSES:]
    lost = replace(
        track,
        status=SessionStatus.SESSION_LOST,
        since_ms=at_ms,
        disconnected_ms=None,
        lost_ms=at_ms,
        reestablished_ms=None,
        losses=recent,
        unsettled=track.unsettled or (len(recent) > FLAPPING_LOSSES and timeouts.settle_ms > 0),
    )
    return lost, (SessionEvent.SESSION_LOST,)


def _joined(track: SessionTrack, seen: SessionReading) -> SessionTrack:
    fresh = _of_session(track, seen.session)
    return SessionTrack(
        SessionStatus.ESTABLISHED, seen.at_ms, track.read_ms, seen.state, fresh.session, fresh.past, track.timeout_ms,
        track.connected_ms, before_ms=track.before_ms,
    )  # fmt: skip


def _after_a_gap(track: SessionTrack, seen: SessionReading, timeouts: Timeouts) -> SessionTrack:
    """Nobody knows since when a connection is lost that was last read as lost before a gap: it is from now on."""
    has_gap = not track.is_fresh(seen.at_ms, timeouts.validity_ms)
    if track.disconnected_ms is None or not has_gap:
        return track
    return replace(track, since_ms=max(seen.at_ms, track.since_ms), disconnected_ms=seen.at_ms)


def _of_session(track: SessionTrack, session: str | None) -> SessionTrack:
    """With the session it has now; the one before is of the past."""
    if session is None or session == track.session:
        return track
    past = track.past if track.session is None else (*track.past, track.session)[-_PAST_SESSIONS:]
    return replace(track, session=session, past=past)


def _check(track: SessionTrack, now_ms: int) -> None:
    """The invariants of the module's docstring."""
    status = track.status
    assert (track.disconnected_ms is not None) == (status is SessionStatus.CONNECTION_LOST), track  # noqa: S101
    assert status is not SessionStatus.SESSION_LOST or track.lost_ms is not None, track  # noqa: S101
    assert status is not SessionStatus.SESSION_LOST or track.reestablished_ms is None, track  # noqa: S101
    assert track.since_ms <= now_ms, track  # noqa: S101
    assert track.session is None or track.session not in track.past, track  # noqa: S101
