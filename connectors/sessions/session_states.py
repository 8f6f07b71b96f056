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

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from operator import methodcaller
from typing import TypeVar

from connectors.collection import DETAIL_LENGTH, most_telling
from connectors.zookeeper.server_admin import AdminServer, Connection, KeepPath, ServerRole, SessionTable, session_name
from connectors.zookeeper.session import StatusError, describe_zookeeper_error, outcome_of
from policies.observations import Outcome
from policies.sessions.readings import MAX_NAME, MAX_TIMEOUT_MS, SessionState, ZkSession

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


_Found = tuple[SessionState, int | None]
"""The state of a session, and its timeout in milliseconds; None before its first known connection."""


class SessionStates:
    """The states of sessions, from one snapshot to the next."""

    def __init__(self) -> None:
        self._live: dict[int, _SessionHistory] = {}
        self._ended: dict[int, _Found] = {}
        """The sessions that ended in the last snapshot."""
        self._before: EnsembleSnapshot | None = None

    def update(self, snapshot: EnsembleSnapshot) -> None:
        """Process a snapshot. Snapshots come in order of time."""
        self._ended = {}
        for session in [session for session in self._live if session not in snapshot.table.expiries_ms]:
            end = _judge_end(session, self._live[session], snapshot)
            if end is not None:
                self._ended[session] = end, self._live.pop(session).timeout_ms
        began_at = None if self._before is None else self._before.began_at
        for session, expiry_ms in snapshot.table.expiries_ms.items():
            if session not in self._live:
                self._live[session] = _SessionHistory(None, expiry_ms, None, snapshot.ended_at, began_at)
            history = self._live[session]
            if _follow(history, expiry_ms, snapshot.connections.get(session), snapshot):
                history.seen_alive_at, history.alive_after = snapshot.ended_at, began_at
        self._before = snapshot

    def find(self, session: int) -> _Found | None:
        """Return a session by the last snapshot; None for one that ended before, or was never seen."""
        history = self._live.get(session)
        if history is None or self._before is None:
            return self._ended.get(session)
        is_connected = _is_connected(history, self._before)
        return SessionState.CONNECTED if is_connected else SessionState.DISCONNECTED, history.timeout_ms


def _follow(
    history: _SessionHistory, expiry_ms: int, connections: SessionConnections | None, snapshot: EnsembleSnapshot
) -> bool:
    """Update the history of a living session; return whether the snapshot shows a sign of life."""
    if connections is not None:
        # A connection without new packets is no sign of life, even if its server had not answered for a while.
        before = history.connections
        is_alive = history.is_lost or before is None or not connections.received <= before.received
        history.connections = connections
        history.timeout_ms, history.expiry_ms = connections.timeout_ms, expiry_ms
        history.alone_since, history.is_elsewhere, history.is_lost = None, False, False
        return is_alive
    if history.alone_since is None:
        history.alone_since = snapshot.ended_at
    is_early = snapshot.began_at - history.alone_since < _FORWARDING_SECONDS
    is_base = is_early or expiry_ms < history.expiry_ms - _MOVED_MS
    has_moved = not is_base and expiry_ms - history.expiry_ms >= _MOVED_MS
    if is_base or has_moved:
        history.expiry_ms = expiry_ms
    history.is_elsewhere = history.is_elsewhere or has_moved
    history.is_lost = not has_moved and (history.is_lost or snapshot.complete)
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


# Reads all servers of an ensemble in parallel: the leader's sessions, and the connections of each server.

_SLACK_SECONDS = 0.5  # for steps without a limit of their own, such as resolving an address

Found = TypeVar("Found")


