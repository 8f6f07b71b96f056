"""Tracks one member's own session: feeds kazoo's states to the state machine of the sessions policy."""

from collections.abc import Callable
from dataclasses import dataclass

from kazoo.protocol.states import KazooState, KeeperState

from connectors.sessions.agent.contact import NegotiatedTimeout
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.fold.session_machine import SessionReading, Timeouts, begin, observe, pass_time
from policies.sessions.readings import SessionState
from policies.sessions.state import SessionTrack

# What was observed here counts for ever, and flapping is for those to judge who see the fleet.
_TIMEOUTS = Timeouts(settle_ms=0, validity_ms=10**15)


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of state, as kazoo's listener sees it: taken down there, because it may be another one soon."""

    state: str
    keeper_state: str
    session: str | None
    at: float


class SessionTracker:
    """The session of the member. For the agent's thread; `status`, `session` and `connected` may be read by any.

    Args:
        timeout: T.
        clock: seconds.
    """

    def __init__(self, timeout: NegotiatedTimeout, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._track: SessionTrack | None = None
        self.connected = False

    @property
    def status(self) -> SessionStatus | None:
        """None until there was a session."""
        return None if self._track is None else self._track.status

    @property
    def session(self) -> str | None:
        """The session it has, or had last."""
        return None if self._track is None else self._track.session

    @property
    def lost_at(self) -> float | None:
        """Since when its session is lost, while there is no other; None when it is not lost."""
        track = self._track
        if track is None or track.status is not SessionStatus.SESSION_LOST or track.lost_ms is None:
            return None
        return track.lost_ms / 1000

    @property
    def due(self) -> float | None:
        """When time alone changes it."""
        lapse_ms = None if self._track is None else self._track.lapse_ms
        return None if lapse_ms is None else lapse_ms / 1000

    def observe(self, observed: StateChange) -> tuple[SessionEvent, ...]:
        """Take in a change, and tell what it means."""
        state = _state(observed)
        self.connected = state is SessionState.CONNECTED
        seen = SessionReading(_ms(observed.at), state, observed.session if self.connected else None, self._timeout.ms)
        if self._track is None:
            if not self.connected:
                return ()
            self._track, events = begin(seen, _TIMEOUTS)
        else:
            self._track, events = observe(self._track, seen, _TIMEOUTS)
        return events

    def pass_time(self) -> tuple[SessionEvent, ...]:
        """What time alone has brought."""
        if self._track is None:
            return ()
        self._track, events = pass_time(self._track, max(_ms(self._clock()), self._track.read_ms), _TIMEOUTS)
        return events


def _state(observed: StateChange) -> SessionState:
    if observed.state == KazooState.CONNECTED:
        return SessionState.CONNECTED
    if observed.state == KazooState.SUSPENDED:
        return SessionState.DISCONNECTED
    return SessionState.CLOSED if observed.keeper_state == KeeperState.CLOSED else SessionState.EXPIRED


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
