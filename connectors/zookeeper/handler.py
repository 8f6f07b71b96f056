"""A kazoo handler with threads: TLS as everywhere in Headgate, and the reason for a missing connection."""

import errno
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from connectors.http.tls import Tls
from policies.errors import UserError


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """The handler of one kazoo client.

    - TLS follows `Tls`: only its own authorities are trusted, the host name is checked, and the next connection reads
      changed files. It never asks for a key's password on the terminal, as kazoo would.
    - It sees replies that are already decrypted in a TLS socket; kazoo would wait for more bytes on the wire.
    - `obstacles` holds the reasons for a missing connection; kazoo only logs them.
    - `hang_up` ends a connection to a server that does not answer.

    Args:
        connect_seconds: limit for connecting to one server.
    """

    def __init__(self, name: str, tls: Tls | None, connect_seconds: float) -> None:
        super().__init__()
        self.obstacles: dict[str, BaseException] = {}
        self._name = name
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._threads: list[threading.Thread] = []
        self._socket: socket.socket | None = None

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
            self._socket = self._connect(address, hostname)
        except UserError as error:
            self.obstacles[server] = error
            raise OSError(errno.EINVAL, str(error)) from None
        except OSError as error:
            self.obstacles[server] = error
            raise
        # Removed when the session is established.
        self.obstacles[server] = TimeoutError("accepts the connection, but gives no session")
        return self._socket

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

    def hang_up(self) -> None:
        """End the connection, if there is one, from any thread."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
