"""The states of other clients' sessions, inferred from repeated snapshots of an ensemble. No I/O, no clock.

A session lives while the leader's table lists it. T is its timeout. While it lives:

- It is connected if a server lists a connection of it and has received a packet from its client within T/2. Clients
  ping every T/3. A frozen process keeps its connection, but its server counts no more packets.
- A session without a known connection is disconnected, with two exceptions. If its expiry still moves, it is connected
  to a server that is not asked. If a server did not answer just now, the session may be connected there. So it counts
  as connected for 5T/6, in which its expiry would have moved.

When the table does not list it any more, it was closed if its timeout cannot have passed, and it has expired otherwise.
A session does not expire before T has passed since its last sign of life. The sign came after the snapshot before the
one that showed it. So a session that another client ends with its password counts as closed, and a session with an
unknown timeout counts as expired.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.zookeeper.server_status import SessionTable
from policies.sessions.readings import SessionState

_ASSUMED_TIMEOUT_SECONDS = 30.0
"""Pulsar's default, for a session without a known connection, because only connections show the timeout."""

_SILENT_AFTER = 1 / 2
_DOUBT_ENDS_AFTER = 5 / 6
"""Fractions of T. An expiry moves with every ping, but in steps of a tick, which is at most T/2."""

_MOVED_MS = 1500
"""Smallest move of an expiry that counts."""

_FORWARDING_SECONDS = 2.5
"""Followers forward signs of life to the leader in intervals, so the sign that moves an expiry may be this old."""


@dataclass(frozen=True, slots=True)
class SessionConnections:
    """A session's connections: one, or two for a moment while it moves to another server."""

    timeout_ms: int
    received: frozenset[tuple[str, int]]
    """(server, number of packets received from the client): a new pair is a sign of life."""


@dataclass(frozen=True, slots=True)
class EnsembleSnapshot:
    """The state of the whole ensemble, read once."""

    began_at: float
    """Seconds on the collector's clock: the data is not older."""
    ended_at: float
    """The data is not newer."""
    table: SessionTable
    connections: Mapping[int, SessionConnections]
    """The connected sessions."""
    complete: bool
    """Whether every server listed its connections."""


@dataclass(slots=True)
class _SessionHistory:
    timeout_ms: int | None
    expiry_ms: int
    connections: SessionConnections | None
    """The last known ones."""
    seen_alive_at: float
    """End of the snapshot with its last sign of life: that sign is not later."""
    alive_after: float | None
    """Beginning of the snapshot before: that sign is not earlier. None if there was none."""
    alone_since: float | None = None
    """Time since which no server lists a connection; None while one does."""
    is_elsewhere: bool = False
    """It shows signs of life, but no server that is asked lists a connection."""
    is_lost: bool = False
    """It had no connection in a complete snapshot, and has shown no sign of life since."""

    @property
    def timeout_seconds(self) -> float:
        return _ASSUMED_TIMEOUT_SECONDS if self.timeout_ms is None else self.timeout_ms / 1000


