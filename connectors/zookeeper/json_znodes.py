"""Znodes that contain JSON, read and written conditionally; one transaction writes several of them.

The owners of brokers' znodes are parsed here, too.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError
from kazoo.security import OPEN_ACL_UNSAFE, Permissions, make_digest_acl_credential
from pydantic_core import from_json

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.zookeeper.session import ZOOKEEPER_FAILURES, ZooKeeperSession, describe_zookeeper_error
from policies.sessions.readings import MAX_NAME

_DID_NOT_FIT = (BadVersionError, NodeExistsError, NoNodeError)

_CHANGES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN

Document = TypeVar("Document")
Step = Callable[[Any], None]
"""Adds one write or check to a transaction of kazoo."""


class ZnodeError(Exception):
    """A znode cannot be read or written now, or is damaged. The message has the reason in one short line.

    A write may have been done or not.
    """


class DamagedZnodeError(ZnodeError):
    """A znode has unexpected content."""


class ZnodeConflictError(ZnodeError):
    """A znode differs from the expected state, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Node(Generic[Document]):
    """The content of a znode."""

    value: Document
    version: int
    ephemeral_owner: int
    """The id of the session that owns it; 0: it is persistent."""
    czxid: int
    mzxid: int


class JsonZnodes:
    """Reads and writes them. Thread-safe. Errors name `what` they hold, unless it is empty."""

    def __init__(self, session: ZooKeeperSession, what: str = "the registry") -> None:
        self._session = session
        self._place = f"{what} in the ZooKeeper of {session.name}: " if what else ""

    def catch_up(self, path: str) -> None:
        """Make the server catch up with its leader."""
        self._request(lambda client: client.sync_async(path))

    def get(self, path: str, shape: type[Document]) -> Node[Document] | None:
        """Return a znode; None if it does not exist. Raises ZnodeError; DamagedZnodeError for unexpected content."""
        found = self.read(path)
        if found is None:
            return None
        try:
            value = read_json(found.value, shape)
        except UnreadableJsonError as error:
            raise DamagedZnodeError(f"{path} is damaged: {error}") from None
        return Node(value, found.version, found.ephemeral_owner, found.czxid, found.mzxid)

    def read(self, path: str) -> Node[bytes] | None:
        """Return a znode with its data, whatever they are; None if it does not exist. Raises as `get` does."""
        try:
            data, stat = self._request(lambda client: client.get_async(path))
        except NoNodeError:
            return None
        return Node(data or b"", stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)

    def children(self, path: str) -> list[str]:
        """Return the names of a znode's children, sorted; [] if it does not exist. Raises as `get` does."""
        try:
            return sorted(self._request(lambda client: client.get_children_async(path)))
        except NoNodeError:
            return []

    def _paths_below(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in self.children(path)]

    def ensure(self, path: str) -> None:
        """Create an empty znode and its parents unless they exist.

        If the session has a user, its znodes are private. The topmost one, such as `/admin`, is shared with others.
        """
        topmost = path[: path.index("/", 1)] if path.count("/") > 1 else path
        if topmost != path:
            self._request(lambda client: client.ensure_path_async(topmost, OPEN_ACL_UNSAFE))
        self._request(lambda client: client.ensure_path_async(path))

    def require_private(self, root: str) -> None:
        """Raise ZnodeError if others may change a znode or the two levels below it, and this session has a user."""
        if (credential := self._session.connection.credential()) is None:
            return
        user, password = credential.get_secret_value().split(":", 1)
        own = make_digest_acl_credential(user, password)
        children = self._paths_below(root)
        for path in (root, *children, *(path for child in children for path in self._paths_below(child))):
            try:
                acls, _ = self._request(methodcaller("get_acls_async", path))
            except NoNodeError:
                continue
            if found := next((a for a in acls if a.perms & _CHANGES and _is_of_others(a.id, own)), None):
                raise ZnodeError(
                    f"the ACL of {path} lets others change it ({found.id.scheme}:{found.id.id}): nothing is ordered "
                    f"until it is {user}'s alone: `addauth digest {user}:…`, `setAcl -R {root} auth:{user}:cdrwa`"
                )

    def commit(self, *steps: Step) -> bool:
        """Run all steps in one transaction. False: a step does not fit the present state, so nothing was written.

        Raises:
            ZnodeError: the result is unknown, or the write is not allowed.
        """

        def send(client: Any) -> Any:
            transaction = client.transaction()
            for add in steps:
                add(transaction)
            return transaction.commit_async()

        errors = [each for each in self._request(send) if isinstance(each, Exception)]
        # RolledBackError only means that another step did not fit.
        error = next((each for each in errors if not isinstance(each, RolledBackError)), None)
        if error is not None and not isinstance(error, _DID_NOT_FIT):
            raise ZnodeError(f"{self._session.name}: {describe_zookeeper_error(error)}")
        return not errors

    def session_id(self) -> int:
        """Return the id of the present session."""
        try:
            return int(self._session.client().client_id[0])
        except ZOOKEEPER_FAILURES as error:
            raise self._make_error(error) from None

    def _request(self, request: Callable[[Any], Any]) -> Any:
        try:
            return request(self._session.client()).get(timeout=self._session.connection.timeout_seconds)
        except NoNodeError:
            raise
        except ZOOKEEPER_FAILURES as error:
            raise self._make_error(error) from None

    def _make_error(self, error: BaseException) -> ZnodeError:
        return ZnodeError(f"{self._place}{describe_zookeeper_error(error)}")


