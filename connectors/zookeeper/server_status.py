"""What a ZooKeeper server reports about itself and its sessions, whichever way it was asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from connectors.zookeeper import outcomes
from policies.observations import Outcome

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A longer answer is not read: a `dump` of a hundred thousand sessions with their nodes comes nowhere near it."""

NOT_SERVING = "This ZooKeeper instance is not currently serving requests"
"""What a server without a quorum answers to everything."""

_LISTS_ALL_SESSIONS = frozenset({"leader", "standalone"})
_UNSIGNED = (1 << 64) - 1

KeepPath = Callable[[str], bool]
"""Which ephemeral nodes are of interest; the others are not kept in memory."""


class StatusError(Exception):
    """A server gave no answer that can be used.

    Args:
        outcome: how the attempt ended.
        detail: why, in a few words, with the remedy where there is one.
    """

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ServerRole:
    """What a server is in its ensemble."""

    mode: str
    """Its own word: `leader`, `follower`, `observer`, `standalone`, `read-only`."""
    zxid: int = 0
    """The last transaction it knows. Of two that believe they lead, the one with the higher one is right."""

    @property
    def lists_all_sessions(self) -> bool:
        """Whether its table of sessions is the ensemble's; a follower does not know when sessions end."""
        return self.mode in _LISTS_ALL_SESSIONS


@dataclass(frozen=True, slots=True)
class SessionTable:
    """The leader's `dump`."""

    expiries_ms: Mapping[int, int]
    """When each live session will end if nothing more comes from it, on a clock of the server's own: milliseconds, in
    four-letter words exact to a second either way. Good for telling whether it has moved, no more."""
    ephemerals: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The whole paths of the nodes that each session owns, those asked for only."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One line of a server's `cons`: a client that is connected now."""

    session: int
    timeout_ms: int
    received: int
    """Packets that came from the client over this connection: it moves with each sign of life, pings included."""


class StatusSource(Protocol):
    """One way to ask one server. Each method raises StatusError or OSError when there is no usable answer in time."""

    def role(self) -> ServerRole:
        """What the server is."""
        ...

    def sessions(self, keep: KeepPath) -> SessionTable:
        """All sessions; only of a server whose role lists them."""
        ...

    def connections(self) -> tuple[Connection, ...]:
        """Who is connected to this server with a session."""
        ...

    def close(self) -> None:
        """Close what stays open between two questions; the next one opens it again."""
        ...


def session_id(number: int) -> int:
    """A session's number as ZooKeeper writes it in hexadecimal; JSON and kazoo have it with a sign."""
    return number & _UNSIGNED


def session_name(number: int) -> str:
    """A session as readings name it, such as ``0x1000015ff1f0001``; zero is no session."""
    return f"0x{session_id(number):x}"


def not_serving() -> StatusError:
    """A server that runs, but without its ensemble."""
    return StatusError(Outcome.UNREACHABLE, "runs, but serves nobody: it has no quorum")


def too_long() -> StatusError:
    """A server whose answer has no end."""
    return StatusError(Outcome.ERROR, f"its answer is longer than {MAX_ANSWER_BYTES // 1024**2} MiB")


def outcome_of(error: BaseException) -> Outcome:
    """The outcome that an error of asking stands for."""
    return error.outcome if isinstance(error, StatusError) else outcomes.outcome_of(error)


def detail_of(server: str, error: BaseException) -> str:
    """Which server did not answer, and why, in one short line."""
    return f"{server}: {outcomes.detail_of(error)}"
