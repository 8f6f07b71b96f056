"""Reads many znodes with a limited number of requests in flight."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """A node's value."""

    children: int
    value: Value | None
    """If the present value cannot be parsed, the last good one or None."""
    problem: str | None = None
    """Why the present value cannot be parsed."""


def read_parsed(
    reader: Reader,
    paths: Iterable[str],
    parse: Callable[[bytes], Value | None],
    before: Mapping[str, ParsedNode[Value]],
) -> dict[str, ParsedNode[Value]]:
    """Return the nodes at these paths, without missing ones.

    Args:
        parse: raises ValueError with the reason.
        before: the nodes of the last reading, whose values count where the present ones cannot be parsed.

    Raises:
        UnreadError: a node cannot be read.
    """
    nodes: dict[str, ParsedNode[Value]] = {}
    for path, answer in reader.read_all(reader.client.get_async, paths):
        if answer is not None:
            data, stat = answer
            try:
                nodes[path] = ParsedNode(stat.numChildren, parse(data))
            except ValueError as error:
                last = before[path].value if path in before else None
                nodes[path] = ParsedNode(stat.numChildren, last, str(error))
    return nodes
