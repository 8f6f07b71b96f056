"""ZooKeeper's admin server, which answers as JSON over HTTP.

ZooKeeper 3.5 and later have the commands `server_stats`, `dump` and `connections` below `/commands/`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import msgspec

from connectors.foreign_json import UnreadableJsonError, read_json
from connectors.http.client import bounded_client
from connectors.http.rest import REST_READ_ERRORS, RestClient
from connectors.http.tls import Tls, ssl_context_for
from connectors.zookeeper.session import StatusError
from policies.observations import Outcome

# A ZooKeeper server's report of itself and its sessions.

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Maximum size of an answer; a `dump` of 100,000 sessions with their nodes is much smaller."""

NOT_SERVING = "This ZooKeeper instance is not currently serving requests"
"""The answer of a server without a quorum to every command."""

_LISTS_ALL_SESSIONS = frozenset({"leader", "standalone"})
_UNSIGNED = (1 << 64) - 1

KeepPath = Callable[[str], bool]
"""Returns whether an ephemeral node is of interest; other nodes are not kept in memory."""


class ServerRole(msgspec.Struct, frozen=True):
    """A server's role in its ensemble."""

    mode: str = msgspec.field(name="server_state")
    """The server's own word: `leader`, `follower`, `observer`, `standalone`, `read-only`."""
    zxid: int = msgspec.field(name="last_processed_zxid", default=0)
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


class Connection(msgspec.Struct, frozen=True):
    """A client that is connected to a server."""

    session: int = msgspec.field(name="session_id", default=0)
    timeout_ms: int = msgspec.field(name="session_timeout", default=0)
    received: int = msgspec.field(name="packets_received", default=0)
    """Number of packets from the client over this connection, pings included."""


def session_id(number: int) -> int:
    """Return a session's number without the sign that it has in JSON and in kazoo."""
    return number & _UNSIGNED


def session_name(number: int) -> str:
    """Return a session's name in readings, such as ``0x1000015ff1f0001``."""
    return f"0x{session_id(number):x}"


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Structs instead of pydantic models, which would list every error of a long answer in another shape."""

    error: str | None = None


class _ServerStats(_Answer, frozen=True, kw_only=True):
    server_stats: ServerRole


class _Dump(_Answer, frozen=True, kw_only=True):
    expiry_time_to_session_ids: dict[int, tuple[int, ...]]
    session_id_to_ephemeral_paths: dict[int, tuple[str, ...]]


class _Connections(_Answer, frozen=True, kw_only=True):
    connections: tuple[Connection, ...]
    secure_connections: tuple[Connection, ...] = ()


_Some = TypeVar("_Some", bound=_Answer)


class AdminServer:
    """Queries one server, by the URL of its admin server. Each query raises StatusError if no usable answer comes."""

    def __init__(
        self, url: str, timeout_seconds: float, tls: Tls | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        url = url.rstrip("/")

        def build() -> httpx.Client:
            context = ssl_context_for(url, tls)
            return bounded_client(
                context, timeout_seconds, base_url=url, max_answer_bytes=MAX_ANSWER_BYTES, transport=transport
            )

        self._rest = RestClient(build, timeout_seconds)

    def role(self) -> ServerRole:
        """Return the server's role, from `server_stats`."""
        return self._ask("server_stats", _ServerStats).server_stats

    def sessions(self, keep: KeepPath) -> SessionTable:
        """Return all sessions, from `dump`; call it only if the server's role lists them."""
        dump = self._ask("dump", _Dump)
        expiring = dump.expiry_time_to_session_ids.items()
        expiries_ms = {session_id(each): expiry_ms for expiry_ms, ids in expiring for each in ids}
        owned = dump.session_id_to_ephemeral_paths.items()
        if owned and not expiries_ms:
            # A follower knows the nodes, but not when their sessions end.
            raise StatusError(Outcome.ERROR, "it does not lead the ensemble any more")
        kept = {session_id(session): tuple(path for path in paths if keep(path)) for session, paths in owned}
        return SessionTable(expiries_ms, {session: paths for session, paths in kept.items() if paths})

    def connections(self) -> tuple[Connection, ...]:
        """Return the clients that are connected with a session, from `connections`."""
        answer = self._ask("connections", _Connections)
        found = (each for each in (*answer.connections, *answer.secure_connections) if each.session)
        return tuple(msgspec.structs.replace(each, session=session_id(each.session)) for each in found)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._rest.close()

    def _ask(self, command: str, kind: type[_Some]) -> _Some:
        try:
            answer = self._rest.send("GET", f"/commands/{command}").content
        except REST_READ_ERRORS.expected as error:
            outcome, detail = REST_READ_ERRORS.outcome_of(error), REST_READ_ERRORS.detail_of(error)
            if outcome is Outcome.UNSUPPORTED:
                outcome, detail = Outcome.ERROR, f"{detail}: is admin_url that of its admin server?"
            raise StatusError(outcome, detail) from None
        return parse(command, answer, kind)


def parse(command: str, answer: bytes, kind: type[_Some]) -> _Some:
    """Parse an answer; raises StatusError without a quorum, for an error, and for another shape."""
    try:
        error = read_json(answer, _Answer).error
        if error is None:
            return read_json(answer, kind)
    except UnreadableJsonError:
        raise StatusError(Outcome.ERROR, f"its answer to {command} is not that of a ZooKeeper 3.5 or later") from None
    if error == NOT_SERVING:
        raise StatusError(Outcome.UNREACHABLE, "runs, but serves nobody: it has no quorum")
    raise StatusError(Outcome.ERROR, f"{command}: {error}")