class SessionStates:
    """The states of sessions, from one snapshot to the next."""

    def __init__(self) -> None:
        self._live: dict[int, _SessionHistory] = {}
        self._ended: dict[int, tuple[SessionState, int | None]] = {}
        self._before: EnsembleSnapshot | None = None

    def update(self, snapshot: EnsembleSnapshot) -> None:
        """Process a snapshot. Snapshots come in order of time."""
        for session in [session for session in self._live if session not in snapshot.table.expiries_ms]:
            end = _judge_end(session, self._live[session], snapshot)
            if end is not None:
                self._ended[session] = (end, self._live.pop(session).timeout_ms)
        for session, expiry_ms in snapshot.table.expiries_ms.items():
            connections = snapshot.connections.get(session)
            if session in self._live:
                self._continue(self._live[session], expiry_ms, connections, snapshot)
            else:
                self._ended.pop(session, None)
                self._live[session] = self._begin(expiry_ms, connections, snapshot)
        self._before = snapshot

    def state(self, session: int) -> SessionState:
        """Return its state in the last snapshot; an unknown session has expired."""
        history = self._live.get(session)
        if history is not None and self._before is not None:
            return SessionState.CONNECTED if _is_connected(history, self._before) else SessionState.DISCONNECTED
        return self._ended.get(session, (SessionState.EXPIRED, None))[0]

    def timeout_ms(self, session: int) -> int | None:
        """Return its timeout; None before its first known connection."""
        history = self._live.get(session)
        return self._ended.get(session, (None, None))[1] if history is None else history.timeout_ms

    def recall(self, session: int, state: SessionState, timeout_ms: int | None) -> None:
        """Add the last state of a session from before this start. It is ignored while the session lives."""
        ended = SessionState.CLOSED if state is SessionState.CLOSED else SessionState.EXPIRED
        self._ended.setdefault(session, (ended, timeout_ms))

    def keep_ended(self, sessions: set[int]) -> None:
        """Drop the ends of all sessions but these."""
        self._ended = {session: end for session, end in self._ended.items() if session in sessions}

    def _before_began_at(self) -> float | None:
        return None if self._before is None else self._before.began_at

    def _begin(
        self, expiry_ms: int, connections: SessionConnections | None, snapshot: EnsembleSnapshot
    ) -> _SessionHistory:
        history = _SessionHistory(None, expiry_ms, connections, snapshot.ended_at, self._before_began_at())
        if connections is None:
            history.alone_since, history.is_lost = snapshot.ended_at, snapshot.complete
        else:
            history.timeout_ms = connections.timeout_ms
        return history

    def _continue(
        self,
        history: _SessionHistory,
        expiry_ms: int,
        connections: SessionConnections | None,
        snapshot: EnsembleSnapshot,
    ) -> None:
        if connections is not None:
            # A connection without new packets is no sign of life, even if its server had not answered for a while.
            before = history.connections
            is_alive = history.is_lost or before is None or not connections.received <= before.received
            history.connections = connections
            history.timeout_ms, history.expiry_ms = connections.timeout_ms, expiry_ms
            history.alone_since, history.is_elsewhere, history.is_lost = None, False, False
        else:
            is_alive = self._has_moved_alone(history, expiry_ms, snapshot)
            history.is_elsewhere = history.is_elsewhere or is_alive
            history.is_lost = not is_alive and (history.is_lost or snapshot.complete)
        if is_alive:
            history.seen_alive_at, history.alive_after = snapshot.ended_at, self._before_began_at()

    def _has_moved_alone(self, history: _SessionHistory, expiry_ms: int, snapshot: EnsembleSnapshot) -> bool:
        if history.alone_since is None:
            history.alone_since = snapshot.ended_at
        if snapshot.began_at - history.alone_since < _FORWARDING_SECONDS or expiry_ms < history.expiry_ms - _MOVED_MS:
            history.expiry_ms = expiry_ms
            return False
        has_moved = expiry_ms - history.expiry_ms >= _MOVED_MS
        if has_moved:
            history.expiry_ms = expiry_ms
        return has_moved


def _is_connected(history: _SessionHistory, snapshot: EnsembleSnapshot) -> bool:
    silent_seconds = snapshot.began_at - history.seen_alive_at
    if history.alone_since is None:
        return silent_seconds <= history.timeout_seconds * _SILENT_AFTER
    in_doubt = history.is_elsewhere or not (snapshot.complete or history.is_lost)
    return in_doubt and silent_seconds <= history.timeout_seconds * _DOUBT_ENDS_AFTER


def _judge_end(session: int, history: _SessionHistory, snapshot: EnsembleSnapshot) -> SessionState | None:
    """Return how a session that the table does not list has ended; None if it has not.

    A server moves a living session from one expiry to the next, and may list it under neither for a moment. So it has
    not ended while it is connected. Nor has it ended while its timeout cannot have passed and it still has nodes,
    because a close deletes them.
    """
    if session in snapshot.connections:
        return None
    if history.alive_after is None or history.timeout_ms is None:
        return SessionState.EXPIRED
    if snapshot.ended_at >= history.alive_after + history.timeout_seconds:
        return SessionState.EXPIRED
    return None if session in snapshot.table.ephemerals else SessionState.CLOSED
