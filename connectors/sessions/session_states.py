"""What can be known of other clients' sessions from outside, from repeated readings of an ensemble. No I/O, no clock.

A session lives while the leader's table has it. While it lives:

- It is connected when some server has it among its connections and something came from its client within T/2 (T: its
  timeout). Clients ping every T/3. A frozen process keeps its connection, but its server counts no more packets.
- A session without a known connection is disconnected, with two exceptions. If its expiry still moves, it is connected
  to a server that we do not ask. If some server could not be asked just now, it has the benefit of the doubt for 5T/6,
  in which its expiry would have moved if it were connected there.

When it is gone from the table, it was closed if its time cannot have been up, and expired otherwise. A session does not
expire before T has passed since its last sign of life, and that sign came after the reading that preceded the one which
showed it. So a session that is ended from elsewhere with its password counts as closed, and one whose timeout is
unknown counts as expired.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.zookeeper.server_status import SessionTable
from policies.sessions.readings import SessionState

_ASSUMED_TIMEOUT_SECONDS = 30.0
"""Pulsar's own default, for a session that was never seen connected: only connections tell their timeout."""

_SILENT_AFTER = 1 / 2
_DOUBT_ENDS_AFTER = 5 / 6
"""Shares of T. An expiry moves with every ping, but in steps of a tick, which is T/2 at most."""

_MOVED_MS = 1500
"""Dates in four-letter words are a second off at times; a moved expiry is more than that."""

_FORWARDING_SECONDS = 2.5
"""Followers hand signs of life on to the leader only now and then: what moves an expiry may be as old as this."""


@dataclass(frozen=True, slots=True)
class SessionConnections:
    """A session as the servers have it that it is connected to: one, or two for a moment while it moves."""

    timeout_ms: int
    received: frozenset[tuple[str, int]]
    """Each server with its count of packets from the client: one that was not there before is a sign of life."""


@dataclass(frozen=True, slots=True)
class EnsembleSnapshot:
    """One look at the whole ensemble."""

    began_at: float
    """Seconds on the collector's clock; what was seen is not older."""
    ended_at: float
    """And not newer."""
    table: SessionTable
    connections: Mapping[int, SessionConnections]
    """By session; those that are connected to some server."""
    complete: bool
    """Whether every server told who is connected to it."""


@dataclass(slots=True)
class _SessionHistory:
    timeout_ms: int | None
    expiry_ms: int
    connections: SessionConnections | None
    """As last told."""
    seen_alive_at: float
    """The end of the look that saw its last sign of life: that sign is not later."""
    alive_after: float | None
    """The beginning of the look before: that sign is not earlier. None when there was none before."""
    alone_since: float | None = None
    """Since when no server has told of a connection; None while one does."""
    is_elsewhere: bool = False
    """It shows signs of life, but on no server that we ask."""
    is_lost: bool = False
    """It had no connection when all servers were asked, and has shown no sign of life since."""

    @property
    def timeout_seconds(self) -> float:
        return _ASSUMED_TIMEOUT_SECONDS if self.timeout_ms is None else self.timeout_ms / 1000


class SessionStates:
    """The states of sessions, from one look to the next."""

    def __init__(self) -> None:
        self._live: dict[int, _SessionHistory] = {}
        self._ended: dict[int, tuple[SessionState, int | None]] = {}
        self._before: EnsembleSnapshot | None = None

    def update(self, snapshot: EnsembleSnapshot) -> None:
        """Take in what was seen. Looks come in order of time."""
        for session in [session for session in self._live if session not in snapshot.table.expiries_ms]:
            end = _end_of(session, self._live[session], snapshot)
            if end is not None:
                self._ended[session] = (end, self._live.pop(session).timeout_ms)
        for session, expiry_ms in snapshot.table.expiries_ms.items():
            connections = snapshot.connections.get(session)
            if session in self._live:
                self._go_on(self._live[session], expiry_ms, connections, snapshot)
            else:
                self._ended.pop(session, None)
                self._live[session] = self._begin(expiry_ms, connections, snapshot)
        self._before = snapshot

    def state(self, session: int) -> SessionState:
        """Its state as of the last look; one that was never seen has expired."""
        history = self._live.get(session)
        if history is not None and self._before is not None:
            return SessionState.CONNECTED if _is_connected(history, self._before) else SessionState.DISCONNECTED
        return self._ended.get(session, (SessionState.EXPIRED, None))[0]

    def timeout_ms(self, session: int) -> int | None:
        """Its timeout; None as long as it was not seen connected."""
        history = self._live.get(session)
        return self._ended.get(session, (None, None))[1] if history is None else history.timeout_ms

    def recall(self, session: int, state: SessionState, timeout_ms: int | None) -> None:
        """What was last told of a session before this start: while it lives that does not count."""
        ended = SessionState.CLOSED if state is SessionState.CLOSED else SessionState.EXPIRED
        self._ended.setdefault(session, (ended, timeout_ms))

    def forget_ended_but(self, sessions: set[int]) -> None:
        """Keep how a session ended for these only."""
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

    def _go_on(
        self,
        history: _SessionHistory,
        expiry_ms: int,
        connections: SessionConnections | None,
        snapshot: EnsembleSnapshot,
    ) -> None:
        if connections is not None:
            # A server that could not be asked for a while has the same old connection afterwards: that says nothing.
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


def _end_of(session: int, history: _SessionHistory, snapshot: EnsembleSnapshot) -> SessionState | None:
    """How a session that the table lacks has ended; None: it has not.

    A server moves a session that shows signs of life from one expiry to the next, and may list it under neither for a
    moment. While it is connected it has not ended, nor while its time cannot be up and it has nodes: who closes a
    session has its nodes deleted.
    """
    if session in snapshot.connections:
        return None
    if history.alive_after is None or history.timeout_ms is None:
        return SessionState.EXPIRED
    if snapshot.ended_at >= history.alive_after + history.timeout_seconds:
        return SessionState.EXPIRED
    return None if session in snapshot.table.ephemerals else SessionState.CLOSED
