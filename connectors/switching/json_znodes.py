"""Znodes that hold JSON, read and written conditionally; several are written atomically in one transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError, RolledBackError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from policies.errors import UserError

_DID_NOT_FIT = (BadVersionError, NodeExistsError, NoNodeError)
_FAILURES = (KazooException, KazooTimeoutError, NotConnectedError, UnreadError, UserError, OSError)

Document = TypeVar("Document", bound=msgspec.Struct)
Found = TypeVar("Found")
Step = Callable[[Any], None]
"""Adds one write or check to a transaction of kazoo."""


class RegistryError(Exception):
    """A znode cannot be read or written now, or is damaged; the message says why in one short line.

    A write may have been done or not.
    """


class DamagedZnodeError(RegistryError):
    """A znode holds something else than it should."""


class RegistryConflictError(RegistryError):
    """A znode says something else than expected, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Node(Generic[Document]):
    """A znode as it was read."""

    value: Document
    version: int
    ephemeral_owner: int
    """The id of the session it lives as long as; 0: it stays."""
    czxid: int
    mzxid: int


class JsonZnodes:
    """Reads and writes them. Safe to use from many threads.

    Args:
        session: of their ZooKeeper; its time limit is that of one request.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def catch_up(self, path: str) -> None:
        """Have the server know all that was written anywhere before: another than the leader may lag behind."""
        self._asked(lambda client: client.sync_async(path))

    def get(self, path: str, shape: type[Document]) -> Node[Document] | None:
        """A znode; None when there is none.

        Raises:
            DamagedZnodeError: it holds something else.
            RegistryError: it cannot be read.
        """
        try:
            data, stat = self._asked(lambda client: client.get_async(path))
        except NoNodeError:
            return None
        try:
            value = read_json(data or b"", shape)
        except UnreadableJsonError as error:
            raise DamagedZnodeError(f"{path} is damaged: {error}") from None
        return Node(value, stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)

    def children(self, path: str) -> list[str]:
        """The names below a znode, sorted; none when there is no such znode. Raises as `get` does."""
        try:
            return sorted(self._asked(lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def watch(self, path: str, on_change: Callable[[Any], None]) -> None:
        """Have a function called, once, when a znode is made, changed or removed, or the connection is lost.

        It is called from kazoo's thread and must not wait. Asking again before it was called changes nothing.
        """
        self._asked(lambda client: client.exists_async(path, watch=on_change))

    def ensure(self, path: str) -> None:
        """Make a znode and those above it, empty, unless they are there.

        What our session makes is for us alone, where it has a user. The topmost, such as `/admin`, is others' too.
        """
        topmost = path[: path.index("/", 1)] if path.count("/") > 1 else path
        if topmost != path:
            self._asked(lambda client: client.ensure_path_async(topmost, OPEN_ACL_UNSAFE))
        self._asked(lambda client: client.ensure_path_async(path))

    def commit(self, *steps: Step) -> bool:
        """Do all of the steps, or none.

        Returns:
            False when one does not fit what is there, so that nothing was written.

        Raises:
            RegistryError: it is not known whether it was done, or it is not allowed.
        """
        whys = [each for each in self._asked(lambda client: _committed(client, steps)) if isinstance(each, Exception)]
        # What was rolled back, or came after, only says that another step did not fit.
        telling = [why for why in whys if not isinstance(why, RolledBackError)]
        for why in telling[:1]:
            if not isinstance(why, _DID_NOT_FIT):
                raise RegistryError(f"{self._session.name}: {detail_of(why)}")
        return not whys

    def session_id(self) -> int:
        """The session that a connected client has now."""
        try:
            return int(self._session.client().client_id[0])
        except _FAILURES as error:
            raise self._error(error) from None

    def _asked(self, request: Callable[[Any], Any]) -> Any:
        try:
            return request(self._session.client()).get(timeout=self._session.connection.timeout_seconds)
        except NoNodeError:
            raise
        except _FAILURES as error:
            raise self._error(error) from None

    def _error(self, error: BaseException) -> RegistryError:
        return RegistryError(f"the registry in the ZooKeeper of {self._session.name}: {detail_of(error)}")


def _committed(client: Any, steps: tuple[Step, ...]) -> Any:
    transaction = client.transaction()
    for add in steps:
        add(transaction)
    return transaction.commit_async()


def create(path: str, value: msgspec.Struct, *, ephemeral: bool = False) -> Step:
    """Make a znode that must not exist; the one above it must."""
    return lambda transaction: transaction.create(path, msgspec.json.encode(value), ephemeral=ephemeral)


def put(path: str, value: msgspec.Struct, version: int) -> Step:
    """Replace what a znode of this version holds."""
    return lambda transaction: transaction.set_data(path, msgspec.json.encode(value), version)


def check(path: str, version: int) -> Step:
    """Do nothing to a znode that must have this version."""
    return lambda transaction: transaction.check(path, version)


def delete(path: str, version: int) -> Step:
    """Remove a znode of this version."""
    return lambda transaction: transaction.delete(path, version)


def create_or_put(path: str, value: msgspec.Struct, found: Node[Any] | None) -> Step:
    """Write a znode that must still be as it was found; None: not there."""
    return create(path, value) if found is None else put(path, value, found.version)


def quoted(name: str) -> str:
    """A name as one part of a znode's path."""
    part = quote(name, safe="")
    return part.replace(".", "%2E") if part in (".", "..") else part
