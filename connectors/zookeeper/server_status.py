"""A ZooKeeper server's report of itself and its sessions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from connectors.zookeeper import outcomes
from policies.observations import Outcome

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Maximum size of an answer; a `dump` of 100,000 sessions with their nodes is much smaller."""

NOT_SERVING = "This ZooKeeper instance is not currently serving requests"
"""The answer of a server without a quorum to every command."""

_LISTS_ALL_SESSIONS = frozenset({"leader", "standalone"})
_UNSIGNED = (1 << 64) - 1

KeepPath = Callable[[str], bool]
"""Returns whether an ephemeral node is of interest; other nodes are not kept in memory."""


class StatusError(Exception):
    """A server gave no usable answer."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ServerRole:
    """A server's role in its ensemble."""

    mode: str
    """The server's own word: `leader`, `follower`, `observer`, `standalone`, `read-only`."""
    zxid: int = 0
    """The server's last transaction. If two servers claim to lead, the higher one is right."""

    @property
    def lists_all_sessions(self) -> bool:
        """Whether it knows all sessions of the ensemble; a follower does not know when they end."""
        return self.mode in _LISTS_ALL_SESSIONS


@dataclass(frozen=True, slots=True)
class SessionTable:
    """The leader's `dump`."""

    expiries_ms: Mapping[int, int]
    """The time at which each live session expires if its client stays silent, in milliseconds of the server's clock.
    Use it only to see whether it has moved."""
    ephemerals: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The whole paths of the requested nodes that each session owns."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A client that is connected to a server."""

    session: int
    timeout_ms: int
    received: int
    """Number of packets from the client over this connection, pings included."""


class StatusSource(Protocol):
    """One way to query one server. Each method raises StatusError or OSError if there is no usable answer in time."""

    def role(self) -> ServerRole:
        """Return the server's role."""
        ...

    def sessions(self, keep: KeepPath) -> SessionTable:
        """Return all sessions; call it only if the server's role lists them."""
        ...

    def connections(self) -> tuple[Connection, ...]:
        """Return the clients that are connected to this server with a session."""
        ...

    def close(self) -> None:
        """Close the connection; the next query opens it again."""
        ...


def session_id(number: int) -> int:
    """Return a session's number without the sign that it has in JSON and in kazoo."""
    return number & _UNSIGNED


def session_name(number: int) -> str:
    """Return a session's name in readings, such as ``0x1000015ff1f0001``."""
    return f"0x{session_id(number):x}"


def not_serving() -> StatusError:
    """Make the error for a server that runs without a quorum."""
    return StatusError(Outcome.UNREACHABLE, "runs, but serves nobody: it has no quorum")


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error of a query."""
    return error.outcome if isinstance(error, StatusError) else outcomes.outcome_of(error)


def detail_of(server: str, error: BaseException) -> str:
    """Return the server and its error in one short line."""
    return f"{server}: {outcomes.detail_of(error)}"
