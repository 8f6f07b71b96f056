"""Tracks a member's own sessions: to the ownership store, and to a separate configuration store."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from connectors.sessions.agent.contact import NegotiatedTimeout
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.fold.session_machine import SessionReading, Timeouts, begin, observe, pass_time
from policies.sessions.readings import SessionState
from policies.sessions.state import SessionTrack

# A member's own observations never become stale. The loop judges flapping, because it sees the whole fleet.
_TIMEOUTS = Timeouts(settle_ms=0, validity_ms=10**15)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of state, captured in kazoo's listener, because the state may change again soon."""

    state: str
    keeper_state: str
    session: str | None
    at: float


class SessionTracker:
    """Feeds kazoo's states to the policy's state machine. Any thread may read `status`, `session` and `connected`."""

    def __init__(self, timeout: NegotiatedTimeout, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._track: SessionTrack | None = None
        self.connected = False

    @property
    def status(self) -> SessionStatus | None:
        """None before the first session."""
        return None if self._track is None else self._track.status

    @property
    def session(self) -> str | None:
        """The present or last session."""
        return None if self._track is None else self._track.session

    @property
    def lost_at(self) -> float | None:
        """Time of the session's loss; None if it is not lost."""
        track = self._track
        if track is None or track.status is not SessionStatus.SESSION_LOST or track.lost_ms is None:
            return None
        return track.lost_ms / 1000

    @property
    def due(self) -> float | None:
        """The next time at which the state changes without an event."""
        lapse_ms = None if self._track is None else self._track.lapse_ms
        return None if lapse_ms is None else lapse_ms / 1000

    def observe(self, observed: StateChange) -> tuple[SessionEvent, ...]:
        """Process a change of state, and return its events."""
        state = _parse_state(observed)
        self.connected = state is SessionState.CONNECTED
        seen = SessionReading(
            _to_ms(observed.at), state, observed.session if self.connected else None, self._timeout.ms
        )
        if self._track is None:
            if not self.connected:
                return ()
            self._track, events = begin(seen, _TIMEOUTS)
        else:
            self._track, events = observe(self._track, seen, _TIMEOUTS)
        return events

    def pass_time(self) -> tuple[SessionEvent, ...]:
        """Process the passing of time, and return its events."""
        if self._track is None:
            return ()
        self._track, events = pass_time(self._track, max(_to_ms(self._clock()), self._track.read_ms), _TIMEOUTS)
        return events


def _parse_state(observed: StateChange) -> SessionState:
    if observed.state == KazooState.CONNECTED:
        return SessionState.CONNECTED
    if observed.state == KazooState.SUSPENDED:
        return SessionState.DISCONNECTED
    return SessionState.CLOSED if observed.keeper_state == KeeperState.CLOSED else SessionState.EXPIRED


def _to_ms(seconds: float) -> int:
    return int(seconds * 1000)


class ConfigurationStore:
    """Tracks the session to a separate configuration store.

    A member owns no nodes there, so the loss of this session loses no ownership. But changes may be missed until the
    connection is back.

    Args:
        client: of kazoo; the application starts and stops it.
        on_return: called from kazoo's thread when the connection is back; must not block.
    """

    def __init__(self, client: KazooClient, on_return: Callable[[], None]) -> None:
        self._client = client
        self._on_return = on_return
        self._is_away = False

    def start(self) -> None:
        """Begin. A client that has not connected yet does not count as disconnected."""
        self._client.add_listener(self._on_state)

    def close(self) -> None:
        """Stop listening."""
        self._client.remove_listener(self._on_state)

    def _on_state(self, state: str) -> None:
        if state != KazooState.CONNECTED:
            self._is_away = True
            _log.info("configuration store", state=state)
        elif self._is_away:
            self._is_away = False
            _log.info("configuration store", state=state)
            self._on_return()