class Ensemble:
    """Asks all servers in parallel: the status source of each, by its name. Use it from one thread, and close it."""

    def __init__(
        self, sources: Mapping[str, AdminServer], timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.unread: dict[str, BaseException] = {}
        """The servers with a missing answer in the last snapshot, and the reason."""
        self._sources = dict(sources)
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._workers = ThreadPoolExecutor(len(self._sources), thread_name_prefix="zookeeper status")
        self._asked: dict[str, Future[object]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers of the ensemble."""
        return tuple(self._sources)

    def close(self) -> None:
        """Close all connections. Threads that wait for a silent server end later."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        for source in self._sources.values():
            source.close()

    def snapshot(self, keep: KeepPath) -> EnsembleSnapshot:
        """Read the leader's sessions, and after them the connections, so that each new session has its connection.

        Raises:
            StatusError: no server listed the sessions.
        """
        self.unread = {}
        began_at = self._clock()
        tables = self._ask_all(self._sources, lambda source: _read_table(source, keep))
        leading = [(role.zxid, table) for role, table in tables.values() if table is not None]
        if not leading:
            raise self._explain_no_table({server: role for server, (role, _) in tables.items()})
        # A leader that lost its followers still calls itself leader for some seconds, but its sessions are outdated.
        table = max(leading, key=lambda each: each[0])[1]
        answers = self._ask_all({server: self._sources[server] for server in tables}, methodcaller("connections"))
        return EnsembleSnapshot(began_at, self._clock(), table, _group_connections(answers), complete=not self.unread)

    def _ask_all(self, sources: Mapping[str, AdminServer], ask: Callable[[AdminServer], Found]) -> dict[str, Found]:
        """Return the answers by server; servers without one are added to `unread`."""
        asked: dict[str, Future[Found]] = {}
        for server, source in sources.items():
            if server in self._asked and not self._asked[server].done():
                self.unread[server] = TimeoutError("no answer yet to what it was asked before")
            else:
                asked[server] = self._workers.submit(ask, source)
        self._asked.update(asked)  # type: ignore[arg-type]
        wait(asked.values(), 2 * self._timeout_seconds + _SLACK_SECONDS)
        answers = {}
        for server, future in asked.items():
            error = future.exception() if future.done() else TimeoutError("no answer in time")
            if error is None:
                answers[server] = future.result()
            else:
                self.unread[server] = error
        return answers

    def _explain_no_table(self, roles: Mapping[str, ServerRole]) -> StatusError:
        others = f"asked were {', '.join(f'{server} ({role.mode})' for server, role in roles.items())}" if roles else ""
        if not self.unread:
            what = f"no server leads: are all of them in `servers`? {others}"
            return StatusError(Outcome.ERROR, what[:DETAIL_LENGTH])
        outcome = most_telling([outcome_of(error) for error in self.unread.values()])
        details = [f"{server}: {describe_zookeeper_error(error)}" for server, error in self.unread.items()]
        return StatusError(outcome, "; ".join([*details, *([others] if others else [])])[:DETAIL_LENGTH])


def _read_table(source: AdminServer, keep: KeepPath) -> tuple[ServerRole, SessionTable | None]:
    role = source.role()
    return role, source.sessions(keep) if role.lists_all_sessions else None


def _group_connections(answers: Mapping[str, tuple[Connection, ...]]) -> dict[int, SessionConnections]:
    found: dict[int, SessionConnections] = {}
    for server, connections in answers.items():
        for each in connections:
            known = found.get(each.session)
            received = {(server, each.received)} | (known.received if known else frozenset())
            found[each.session] = SessionConnections(each.timeout_ms, frozenset(received))
    return found


# Maps sessions to members: a registration znode names the member, and its ephemeral owner is the session.

_SESSION = re.compile(r"0x[0-9a-f]{1,16}")


@dataclass(slots=True)
class _Member:
    role: str
    session: int
    state: SessionState = SessionState.EXPIRED
    timeout_ms: int | None = None
    ended_at: float | None = None


class MemberTracker:
    """The members of a cluster and their sessions, from one snapshot to the next.

    A member whose znode is gone keeps its last session while that lives, and for `forget_after_seconds` after its end,
    unless the member registers again. `trees` has the role of each tree of registrations, by its path with the chroot;
    if a name occurs in several trees, the first tree counts.
    """

    def __init__(self, cluster: str, trees: Mapping[str, str], forget_after_seconds: float) -> None:
        self._cluster = cluster
        self._trees = {path: (number, role) for number, (path, role) in enumerate(trees.items())}
        self._forget_after_seconds = forget_after_seconds
        self._states = SessionStates()
        self._members: dict[str, _Member] = {}

    def is_registration(self, path: str) -> bool:
        """Whether an ephemeral node is a member's registration, by its path with the chroot."""
        return path.rpartition("/")[0] in self._trees and len(path) <= MAX_NAME

    def recall(self, last: ZkSession) -> None:
        """Add a member from before this start, unless its reading is not that of a member's session."""
        is_known = last.member in self._members or last.cluster != self._cluster
        if not is_known and last.member and last.state and _SESSION.fullmatch(last.session or ""):
            ended = SessionState.CLOSED if last.state is SessionState.CLOSED else SessionState.EXPIRED
            self._members[last.member] = _Member(last.role, int(last.session or "", 16), ended, last.timeout_ms)

    def update(self, snapshot: EnsembleSnapshot) -> tuple[ZkSession, ...]:
        """Process a snapshot, and return the readings of all members' sessions."""
        self._states.update(snapshot)
        self._members.update(self._find_registrations(snapshot.table))
        for name, member in list(self._members.items()):
            member.state, member.timeout_ms = self._states.find(member.session) or (member.state, member.timeout_ms)
            if member.session in snapshot.table.expiries_ms:
                member.ended_at = None
            elif member.ended_at is None:
                member.ended_at = snapshot.began_at
            elif snapshot.began_at - member.ended_at > self._forget_after_seconds:
                del self._members[name]
        return tuple(self._make_reading(name, member) for name, member in self._members.items())

    def _make_reading(self, name: str, member: _Member) -> ZkSession:
        return ZkSession(
            cluster=self._cluster,
            member=name,
            role=member.role,
            session=session_name(member.session),
            state=member.state,
            timeout_ms=None if member.timeout_ms is None else min(member.timeout_ms, MAX_TIMEOUT_MS),
        )

    def _find_registrations(self, table: SessionTable) -> dict[str, _Member]:
        found: dict[str, tuple[int, _Member]] = {}
        for session, paths in table.ephemerals.items():
            for path in filter(self.is_registration, paths):
                tree, _, name = path.rpartition("/")
                rank, role = self._trees[tree]
                if name not in found or rank < found[name][0]:
                    found[name] = rank, _Member(role, session)
        return {name: member for name, (_, member) in found.items()}