def create(path: str, value: object, *, ephemeral: bool = False) -> Step:
    """Create a znode that must not exist; its parent must."""
    return lambda transaction: transaction.create(path, msgspec.json.encode(value), ephemeral=ephemeral)


def _is_of_others(identity: Any, own: str) -> bool:
    """Whether an ACL's identity is no part of our login: everybody, machines, or another user.

    ZooKeeper refuses no password, so the same name with another password is another user. Only a certificate's identity
    (`x509`) may also be ours.
    """
    return identity.scheme in ("world", "ip", "sasl") or (identity.scheme == "digest" and identity.id != own)


def put(path: str, value: object, version: int) -> Step:
    """Replace the content of a znode that must have this version."""
    return lambda transaction: transaction.set_data(path, msgspec.json.encode(value), version)


def check(path: str, version: int) -> Step:
    """Require that a znode has this version."""
    return lambda transaction: transaction.check(path, version)


def delete(path: str, version: int) -> Step:
    """Delete a znode that must have this version."""
    return lambda transaction: transaction.delete(path, version)


def create_or_put(path: str, value: object, found: Node[Any] | None) -> Step:
    """Write a znode that must be unchanged since it was found; None: it must not exist."""
    return create(path, value) if found is None else put(path, value, found.version)


def quote_name(name: str) -> str:
    """Encode a name as one part of a znode's path."""
    part = quote(name, safe="")
    return part.replace(".", "%2E") if part in (".", "..") else part


# Parses the owner of a znode from the JSON that Pulsar's brokers and compatible services write.

_ID = "brokerId"
# A broker's id has the port of its web service, so addresses of the web service come first.
_URLS = ("httpUrl", "webServiceUrl", "serviceUrl", "httpUrlTls", "webServiceUrlTls", "nativeUrl", "nativeUrlTls")
_HOST_PORT = re.compile(r".+:\d{1,5}")


def owner_member(value: bytes) -> str | None:
    """Return the member (`host:port`) that a node's value names; None if there is none."""
    document = _parse_object(value)
    named = [document.get(_ID), *(_host_and_port(document.get(key)) for key in _URLS)]
    return next((name for name in named if isinstance(name, str) and 0 < len(name) <= MAX_NAME), None)


def load_manager(value: bytes) -> str | None:
    """Return the class of a broker's load manager, by the value of its registration; None if it is not there."""
    name = _parse_object(value).get("loadManagerClassName")
    return name if isinstance(name, str) and 0 < len(name) <= MAX_NAME else None


def _parse_object(value: bytes) -> dict[str, Any]:
    try:
        document = from_json(value)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def digest(value: bytes) -> str:
    """Return a short hash of a value."""
    return hashlib.blake2b(value, digest_size=8).hexdigest()


def _host_and_port(url: Any) -> str | None:
    if not isinstance(url, str):
        return None
    try:
        place = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # for example, half an IPv6 address
        return None
    return place if _HOST_PORT.fullmatch(place) else None
