"""One client of one ensemble for all its readers, which survives the loss of its session; and the doctor's checks."""

import errno
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, Permissions, make_digest_acl_credential
from pydantic import SecretStr

from connectors.collection import Probe, ProbeResult, ReadErrors, most_telling, one_line, rank
from connectors.http.tls import Tls
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.observations import Outcome
from policies.units import UserError

# Maps ZooKeeper's errors to the outcome of a reading and a short reason.


class UnreadError(Exception):
    """A node could not be read. `path` includes the chroot; `cause` is the client's error."""

    def __init__(self, path: str, cause: BaseException) -> None:
        super().__init__(path)
        self.path = path
        self.cause = cause


class NotConnectedError(Exception):
    """No server gives us a session; `obstacles` has the last error at each server, by `host:port`."""

    def __init__(self, obstacles: Mapping[str, BaseException]) -> None:
        super().__init__("not connected")
        self.obstacles = dict(obstacles)


class StatusError(Exception):
    """A server's admin server gave no usable answer."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


# The first match counts, so a subclass stands before its base. None: the error's own text is better.
_MEANINGS: tuple[tuple[type[BaseException], Outcome, str | None], ...] = (
    (exceptions.NoAuthError, Outcome.UNAUTHORIZED, "its ACL does not let us read it"),
    (exceptions.AuthFailedError, Outcome.UNAUTHORIZED, "the server refuses our credentials"),
    (exceptions.SessionClosedRequireSaslError, Outcome.UNAUTHORIZED, "the server requires another kind of login"),
    (exceptions.UnimplementedError, Outcome.UNSUPPORTED, "the server does not know this request"),
    (exceptions.ConnectionLoss, Outcome.UNREACHABLE, "the connection was lost"),
    (exceptions.SessionExpiredError, Outcome.UNREACHABLE, "our session has ended"),
    (exceptions.OperationTimeoutError, Outcome.TIMEOUT, "the server gave up"),
    (exceptions.RequestTimeoutError, Outcome.TIMEOUT, "the server gave up"),
    (KazooTimeoutError, Outcome.TIMEOUT, "no answer in time"),
    (TimeoutError, Outcome.TIMEOUT, None),
    (ssl.SSLError, Outcome.ERROR, None),
    (OSError, Outcome.UNREACHABLE, None),
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error."""
    match error:
        case StatusError():
            return error.outcome
        case UnreadError():
            return outcome_of(error.cause)
        case NotConnectedError():
            return most_telling([outcome_of(obstacle) for obstacle in error.obstacles.values()])
    return next((outcome for kind, outcome, _ in _MEANINGS if isinstance(error, kind)), Outcome.ERROR)


def describe_zookeeper_error(error: BaseException) -> str:
    """Return the error in one short line; none of these errors holds a credential."""
    return one_line(_text(error))


def _text(error: BaseException) -> str:
    match error:
        case UnreadError():
            return f"{error.path}: {_text(error.cause)}"
        case NotConnectedError():
            obstacles = sorted(error.obstacles.items(), key=lambda item: rank(outcome_of(item[1])))
            each = (f"{server}: {_text(obstacle)}" for server, obstacle in obstacles)
            return "; ".join(each) or "no server's name resolves to an address"
        case UserError():
            return str(error)
    meaning = next((words for kind, _, words in _MEANINGS if isinstance(error, kind)), None)
    name = type(error).__name__.removesuffix("Error")
    return meaning or getattr(error, "strerror", None) or str(error) or name


ZOOKEEPER_READ_ERRORS = ReadErrors((UnreadError, NotConnectedError, UserError), outcome_of, describe_zookeeper_error)
"""The errors of reading a tree."""
ZOOKEEPER_FAILURES = (*ZOOKEEPER_READ_ERRORS.expected, KazooException, KazooTimeoutError, OSError)
"""The errors of single requests, such as writes."""


