"""The state machine of one member's session: what is observed and what time does to it.

Plain values in, plain values out: the loop's policy and an agent without the loop use the same functions. All times are
milliseconds since the epoch. `observe` takes a reading, `pass_time` does what only time does; both give the track after
it and what happened.

Invariants, asserted after each transition:
    - `disconnected_ms` is set exactly while the status is `connection_lost`; `lost_ms` always while it is
      `session_lost`; `reestablished_ms` never while it is.
    - no status began before it was seen (`since_ms <= now`).
    - the session a member has now is not among its past ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from policies.sessions.decision import SessionEvent, Status
from policies.sessions.readings import SessionState
from policies.sessions.settings import DEFAULT_TIMEOUT_MS, monitor_ms

FLAPPING_LOSSES = 3
"""More losses than this within `settle` are flapping."""
_PAST_SESSIONS = 4
_MOST_LOSSES = 16

Events = tuple[SessionEvent, ...]


@dataclass(frozen=True, slots=True)
class Patience:
    """The lengths of time (milliseconds) the state machine depends on, besides T."""

    settle_ms: int
    validity_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A good reading of a session."""

    at_ms: int
    state: SessionState
    session: str | None = None
    timeout_ms: int | None = None


class Track(Struct, array_like=True, frozen=True):
    """What is known of one member's session."""

    status: Status
    since_ms: int
    """When its status began."""
    read_ms: int
    """When it was last read."""
    state: SessionState
    """As last read."""
    session: str | None = None
    past: tuple[str, ...] = ()
    """Sessions it had before; what is read of them says nothing of it now."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    connected_ms: int | None = None
    """When it was last read as connected."""
    disconnected_ms: int | None = None
    """Since when it is disconnected, while its session is not lost."""
    lost_ms: int | None = None
    """When it last lost its session."""
    reestablished_ms: int | None = None
    """When it was established again after that; null until then."""
    losses: tuple[int, ...] = ()
    """When it lost its session, as far as `settle` reaches back from the last loss."""
    unsettled: bool = False
    """Whether it flaps: until its status has stayed the same for `settle`."""

    @property
    def lapse_ms(self) -> int | None:
        """When a disconnected session is lost without a further reading; null for others."""
        return None if self.disconnected_ms is None else self.disconnected_ms + monitor_ms(self.timeout_ms)

    def is_fresh(self, now_ms: int, validity_ms: int) -> bool:
        """Whether its last reading still counts: it is not older than its validity."""
        return now_ms - self.read_ms <= validity_ms


def begin(seen: Seen, patience: Patience) -> tuple[Track, Events]:
    """The track of a member whose session is read for the first time."""
    track = Track(
        Status.ESTABLISHED, seen.at_ms, seen.at_ms, SessionState.CONNECTED, seen.session,
        timeout_ms=seen.timeout_ms or DEFAULT_TIMEOUT_MS,
    )  # fmt: skip
    return observe(track, seen, patience)


def observe(track: Track, seen: Seen, patience: Patience) -> tuple[Track, Events]:
    """What a reading makes of it; one older than the last changes nothing, nor one of a session of the past."""
    if seen.at_ms < track.read_ms or (seen.session is not None and seen.session in track.past):
        return track, ()
    track, before = pass_time(track, seen.at_ms, patience)
    # A reading that arrives after time alone has moved the status on changes it from there.
    moment = Seen(max(seen.at_ms, track.since_ms), seen.state, seen.session, seen.timeout_ms)
    read = replace(
        track,
        read_ms=seen.at_ms,
        state=seen.state,
        timeout_ms=seen.timeout_ms or track.timeout_ms,
        connected_ms=seen.at_ms if seen.state is SessionState.CONNECTED else track.connected_ms,
    )
    after, events = _TRANSITIONS[seen.state](read, moment, patience)
    # A longer wait may have run out by a shorter timeout that this reading brings.
    after, late = pass_time(after, moment.at_ms, patience)
    return after, (*before, *events, *late)


def pass_time(track: Track, now_ms: int, patience: Patience) -> tuple[Track, Events]:
    """What has come by `now_ms` without a further reading; a moment before its status began changes nothing."""
    events: Events = ()
    now_ms = max(now_ms, track.since_ms)
    lapse_ms = track.lapse_ms
    if lapse_ms is not None and lapse_ms <= now_ms and track.is_fresh(lapse_ms, patience.validity_ms):
        # A reading that is younger than the moment it brought about is the first to tell of it.
        track, events = _lost(track, max(lapse_ms, track.since_ms), patience)
    if track.unsettled and now_ms >= track.since_ms + patience.settle_ms:
        track = replace(track, unsettled=False)
    _check(track, now_ms)
    return track, events


def due_ms(track: Track, patience: Patience) -> Iterator[int]:
    """When time alone may change it; some may have passed."""
    if track.lapse_ms is not None:
        yield track.lapse_ms
    if track.unsettled:
        yield track.since_ms + patience.settle_ms
    yield track.read_ms + patience.validity_ms + 1


def _connected(track: Track, seen: Seen, patience: Patience) -> tuple[Track, Events]:
    renewed = seen.session is not None and track.session is not None and seen.session != track.session
    events: Events = ()
    if track.status is Status.CLOSED:
        return (_joined(track, seen), (SessionEvent.JOINED,)) if renewed or seen.session is None else (track, ())
    if renewed and track.status is not Status.SESSION_LOST:
        track, events = _lost(track, seen.at_ms, patience)
    track = _of_session(track, seen.session)
    if track.status is Status.CONNECTION_LOST:
        established = replace(track, status=Status.ESTABLISHED, since_ms=seen.at_ms, disconnected_ms=None)
        return established, (SessionEvent.RECONNECTED,)
    if track.status is Status.SESSION_LOST:
        again = replace(track, status=Status.ESTABLISHED, since_ms=seen.at_ms, reestablished_ms=seen.at_ms)
        return again, (*events, SessionEvent.RECONNECTED, SessionEvent.SESSION_REESTABLISHED)
    return track, events


def _disconnected(track: Track, seen: Seen, _: Patience) -> tuple[Track, Events]:
    if track.status is not Status.ESTABLISHED:
        return track, ()
    lost = replace(track, status=Status.CONNECTION_LOST, since_ms=seen.at_ms, disconnected_ms=seen.at_ms)
    return lost, (SessionEvent.CONNECTION_LOST,)


def _expired(track: Track, seen: Seen, patience: Patience) -> tuple[Track, Events]:
    if track.status in (Status.SESSION_LOST, Status.CLOSED):
        return track, ()
    return _lost(track, seen.at_ms, patience)


def _closed(track: Track, seen: Seen, _: Patience) -> tuple[Track, Events]:
    if track.status is Status.CLOSED:
        return track, ()
    closed = Track(
        Status.CLOSED, seen.at_ms, track.read_ms, seen.state, track.session, track.past, track.timeout_ms,
        track.connected_ms,
    )  # fmt: skip
    return closed, (SessionEvent.CLOSED,)


_TRANSITIONS = {
    SessionState.CONNECTED: _connected,
    SessionState.DISCONNECTED: _disconnected,
    SessionState.EXPIRED: _expired,
    SessionState.CLOSED: _closed,
}


def _lost(track: Track, at_ms: int, patience: Patience) -> tuple[Track, Events]:
    recent = (*(ms for ms in track.losses if ms > at_ms - patience.settle_ms), at_ms)[-_MOST_LOSSES:]
    lost = replace(
        track,
        status=Status.SESSION_LOST,
        since_ms=at_ms,
        disconnected_ms=None,
        lost_ms=at_ms,
        reestablished_ms=None,
        losses=recent,
        unsettled=track.unsettled or (len(recent) > FLAPPING_LOSSES and patience.settle_ms > 0),
    )
    return lost, (SessionEvent.SESSION_LOST,)


def _joined(track: Track, seen: Seen) -> Track:
    fresh = _of_session(track, seen.session)
    return Track(
        Status.ESTABLISHED, seen.at_ms, track.read_ms, seen.state, fresh.session, fresh.past, track.timeout_ms,
        track.connected_ms,
    )  # fmt: skip


def _of_session(track: Track, session: str | None) -> Track:
    """With the session it has now; the one before is of the past."""
    if session is None or session == track.session:
        return track
    past = track.past if track.session is None else (*track.past, track.session)[-_PAST_SESSIONS:]
    return replace(track, session=session, past=past)


def _check(track: Track, now_ms: int) -> None:
    """The invariants of the module's docstring."""
    status = track.status
    assert (track.disconnected_ms is not None) == (status is Status.CONNECTION_LOST), track  # noqa: S101
    assert status is not Status.SESSION_LOST or track.lost_ms is not None, track  # noqa: S101
    assert status is not Status.SESSION_LOST or track.reestablished_ms is None, track  # noqa: S101
    assert track.since_ms <= now_ms, track  # noqa: S101
    assert track.session is None or track.session not in track.past, track  # noqa: S101
