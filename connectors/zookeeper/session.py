"""One client of one ensemble, shared by all readers: it reconnects, and survives the loss of its own session."""

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
_CLOSE_SECONDS = 1.0  # for the server to take note that a session ends

# Kazoo logs requests, passwords among them: at debug level all, as errors those whose answer makes no sense, with what
# lets anybody take the session over. What matters is in the readings.
_kazoo_log = logging.getLogger("kazoo.headgate")
_kazoo_log.setLevel(logging.CRITICAL)

_log = structlog.get_logger(__name__)


@dataclass
class _LiveClient:
    """A client that was started, and with what."""

    client: KazooClient
    handler: KazooHandler
    credential: SecretStr | None
    connected: threading.Event = field(default_factory=threading.Event)
    chroot_seen: bool = False


class ZooKeeperSession:
    """Gives a connected client whenever there is a way to have one. Safe to use from many threads; close it.

    Args:
        name: the cluster's, for logs.
        connection: how to reach the ensemble.
    """

    def __init__(self, name: str, connection: ZooKeeperConnection) -> None:
        self.name = name
        self.connection = connection
        self._lock = threading.Lock()
        self._live: _LiveClient | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._closing: list[threading.Thread] = []
        self._closed = False

    def listen(self, listener: Listener) -> None:
        """Have a function called when the connection comes or goes, from kazoo's thread: it must not block."""
        self._listeners = (*self._listeners, listener)

    def reader(self, left_seconds: Callable[[], float]) -> Reader:
        """A reader on a connected client, for one reading.

        Args:
            left_seconds: how long the whole reading may go on, connecting included.

        Raises:
            NotConnectedError: no server gave us a session in time.
            UnreadError: the chroot could not be read.
            UserError: a file that the connection names cannot be used, or there is no such chroot.
        """
        live = self._current()
        limit_seconds = self.connection.timeout_seconds
        if not live.connected.wait(max(0.0, min(limit_seconds, left_seconds()))):
            raise NotConnectedError(live.handler.obstacles)
        reader = Reader(live.client, limit_seconds, left_seconds)
        self._check_chroot(live, reader)
        return reader

    def client(self) -> KazooClient:
        """A connected client, for what a reader cannot do, such as writing; raises as `reader` does."""
        until = time.monotonic() + self.connection.timeout_seconds
        return self.reader(lambda: until - time.monotonic()).client

    def close(self) -> None:
        """End the session and the threads; what is still asked fails. Bounded, also when the server hangs."""
        with self._lock:
            self._closed = True
            self._retire()
        for closing in self._closing:
            closing.join(3 * _CLOSE_SECONDS)

    def _check_chroot(self, live: _LiveClient, reader: Reader) -> None:
        """Below a chroot that does not exist everything is absent: that must not be taken for a reading."""
        if live.client.chroot and not live.chroot_seen:
            if reader.one(live.client.exists_async, "/") is None:
                raise UserError(f"there is no node {live.client.chroot}, the chroot that `servers` names.")
            live.chroot_seen = True

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
        except UserError:  # the file is away for the moment; who is in stays in
            return True

    def _start(self) -> _LiveClient:
        connection, credential = self.connection, self.connection.credential()
        hosts = connection.hosts()
        timeout_seconds = connection.session_timeout_seconds
        handler = KazooHandler(self.name, connection.tls, timeout_seconds / len(hosts), timeout_seconds)
        client = KazooClient(
            ",".join(hosts) + connection.chroot,
            timeout=connection.session_timeout_seconds,
            handler=handler,
            # What we make is ours alone, where we say who we are.
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
            return  # it is being closed
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
    """End a client in order, or by force when the server does not answer, so that none of its threads stays."""
    timer = threading.Timer(_CLOSE_SECONDS, live.handler.hang_up)
    timer.daemon = True
    timer.start()
    try:
        with suppress(KazooException, OSError):
            live.client.stop()
        with suppress(Exception):  # kazoo raises a plain one while its thread has not ended
            live.client.close()
    finally:
        timer.cancel()