# A kazoo handler with threads: TLS as everywhere in Headgate, and the reason for a missing connection.


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """The handler of one kazoo client.

    - TLS follows `Tls`: only its own authorities are trusted, the host name is checked, and the next connection reads
      changed files. It never asks for a key's password on the terminal, as kazoo would.
    - It sees replies that are already decrypted in a TLS socket; kazoo would wait for more bytes on the wire.
    - `obstacles` holds the reasons for a missing connection; kazoo only logs them.
    """

    def __init__(self, name: str, tls: Tls | None, connect_seconds: float) -> None:
        super().__init__()
        self.obstacles: dict[str, BaseException] = {}
        self._name = name
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._threads: list[threading.Thread] = []

    @property
    def is_alive(self) -> bool:
        """Whether all its threads run; a client with an ended thread never connects again."""
        return all(thread.is_alive() for thread in self._threads)

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        """Run a function in a new thread."""
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name=f"zookeeper {self._name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """Connect to one server; `Tls` replaces kazoo's own options.

        Raises:
            OSError: no connection, or encryption fails. Any other exception would end kazoo's thread.
        """
        server = f"{hostname}:{address[1]}"
        try:
            connection = self._connect(address, hostname)
        except UserError as error:
            self.obstacles[server] = error
            raise OSError(errno.EINVAL, str(error)) from None
        except OSError as error:
            self.obstacles[server] = error
            raise
        # Removed when the session is established.
        self.obstacles[server] = TimeoutError("accepts the connection, but gives no session")
        return connection

    def _connect(self, address: tuple[str, int], hostname: str) -> socket.socket:
        context = None if self._tls is None else self._tls.ssl_context()
        plain = socket.create_connection(address, self._connect_seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if context is None else context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def select(self, reads: list[Any], writes: list[Any], errors: list[Any], timeout: float | None = None) -> Any:
        """Wait until one of the sockets is ready."""
        pending = [each for each in reads if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not pending:
            return super().select(reads, writes, errors, timeout)
        readable, writable, failed = super().select(reads, writes, errors, 0)
        return [*readable, *(each for each in pending if each not in readable)], writable, failed


# Reads many znodes with a limited number of requests in flight.

IN_FLIGHT = 256
"""Parallel requests. More of them gain nothing, and delay other users of the connection."""

Ask = Callable[[str], Any]
"""Sends a request for a path and returns kazoo's asynchronous result, such as `client.get_async`."""


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
        """Yield each path, in the given order, with its answer; None if the node does not exist.

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


Listener = Callable[[], None]

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 3.0  # time for the server to end the session

# Kazoo logs requests with passwords: at debug level all of them, as errors those with a malformed answer, including the
# session's password. Readings report every failure that matters.
_kazoo_log = logging.getLogger("kazoo.headgate")
_kazoo_log.setLevel(logging.CRITICAL)

_log = structlog.get_logger(__name__)


@dataclass
class _LiveClient:
    """A started client, and its credential."""

    client: KazooClient
    handler: KazooHandler
    credential: SecretStr | None
    connected: threading.Event = field(default_factory=threading.Event)
    chroot_seen: bool = False


class ZooKeeperSession:
    """Returns a connected client whenever a server is reachable. Safe to use from many threads; close it."""

    def __init__(self, name: str, connection: ZooKeeperConnection) -> None:
        self.name = name
        self.connection = connection
        self._lock = threading.Lock()
        self._live: _LiveClient | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._closing: list[threading.Thread] = []
        self._closed = False

    def listen(self, listener: Listener) -> None:
        """Call a function when the connection is made or lost, on kazoo's thread, so it must not block."""
        self._listeners = (*self._listeners, listener)

    def reader(self, left_seconds: Callable[[], float]) -> Reader:
        """Return a reader on a connected client; `left_seconds` is the time left to connect and read.

        Raises:
            NotConnectedError: no server gave us a session in time.
            UnreadError: the chroot could not be read.
            UserError: a file of the connection cannot be used, or the chroot does not exist.
        """
        live = self._current()
        limit_seconds = self.connection.timeout_seconds
        if not live.connected.wait(max(0.0, min(limit_seconds, left_seconds()))):
            raise NotConnectedError(live.handler.obstacles)
        reader = Reader(live.client, limit_seconds, left_seconds)
        # Below a missing chroot every node is absent, which must not pass for a reading.
        if live.client.chroot and not live.chroot_seen:
            if reader.read(live.client.exists_async, "/") is None:
                raise UserError(f"there is no node {live.client.chroot}, the chroot that `servers` names.")
            live.chroot_seen = True
        return reader

    def client(self) -> KazooClient:
        """Return a connected client, for writing. Raises as `reader` does."""
        until = time.monotonic() + self.connection.timeout_seconds
        return self.reader(lambda: until - time.monotonic()).client

    def close(self) -> None:
        """End the session and its threads.

        If the server hangs, they end with the session's timeout, for which this does not wait.
        """
        with self._lock:
            self._closed = True
            self._retire()
        for closing in self._closing:
            closing.join(_CLOSE_SECONDS)

    def _current(self) -> _LiveClient:
        with self._lock:
            if self._closed:
                raise NotConnectedError({self.name: ConnectionClosedError()})
            if self._live is not None and not self._is_usable(self._live):
                self._retire()
            return self._live or self._start()

    def _is_usable(self, live: _LiveClient) -> bool:
        if not live.handler.is_alive:
            return False
        try:
            return self.connection.credential() == live.credential
        except UserError:  # while the file is missing, the session stays
            return True

    def _start(self) -> _LiveClient:
        connection, credential = self.connection, self.connection.credential()
        hosts = connection.hosts()
        timeout_seconds = connection.session_timeout.total_seconds()
        handler = KazooHandler(self.name, connection.tls, timeout_seconds / len(hosts))
        client = KazooClient(
            ",".join(hosts) + connection.chroot,
            timeout=timeout_seconds,
            handler=handler,
            # With credentials, the nodes that we create are ours alone.
            default_acl=None if credential is None else CREATOR_ALL_ACL,
            auth_data=[] if credential is None else [("digest", credential.get_secret_value())],
            connection_retry=KazooRetry(
                max_tries=-1, delay=_FIRST_RETRY_SECONDS, max_delay=_LAST_RETRY_SECONDS, sleep_func=handler.sleep_func
            ),
            logger=_kazoo_log,
        )
        live = _LiveClient(client, handler, credential)
        client.add_listener(lambda state: self._on_state(live, state))
        self._live = live  # before its state changes
        client.start_async()
        return live

    def _on_state(self, live: _LiveClient, state: str) -> None:
        if live is not self._live:
            return  # the client is being closed
        if state == KazooState.CONNECTED:
            live.handler.obstacles.clear()
            live.connected.set()
        else:
            live.connected.clear()
        _log.info("ZooKeeper connection", cluster=self.name, state=state.lower())
        for listener in self._listeners:
            listener()

    def _retire(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        self._closing = [thread for thread in self._closing if thread.is_alive()]
        closing = threading.Thread(target=_end, args=(live.client,), name=f"zookeeper {self.name} ends", daemon=True)
        self._closing.append(closing)
        closing.start()


def _end(client: KazooClient) -> None:
    with suppress(KazooException, OSError):
        client.stop()
    with suppress(Exception):  # kazoo raises a plain Exception while its thread still runs
        client.close()


# Checks for the doctor: whether a ZooKeeper answers, and whether a znode's ACL lets us write.

_UNKNOWABLE = ("sasl", "x509", "ip", "super")
"""Schemes by which only the server can identify us."""


def write_probes(system: str, session: ZooKeeperSession, paths: tuple[str, ...], what_for: str) -> Iterator[Probe]:
    """Yield checks whether nodes may be changed, or created if they are missing.

    `what_for` ends the sentence, such as ``quarantine must``.
    """
    for path in paths:
        yield Probe(system, f"write {path}", partial(_check_write, session, path, what_for))


def read_probe(system: str, session: ZooKeeperSession, path: str, remedy: str) -> Probe:
    """Make the check whether a node exists and may be read."""

    def ask() -> ProbeResult:
        try:
            reader = session.reader(lambda: session.connection.timeout_seconds)
            found = reader.read(reader.client.get_async, path)
        except ZOOKEEPER_READ_ERRORS.expected as error:
            return failed_probe(session.connection, error, (path,))
        if found is None:
            return ProbeResult(Outcome.ERROR, f"there is no {path}", (remedy,))
        return ProbeResult(Outcome.OK, f"{path} is read")

    return Probe(system, f"read {path}", ask)


def failed_probe(connection: ZooKeeperConnection, error: BaseException, paths: tuple[str, ...]) -> ProbeResult:
    """Return the result for a failed read."""
    outcome = ZOOKEEPER_READ_ERRORS.outcome_of(error)
    remedies = tuple(acl_line(connection, path, "r") for path in paths) if outcome is Outcome.UNAUTHORIZED else ()
    return ProbeResult(outcome, ZOOKEEPER_READ_ERRORS.detail_of(error), remedies)


def acl_line(connection: ZooKeeperConnection, path: str, permissions: str) -> str:
    """Return a line for `zkCli.sh` that shows a node's ACL, with the entry to add."""
    who = f"auth:{connection.user}:{permissions}" if connection.user else f"world:anyone:{permissions}"
    whole = f"{connection.chroot}{path}"
    if connection.user:
        return f"zkCli.sh: addauth digest {connection.user}:PASSWORD, then getAcl {whole}; add {who} to it with setAcl"
    return f"zkCli.sh: getAcl {whole}; add {who} to it with setAcl, or set zookeeper.user to one that it names"


def _check_write(session: ZooKeeperSession, path: str, what_for: str) -> ProbeResult:
    node, wanted, letters = path, Permissions.WRITE, "rw"
    try:
        reader = session.reader(lambda: session.connection.timeout_seconds)
        while (found := reader.read(reader.client.get_acls_async, node)) is None and node != "/":
            node, wanted, letters = node.rpartition("/")[0] or "/", Permissions.CREATE, "rc"
        acls: list[ACL] = list(found[0]) if found is not None else []
        allowed = _allows(acls, session.connection, wanted)
    except ZOOKEEPER_READ_ERRORS.expected as error:
        return failed_probe(session.connection, error, (path,))
    there = f"{node} may be changed" if node == path else f"{path} may be made below {node}"
    if allowed:
        return ProbeResult(Outcome.OK, there)
    if allowed is None:
        return ProbeResult(
            Outcome.OK, f"{node} grants it to others than digest users: only the server knows whether we are one"
        )
    remedy = acl_line(session.connection, node, letters)
    return ProbeResult(Outcome.UNAUTHORIZED, f"the ACL of {node} does not let us change it, as {what_for}", (remedy,))


def _allows(acls: list[ACL], connection: ZooKeeperConnection, wanted: int) -> bool | None:
    """Whether an ACL allows us an operation; None if only the server knows."""
    credential = connection.credential()
    mine: set[tuple[str, str]] = {("world", "anyone")}
    if credential is not None:
        mine.add(("digest", make_digest_acl_credential(*credential.get_secret_value().split(":", 1))))
        mine.add(
            ("digest", f"{connection.user}:x")
        )  # the server replaces the hash for clients without the ADMIN permission
    granted: list[Any] = [each for each in acls if each.perms & wanted]
    if any((each.id.scheme, each.id.id) in mine for each in granted):
        return True
    return None if any(each.id.scheme in _UNKNOWABLE for each in granted) else False
