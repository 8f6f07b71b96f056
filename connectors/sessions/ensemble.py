"""Reads all servers of an ensemble in parallel: the leader's sessions, and the connections of each server."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from connectors.collection.read_errors import DETAIL_LENGTH, most_telling
from connectors.sessions.session_states import EnsembleSnapshot, SessionConnections
from connectors.zookeeper.server_status import (
    Connection,
    KeepPath,
    ServerRole,
    SessionTable,
    StatusError,
    StatusSource,
    detail_of,
    outcome_of,
)
from policies.observations import Outcome

_SLACK_SECONDS = 0.5  # for steps without a limit of their own, such as resolving an address

Found = TypeVar("Found")


class Ensemble:
    """Asks all servers in parallel. Use it from one thread, and close it.

    Args:
        sources: the status of each server, by `host:port`.
    """

    def __init__(
        self,
        sources: Mapping[str, StatusSource],
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
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

        Args:
            keep: selects ephemeral nodes by path.

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
        answers = self._ask_all(
            {server: self._sources[server] for server in tables}, lambda source: source.connections()
        )
        return EnsembleSnapshot(began_at, self._clock(), table, _group_connections(answers), complete=not self.unread)

    def _ask_all(self, sources: Mapping[str, StatusSource], ask: Callable[[StatusSource], Found]) -> dict[str, Found]:
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
            return StatusError(
                Outcome.ERROR, f"no server leads: are all of them in `servers`? {others}"[:DETAIL_LENGTH]
            )
        outcome = most_telling([outcome_of(error) for error in self.unread.values()])
        details = [detail_of(server, error) for server, error in self.unread.items()]
        return StatusError(outcome, "; ".join([*details, *([others] if others else [])])[:DETAIL_LENGTH])


def _read_table(source: StatusSource, keep: KeepPath) -> tuple[ServerRole, SessionTable | None]:
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
