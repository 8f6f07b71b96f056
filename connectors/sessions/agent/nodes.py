"""Reads and writes ownership znodes; each write is conditional, so that none hits another member's znode."""

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

from connectors.sessions.agent.contact import session_of
from connectors.zookeeper.owners import owner_member
from connectors.zookeeper.server_status import session_name
from policies.sessions.judge.ownership_table import NodeNow

Watch = Callable[[WatchedEvent], None]

_NO_ANSWER = (
    ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError, KazooTimeoutError,
)  # fmt: skip
_LOST = (NodeExistsError, BadVersionError, NoNodeError, NotEmptyError)


class LostRaceError(Exception):
    """The node is not as it was when it was read: another was faster."""


class NoZooKeeperAnswerError(Exception):
    """Whether something was done is not known: the connection or the session went, or the server is too slow."""


@dataclass(frozen=True, slots=True)
class NodeRead:
    """What a read told: the node, or why it could not be read."""

    node: NodeNow | None
    obstacle: str | None = None


class ClientNodes:
    """The nodes of one client.

    Args:
        client: of the application.
        request_seconds: how long one answer may take.
    """

    def __init__(self, client: KazooClient, request_seconds: Callable[[], float]) -> None:
        self._client = client
        self._request_seconds = request_seconds

    def read(self, paths: Iterable[str], watch: Watch) -> dict[str, NodeRead]:
        """What each node is now; the watch is called once when one changes.

        Raises:
            NoZooKeeperAnswerError: there is no connection any more.
        """
        sent = {path: (self._client.get_async(path, watch), self._client.exists_async(path, watch)) for path in paths}
        return {path: self._answer(*results) for path, results in sent.items()}

    def create(self, path: str, value: bytes, session: str) -> None:
        """Create the node, with its parents.

        Raises:
            LostRaceError: there is one.
            NoZooKeeperAnswerError: it may have been created or not, or the session is not the given one any more.
        """
        self._still(session)
        self._wait(self._client.create_async(path, value, ephemeral=True, makepath=True))

    def replace(self, path: str, value: bytes, version: int, session: str) -> None:
        """Delete the node of that version and create it anew, both or neither. Raises as `create` does."""
        self._still(session)
        both = self._client.transaction()
        both.delete(path, version)
        both.create(path, value, ephemeral=True)
        for result in self._wait(both.commit_async()):
            if isinstance(result, RolledBackError | RuntimeInconsistency):
                continue  # the other one's error is the reason
            if isinstance(result, NoNodeError):
                raise NoZooKeeperAnswerError from result  # it went by itself: look again, and create
            if isinstance(result, _LOST):
                raise LostRaceError(path) from result
            if isinstance(result, KazooException):
                raise result

    def delete(self, path: str, version: int, session: str) -> None:
        """Delete the node of that version. Raises as `create` does."""
        self._still(session)
        self._wait(self._client.delete_async(path, version))

    def _still(self, session: str) -> None:
        """Nothing is carried out for another session than the one it was decided for."""
        if session_of(self._client) != session:
            raise NoZooKeeperAnswerError

    def _answer(self, got: Any, seen: Any) -> NodeRead:
        # `get` tells the value, but leaves no watch where there is no node; `exists` does.
        try:
            value, stat = self._wait(got)
            self._wait(seen)
        except LostRaceError:
            return self._absent(seen)
        except KazooException as error:
            return NodeRead(None, type(error).__name__)
        return NodeRead(_node(value, stat))

    def _absent(self, seen: Any) -> NodeRead:
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


def _node(value: bytes, stat: ZnodeStat) -> NodeNow:
    return NodeNow(
        exists=True,
        ephemeral=stat.ephemeralOwner != 0,
        owner=owner_member(value),
        session=session_name(stat.ephemeralOwner) if stat.ephemeralOwner else None,
        version=stat.version,
    )
