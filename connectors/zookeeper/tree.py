"""Reads many znodes with a limited number of requests in flight, and only the values that changed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from connectors.zookeeper.outcomes import UnreadError

IN_FLIGHT = 256
"""Parallel requests. More of them gain nothing, and delay other users of the connection."""

Ask = Callable[[str], Any]
"""Sends a request for a path and returns kazoo's asynchronous result, such as `client.get_async`."""

Value = TypeVar("Value")


class Reader:
    """Reads nodes with one client, within time limits. Make one for each reading."""

    def __init__(self, client: KazooClient, request_seconds: float, left_seconds: Callable[[], float]) -> None:
        self.client = client
        self.requests = 0
        """Number of sent requests."""
        self._request_seconds = request_seconds
        self.left_seconds = left_seconds

    def read(self, ask: Ask, path: str) -> Any:
        """Return the answer for one node; None if the node does not exist. Raises as `read_all` does."""
        return next(self.read_all(ask, (path,)))[1]

    def read_all(self, ask: Ask, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Read many nodes.

        Yields:
            Each path, in the given order, with its answer; None if the node does not exist.

        Raises:
            UnreadError: a node cannot be read, or not in time.
        """
        waiting: deque[tuple[str, Any]] = deque()
        for path in paths:
            # ZooKeeper answers the requests of a connection in their order.
            if len(waiting) >= IN_FLIGHT:
                yield self._answer(*waiting.popleft())
            self.requests += 1
            waiting.append((path, ask(path)))
        while waiting:
            yield self._answer(*waiting.popleft())

    def _answer(self, path: str, result: Any) -> tuple[str, Any]:
        limit_seconds = max(0.0, min(self._request_seconds, self.left_seconds()))
        try:
            return path, result.get(timeout=limit_seconds)
        except NoNodeError:
            return path, None
        except KazooTimeoutError:
            why = f"no answer within {limit_seconds:.1f} s" if limit_seconds else "no time was left to read it"
            raise UnreadError(f"{self.client.chroot}{path}", TimeoutError(why)) from None
        except Exception as error:
            raise UnreadError(f"{self.client.chroot}{path}", error) from error


@dataclass(frozen=True, slots=True)
class ParsedNode(Generic[Value]):
    """A node's value, as of its last change."""

    version: tuple[int, ...]
    children: int
    value: Value | None
    """If the present value cannot be parsed, the last good one or None."""
    problem: str | None = None
    """Why the present value cannot be parsed."""


class ChangedNodes(Generic[Value]):
    """The values of many nodes; each reading reads only the changed ones.

    `parse` raises ValueError with the reason.
    """

    def __init__(self, parse: Callable[[bytes], Value | None]) -> None:
        self._parse = parse
        self._nodes: dict[str, ParsedNode[Value]] = {}

    def refresh(self, reader: Reader, paths: Iterable[str]) -> dict[str, ParsedNode[Value]]:
        """Return the present nodes at these paths, without missing ones.

        It costs one request for each node, and one more for each changed node. Values read before an error are kept, so
        that the next attempt has less to do.

        Raises:
            UnreadError: a node cannot be read.
        """
        wanted = list(paths)
        stale = [path for path in wanted if path not in self._nodes]
        known = [path for path in wanted if path in self._nodes]
        for path, stat in reader.read_all(reader.client.exists_async, known):
            if stat is None:
                del self._nodes[path]
            elif _version(stat) != self._nodes[path].version:
                stale.append(path)
            elif stat.numChildren != self._nodes[path].children:
                node = self._nodes[path]
                self._nodes[path] = ParsedNode(node.version, stat.numChildren, node.value, node.problem)
        for path, answer in reader.read_all(reader.client.get_async, stale):
            if answer is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = self._node(path, *answer)
        return {path: self._nodes[path] for path in wanted if path in self._nodes}

    def keep_only(self, paths: Iterable[str]) -> None:
        """Drop all other nodes."""
        wanted = set(paths)
        self._nodes = {path: node for path, node in self._nodes.items() if path in wanted}

    def _node(self, path: str, data: bytes, stat: Any) -> ParsedNode[Value]:
        version = _version(stat)
        try:
            return ParsedNode(version, stat.numChildren, self._parse(data))
        except ValueError as error:
            before = self._nodes.get(path)
            return ParsedNode(version, stat.numChildren, None if before is None else before.value, str(error))


def _version(stat: Any) -> tuple[int, ...]:
    # The transaction alone would do, except in a ZooKeeper that was set up again, where transactions restart at 0.
    return stat.mzxid, stat.mtime, stat.dataLength
