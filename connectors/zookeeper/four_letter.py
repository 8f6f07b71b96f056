"""ZooKeeper's four-letter words `srvr`, `dump` and `cons`: one TCP connection for each, with TLS if configured.

The parsers expect the output of ZooKeeper 3.5 and later; `tests/connectors/zookeeper/captured/` holds answers of 3.9.5.
A truncated answer is an error, never a shorter list: a session that is missing from it may still exist.
"""

import re
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from connectors.http.tls import FileStamps, Tls, stamps_of
from connectors.zookeeper.server_status import (
    MAX_ANSWER_BYTES,
    NOT_SERVING,
    Connection,
    KeepPath,
    ServerRole,
    SessionTable,
    StatusError,
    not_serving,
)
from policies.observations import Outcome
from policies.units import to_millis

_CHUNK_BYTES = 65_536
_MAX_LINE_BYTES = 1024 * 1024  # longer than any path
_REFUSED = "is not executed because it is not in the whitelist"
_MODE = re.compile(r"Mode: (\S+)")
_ZXID = re.compile(r"Zxid: 0x([0-9a-f]{1,16})\b")
_OF_FOLLOWER = "Global Sessions("
_EXPIRY = re.compile(r"\d+ expire at (.+):")
# The format of java.util.Date, the same in every language: Sat Nov 21 13:27:31 UTC 2026.
_DATE = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) (\d\d) (\d\d):(\d\d):(\d\d) \S+ (\d{4})")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_SESSION = re.compile(r"\t0x([0-9a-f]{1,16})")
_OWNER = re.compile(r"0x([0-9a-f]{1,16}):")
# One search for each field: a single expression takes hours for a hostile line.
_RECEIVED = re.compile(r"\brecved=(\d{1,19}),")
_SESSION_ID = re.compile(r"\bsid=0x([0-9a-f]{1,16}),")
_TIMEOUT = re.compile(r"\bto=(\d{1,10}),")


class FourLetterWords:
    """Queries one server with four-letter words.

    `server` is `host:port` of its client port.
    """

    def __init__(self, server: str, timeout_seconds: float, tls: Tls | None = None) -> None:
        self._server = server
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._stamps: FileStamps | None = None

    def role(self) -> ServerRole:
        """Return the server's role, from `srvr`."""
        return parse_role(self._ask("srvr"))

    def sessions(self, keep: KeepPath) -> SessionTable:
        """Return all sessions, from `dump`."""
        return parse_dump(self._ask("dump"), keep)

    def connections(self) -> tuple[Connection, ...]:
        """Return the connected clients, from `cons`."""
        return parse_cons(self._ask("cons"))

    def _ask(self, word: str) -> Iterator[str]:
        if self._tls is not None and (stamps := stamps_of(self._tls)) != self._stamps:
            self._context = self._tls.ssl_context()
            self._stamps = stamps
        yield from check_refusal(word, ask(self._server, word, self._timeout_seconds, self._context))

    def close(self) -> None:
        """Do nothing: each word has a connection of its own."""


