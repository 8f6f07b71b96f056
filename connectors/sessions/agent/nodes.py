"""Reads and writes ownership znodes. Each write is conditional, so that it never affects another member's znode."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from connectors.sessions.agent.contact import read_session
from connectors.zookeeper.owners import owner_member
from connectors.zookeeper.server_status import session_name
from policies.sessions.judge.ownership_table import NodeNow

Watch = Callable[[WatchedEvent], None]

_NO_ANSWER = (
    ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError, KazooTimeoutError,
)  # fmt: skip
_LOST = (NodeExistsError, BadVersionError, NoNodeError, NotEmptyError)


class LostRaceError(Exception):
    """The node has changed since it was read: another client was faster."""


class NoZooKeeperAnswerError(Exception):
    """The outcome of a request is unknown: connection or session was lost, or the server is too slow."""


@dataclass(frozen=True, slots=True)
class NodeRead:
    """The result of a read: the node, or the reason why it cannot be read."""

    node: NodeNow | None
    obstacle: str | None = None


class ClientNodes:
    """The nodes of one client."""

    def __init__(self, client: KazooClient, request_seconds: Callable[[], float]) -> None:
        self._client = client
        self._request_seconds = request_seconds

    def read(self, paths: Iterable[str], watch: Watch) -> dict[str, NodeRead]:
        """Read nodes. The watch is called once when one of them changes.

        Raises:
            NoZooKeeperAnswerError: the connection is lost.
        """
        sent = {path: (self._client.get_async(path, watch), self._client.exists_async(path, watch)) for path in paths}
        return {path: self._parse(*results) for path, results in sent.items()}

    def create(self, path: str, value: bytes, session: str) -> None:
        """Create the node, with its parents.

        Raises:
            LostRaceError: it exists already.
            NoZooKeeperAnswerError: it may have been created or not, or the client's session is another one.
        """
        self._require_session(session)
        self._wait(self._client.create_async(path, value, ephemeral=True, makepath=True))

    def replace(self, path: str, value: bytes, version: int, session: str) -> None:
        """Delete the node of that version and create a new one, both or neither. Raises as `create` does."""
        self._require_session(session)
        both = self._client.transaction()
        both.delete(path, version)
        both.create(path, value, ephemeral=True)
        for result in self._wait(both.commit_async()):
            if isinstance(result, RolledBackError | RuntimeInconsistency):
                continue  # the other operation's error is the reason
            if isinstance(result, NoNodeError):
                raise NoZooKeeperAnswerError from result  # the node vanished by itself: read it again, and create it
            if isinstance(result, _LOST):
                raise LostRaceError(path) from result
            if isinstance(result, KazooException):
                raise result

    def delete(self, path: str, version: int, session: str) -> None:
        """Delete the node of that version. Raises as `create` does."""
        self._require_session(session)
        self._wait(self._client.delete_async(path, version))

    def _require_session(self, session: str) -> None:
        """Refuse a write that was decided for another session."""
        if read_session(self._client) != session:
            raise NoZooKeeperAnswerError

    def _parse(self, got: Any, seen: Any) -> NodeRead:
        # `get` returns the value, but sets no watch on an absent node; `exists` does.
        try:
            value, stat = self._wait(got)
            self._wait(seen)
        except LostRaceError:
            return self._parse_absent(seen)
        except KazooException as error:
            return NodeRead(None, type(error).__name__)
        return NodeRead(_make_node(value, stat))

    def _parse_absent(self, seen: Any) -> NodeRead:
        try:
            created_since = self._wait(seen) is not None
        except KazooException as error:
            return NodeRead(None, type(error).__name__)
        return NodeRead(None, "it was created just now") if created_since else NodeRead(NodeNow(exists=False))

    def _wait(self, result: Any) -> Any:
        try:
            return result.get(timeout=self._request_seconds())
        except _NO_ANSWER as error:
            raise NoZooKeeperAnswerError from error
        except _LOST as error:
            raise LostRaceError from error


def _make_node(value: bytes, stat: ZnodeStat) -> NodeNow:
    return NodeNow(
        exists=True,
        ephemeral=stat.ephemeralOwner != 0,
        owner=owner_member(value),
        session=session_name(stat.ephemeralOwner) if stat.ephemeralOwner else None,
        version=stat.version,
    )
