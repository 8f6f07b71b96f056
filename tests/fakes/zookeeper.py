"""A ZooKeeper in memory, as far as the registry and the lease use one: versions, ephemeral znodes, transactions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, cast

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError

from connectors.zookeeper.session import Reader, ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection


class Stat(NamedTuple):
    """Of a znode, with kazoo's names."""

    version: int
    ephemeralOwner: int  # noqa: N815
    czxid: int
    mzxid: int
    ctime: int = 0
    """When it was made: here the number of its transaction."""
    numChildren: int = 0  # noqa: N815
    """At the time of the reading; `exists` shows what was put here."""
    cversion: int = 0
    mtime: int = 0
    """When it was changed: here the number of its transaction."""


@dataclass
class Server:
    """The tree that all sessions see."""

    tree: dict[str, tuple[bytes, Stat]] = field(default_factory=dict)
    zxid: int = 0
    away: BaseException | None = None
    """What every request fails with, while it is set."""
    before_commit: list[Callable[[], object]] = field(default_factory=list)
    """Actions of other clients just before a write, once each."""
    _session_ids: "count[int]" = field(default_factory=lambda: count(1))

    def session(self) -> "MemorySession":
        """A new session, on a connection of its own."""
        return MemorySession(self, next(self._session_ids))

    def reader(self) -> Reader:
        """A reader of a new session."""
        return self.session().reader(lambda: 1.0)

    def end(self, session: "MemorySession") -> None:
        """Expire the session, and delete its ephemeral znodes."""
        self.tree = {path: found for path, found in self.tree.items() if found[1].ephemeralOwner != session.id}

    def write(self, path: str, data: bytes) -> None:
        """Write a znode by hand, and those above it if they are missing."""
        above = path.rpartition("/")[0]
        if above and above not in self.tree:
            self.write(above, b"")
        self.apply([("set" if path in self.tree else "create", path, data, -1, 0)])

    def delete(self, path: str) -> None:
        """Delete a znode by hand."""
        self.apply([("delete", path, b"", -1, 0)])

    @staticmethod
    def meddle(meddlers: list[Callable[[], object]]) -> None:
        """Have other clients act, once each."""
        while meddlers:
            meddlers.pop(0)()

    def apply(self, steps: list[tuple[str, str, bytes, int, int]]) -> list[Any]:
        """Apply all steps in one transaction, or none; returns one result per step, as kazoo does."""
        tree, self.zxid = dict(self.tree), self.zxid + 1
        results: list[Any] = []
        for number, step in enumerate(steps):
            error = self._step(tree, *step)
            if error is not None:
                return [
                    *(RolledBackError() for _ in range(number)),
                    error,
                    *(RolledBackError() for _ in steps[number + 1 :]),
                ]
            kind, path, *_ = step
            results.append(path if kind == "create" else tree[path][1] if kind == "set" else True)
        self.tree = tree
        return results

    def _step(
        self, tree: dict[str, tuple[bytes, Stat]], kind: str, path: str, data: bytes, version: int, owner: int
    ) -> Any:
        found = tree.get(path)
        if kind == "create":
            if found is not None:
                return NodeExistsError()
            tree[path] = (data, Stat(0, owner, self.zxid, self.zxid, self.zxid, mtime=self.zxid))
            return None
        if found is None:
            return NoNodeError()
        if version not in (-1, found[1].version):
            return BadVersionError()
        if kind == "set":
            tree[path] = (data, found[1]._replace(version=found[1].version + 1, mzxid=self.zxid, mtime=self.zxid))
        elif kind == "delete":
            del tree[path]
        return None


class MemorySession(ZooKeeperSession):
    """A session of it; it never connects anywhere."""

    def __init__(self, server: Server, session_id: int) -> None:
        super().__init__("c1", ZooKeeperConnection(servers="in-memory:2181"))
        self.id = session_id
        self._server = server

    def client(self) -> Any:
        """A stand-in for kazoo's client."""
        return _Client(self._server, self.id)

    def reader(self, left_seconds: Callable[[], float]) -> Reader:
        """A reader that uses this client."""
        return Reader(self.client(), 1.0, left_seconds)


@dataclass
class _Client:
    server: Server
    session_id: int
    chroot = ""

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session_id, b""

    def sync_async(self, path: str) -> "_Answer":
        return self._answer(lambda: path)

    def get_async(self, path: str) -> "_Answer":
        return self._answer(lambda: self._found(path))

    def get_children_async(self, path: str) -> "_Answer":
        return self._answer(lambda: self._children(path))

    def ensure_path_async(self, path: str, acl: object = None) -> "_Answer":
        return self._answer(lambda: self._ensure(path))

    def exists_async(self, path: str) -> "_Answer":
        return self._answer(lambda: self.server.tree[path][1] if path in self.server.tree else None)

    def set_async(self, path: str, data: bytes, *, version: int) -> "_Answer":
        return self._answer(lambda: self._set(path, data, version))

    def transaction(self) -> "_Transaction":
        return _Transaction(self)

    def _set(self, path: str, data: bytes, version: int) -> Stat:
        self.server.meddle(self.server.before_commit)
        (result,) = self.server.apply([("set", path, data, version, 0)])
        if isinstance(result, Exception):
            raise result
        return cast("Stat", result)

    def _answer(self, ask: Callable[[], Any]) -> "_Answer":
        return _Answer(self.server, ask)

    def _found(self, path: str) -> tuple[bytes, Stat]:
        if path not in self.server.tree:
            raise NoNodeError
        data, stat = self.server.tree[path]
        return data, stat._replace(numChildren=len(self._below(path)))

    def _children(self, path: str) -> list[str]:
        self._found(path)
        return self._below(path)

    def _below(self, path: str) -> list[str]:
        below = (other.removeprefix(f"{path}/") for other in self.server.tree if other.startswith(f"{path}/"))
        return [name for name in below if "/" not in name]

    def _ensure(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for length in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:length])
            if above not in self.server.tree:
                self.server.apply([("create", above, b"", -1, 0)])


@dataclass
class _Transaction:
    client: _Client
    steps: list[tuple[str, str, bytes, int, int]] = field(default_factory=list)

    def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        self.steps.append(("create", path, value, -1, self.client.session_id if ephemeral else 0))

    def set_data(self, path: str, value: bytes, version: int) -> None:
        self.steps.append(("set", path, value, version, 0))

    def check(self, path: str, version: int) -> None:
        self.steps.append(("check", path, b"", version, 0))

    def delete(self, path: str, version: int) -> None:
        self.steps.append(("delete", path, b"", version, 0))

    def commit_async(self) -> "_Answer":
        return self.client._answer(self._commit)

    def _commit(self) -> list[Any]:
        server = self.client.server
        server.meddle(server.before_commit)
        for number, (kind, path, *_) in enumerate(self.steps):
            if kind == "create" and path.rpartition("/")[0] not in {"", *server.tree, *(s[1] for s in self.steps)}:
                after = (RolledBackError() for _ in self.steps[number + 1 :])
                return [*(RolledBackError() for _ in range(number)), NoNodeError(), *after]
        return server.apply(self.steps)


@dataclass
class _Answer:
    server: Server
    ask: Callable[[], Any]

    def get(self, timeout: float) -> Any:
        if self.server.away is not None:
            raise self.server.away
        return self.ask()