def ask(server: str, word: str, timeout_seconds: float, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Send a word to a server, and yield the lines of its answer as they arrive.

    Raises:
        OSError: the server cannot be reached, or does not answer in time.
        StatusError: the answer is too long.
    """
    until = time.monotonic() + timeout_seconds

    def remaining_seconds() -> float:
        seconds = until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    try:
        with _connect(server, remaining_seconds, context) as connection:
            connection.sendall(word.encode())
            yield from _lines(connection, remaining_seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {timeout_seconds:.2g} s") from None


def check_refusal(word: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield the same lines, unless the first one is a refusal.

    Raises:
        StatusError: the word is not allowed, the server has no quorum, or its answer is empty.
    """
    first = next(lines, None)
    if first is None:
        raise StatusError(Outcome.ERROR, f"it closes the connection at {word} without an answer")
    if _REFUSED in first:
        raise StatusError(
            Outcome.UNSUPPORTED,
            f"{word} is not allowed: add srvr, dump and cons to its 4lw.commands.whitelist, or set admin_url",
        )
    if first.startswith(NOT_SERVING):
        raise not_serving()
    yield first
    yield from lines


def parse_role(lines: Iterable[str]) -> ServerRole:
    """Read the answer to `srvr`. Raises StatusError if the answer has no role."""
    answer = "\n".join(lines)
    mode, zxid = _MODE.search(answer), _ZXID.search(answer)
    if mode is None:
        raise _cut_short("srvr")
    return ServerRole(mode[1], int(zxid[1], 16) if zxid else 0)


def parse_dump(lines: Iterable[str], keep: KeepPath) -> SessionTable:
    """Read the answer to `dump`: sessions by expiry, then nodes by session, then connections.

    Raises:
        StatusError: the answer is cut short, or comes from a follower, which does not know when sessions end.
    """
    rest = iter(lines)
    expiries_ms = _expiries_ms(rest)
    ephemerals = _ephemerals(rest, keep)
    for _ in rest:  # read to the end, or the server would log a broken connection
        pass
    return SessionTable(expiries_ms, ephemerals)


def parse_cons(lines: Iterable[str]) -> tuple[Connection, ...]:
    """Read the answer to `cons`; connections without a session, such as our own one, do not count.

    Raises:
        StatusError: the answer is cut short.
    """
    connections, line = [], "none"
    for line in lines:
        received, session, timeout_ms = (field.search(line) for field in (_RECEIVED, _SESSION_ID, _TIMEOUT))
        if received and session and timeout_ms:
            connections.append(Connection(int(session[1], 16), int(timeout_ms[1]), int(received[1])))
    if line:  # the last one is empty
        raise _cut_short("cons")
    return tuple(connections)


def _expiries_ms(lines: Iterator[str]) -> dict[int, int]:
    expiries_ms: dict[int, int] = {}
    expiry_ms = 0
    for line in lines:
        if match := _SESSION.fullmatch(line):
            expiries_ms[int(match[1], 16)] = expiry_ms
        elif match := _EXPIRY.fullmatch(line):
            expiry_ms = _millis(match[1])
        elif line.startswith(_OF_FOLLOWER):
            raise StatusError(Outcome.ERROR, "it does not lead the ensemble any more")
        elif line == "ephemeral nodes dump:":
            return expiries_ms
    raise _cut_short("dump")


def _millis(date: str) -> int:
    """Parse the server's local time, without its zone: callers only check whether the time has moved."""
    month, *numbers = match.groups() if (match := _DATE.fullmatch(date)) else ("", *"00000")
    day, hour, minute, second, year = map(int, numbers)
    try:
        return to_millis(datetime(year, _MONTHS.index(month) + 1, day, hour, minute, second, tzinfo=UTC))
    except ValueError:
        raise StatusError(Outcome.ERROR, f"its answer to dump has a date that is none: {date!r}") from None


def _ephemerals(lines: Iterator[str], keep: KeepPath) -> dict[int, tuple[str, ...]]:
    ephemerals: defaultdict[int, list[str]] = defaultdict(list)
    owner = 0
    for line in lines:
        if line == "Connections dump:":
            return {session: tuple(paths) for session, paths in ephemerals.items()}
        if line.startswith("\t"):
            if keep(line[1:]):
                ephemerals[owner].append(line[1:])
        elif match := _OWNER.fullmatch(line):
            owner = int(match[1], 16)
    raise _cut_short("dump")


def _cut_short(word: str) -> StatusError:
    return StatusError(Outcome.ERROR, f"its answer to {word} is cut short")


def _connect(server: str, remaining_seconds: Callable[[], float], context: ssl.SSLContext | None) -> socket.socket:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    connection = socket.create_connection((host, int(port)), remaining_seconds())
    if context is None:
        return connection
    try:
        connection.settimeout(remaining_seconds())
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def _lines(connection: socket.socket, remaining_seconds: Callable[[], float]) -> Iterator[str]:
    """Yield lines. Only a line feed ends a line, because paths may contain Python's other line ends."""
    rest, received_bytes = b"", 0
    while True:
        connection.settimeout(remaining_seconds())
        chunk = connection.recv(_CHUNK_BYTES)
        received_bytes += len(chunk)
        if received_bytes > MAX_ANSWER_BYTES or len(rest) > _MAX_LINE_BYTES:
            raise StatusError(Outcome.ERROR, f"its answer is longer than {MAX_ANSWER_BYTES // 1024**2} MiB")
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
