"""One client of one ensemble for all its readers; it reconnects, and survives the loss of its session."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL
from pydantic import SecretStr

from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.handler import KazooHandler
from connectors.zookeeper.outcomes import NotConnectedError
from connectors.zookeeper.tree import Reader
from policies.errors import UserError

Listener = Callable[[], None]

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 1.0  # time for the server to end the session

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
        """Return a reader on a connected client, for one reading.

        `left_seconds` returns the remaining time of the whole reading, connecting included.

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
        """End the session and its threads; pending requests fail. It is bounded even if the server hangs."""
        with self._lock:
            self._closed = True
            self._retire()
        for closing in self._closing:
            closing.join(3 * _CLOSE_SECONDS)

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
                max_tries=-1,
                delay=_FIRST_RETRY_SECONDS,
                max_delay=_LAST_RETRY_SECONDS,
                sleep_func=handler.sleep_func,
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
        closing = threading.Thread(target=_end, args=(live,), name=f"zookeeper {self.name} ends", daemon=True)
        self._closing.append(closing)
        closing.start()


def _end(live: _LiveClient) -> None:
    """Stop a client in order, or by force if the server does not answer, so that none of its threads stays."""
    timer = threading.Timer(_CLOSE_SECONDS, live.handler.hang_up)
    timer.daemon = True
    timer.start()
    try:
        with suppress(KazooException, OSError):
            live.client.stop()
        with suppress(Exception):  # kazoo raises a plain Exception while its thread still runs
            live.client.close()
    finally:
        timer.cancel()
