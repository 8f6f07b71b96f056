"""Reads many znodes with a bounded number of requests in flight, and only the values that changed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from connectors.zookeeper.outcomes import UnreadError

IN_FLIGHT = 256
"""Requests under way at once: more gain nothing, and others wait behind them on the same connection."""

Ask = Callable[[str], Any]
"""Sends a request for a path and gives kazoo's result to come, such as `client.get_async`."""

Value = TypeVar("Value")


class Reader:
    """Reads nodes over one client, within time limits. For one reading.

    Args:
        client: connected.
        request_seconds: how long a server may take for one answer.
        left_seconds: how long the whole reading may still take.
    """

    def __init__(self, client: KazooClient, request_seconds: float, left_seconds: Callable[[], float]) -> None:
        self.client = client
        self.requests = 0
        """Sent so far."""
        self._request_seconds = request_seconds
        self.left_seconds = left_seconds
        """How long the whole reading may still take."""

    def one(self, ask: Ask, path: str) -> Any:
        """The answer for one node; None when there is no such node. Raises as `each` does."""
        return next(self.each(ask, (path,)))[1]

    def each(self, ask: Ask, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Ask for many nodes.

        Yields:
            Each path, in the order given, with its answer; None when there is no such node.

        Raises:
            UnreadError: for the first node that cannot be read, or has not been in time.
        """
        waiting: deque[tuple[str, Any]] = deque()
        for path in paths:
            # ZooKeeper answers a connection's requests in their order, so the oldest is the next to come.
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
            raise UnreadError(self._whole(path), TimeoutError(why)) from None
        except Exception as error:
            raise UnreadError(self._whole(path), error) from error

    def _whole(self, path: str) -> str:
        return f"{self.client.chroot}{path}"


@dataclass(frozen=True, slots=True)
class ParsedNode(Generic[Value]):
    """A node's value, as of its last change."""

    version: tuple[int, ...]
    children: int
    value: Value | None
    """What it says; where that cannot be parsed, what it said last, or None."""
    problem: str | None = None
    """Why it cannot be parsed."""


class ChangedNodes(Generic[Value]):
    """The values of many nodes, over many readings; only what has changed is read again.

    Args:
        parse: makes a value of a node's bytes; raises ValueError, with the reason, when it cannot.
    """

    def __init__(self, parse: Callable[[bytes], Value | None]) -> None:
        self._parse = parse
        self._nodes: dict[str, ParsedNode[Value]] = {}

    def refresh(self, reader: Reader, paths: Iterable[str]) -> dict[str, ParsedNode[Value]]:
        """The nodes at these paths as they are now, those that do not exist left out.

        Costs one request for each node, and another one for each that has changed. What was read before an error is
        kept, so that the next attempt has less to do.

        Raises:
            UnreadError: some node cannot be read.
        """
        wanted = list(paths)
        stale = [path for path in wanted if path not in self._nodes]
        known = [path for path in wanted if path in self._nodes]
        for path, stat in reader.each(reader.client.exists_async, known):
            if stat is None:
                del self._nodes[path]
            elif _version(stat) != self._nodes[path].version:
                stale.append(path)
            elif stat.numChildren != self._nodes[path].children:
                node = self._nodes[path]
                self._nodes[path] = ParsedNode(node.version, stat.numChildren, node.value, node.problem)
        for path, answer in reader.each(reader.client.get_async, stale):
            if answer is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = self._node(path, *answer)
        return {path: self._nodes[path] for path in wanted if path in self._nodes}

    def forget_others(self, paths: Iterable[str]) -> None:
        """Keep nothing but these."""
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
    # The transaction alone would do, but in a ZooKeeper that was set up anew they count from the beginning again.
    return stat.mzxid, stat.mtime, stat.dataLength
