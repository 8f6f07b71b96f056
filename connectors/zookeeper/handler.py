"""A kazoo handler of sockets and threads, with fixes for hangs and lost error reasons."""

import errno
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from connectors.http.tls import Tls
from connectors.zookeeper.frames import FrameLimit, LimitedSocket, LimitedTlsSocket
from policies.errors import UserError


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """The handler of one kazoo client.

    - TLS as `Tls` means it: only its own authorities are trusted, the host name counts, changed files are read at the
      next connection, and nobody is asked for a key's password on the terminal, as kazoo would.
    - Replies that lie decrypted in a TLS socket are seen at once: kazoo would wait for more bytes on the wire.
    - `obstacles` tells why there is no connection: kazoo only logs that.
    - `hang_up` ends a connection to a server that does not answer; one to a server that answers without an end, or a
      byte now and then, ends by itself.

    Args:
        name: of its threads.
        tls: None for no encryption.
        connect_seconds: the most that connecting to one server may take.
        frame_seconds: the most that the bytes of one answer may take to come.
    """

    def __init__(self, name: str, tls: Tls | None, connect_seconds: float, frame_seconds: float = 10.0) -> None:
        super().__init__()
        self.obstacles: dict[str, BaseException] = {}
        self._name = name
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._frame_seconds = frame_seconds
        self._threads: list[threading.Thread] = []
        self._socket: socket.socket | None = None

    @property
    def is_alive(self) -> bool:
        """Whether all its threads run; a client of which one has ended never connects again."""
        return all(thread.is_alive() for thread in self._threads)

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        """Run a function in a thread of its own."""
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name=f"zookeeper {self._name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """Connect to one server; kazoo's own options are all in `Tls`.

        Raises:
            OSError: it cannot be reached, or encryption fails; nothing else, as that would end kazoo's thread.
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
        # It is removed when the session stands.
        self.obstacles[server] = TimeoutError("accepts the connection, but gives no session")
        return self._socket

    def _connect(self, address: tuple[str, int], hostname: str) -> socket.socket:
        context = None if self._tls is None else self._tls.ssl_context()
        plain = socket.create_connection(address, self._connect_seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            limited = _limited(plain) if context is None else _encrypted(plain, context, hostname)
        except BaseException:
            plain.close()
            raise
        limited.limit = FrameLimit(self._frame_seconds)
        return limited

    def select(self, reads: list[Any], writes: list[Any], errors: list[Any], timeout: float | None = None) -> Any:
        """Wait until one of the sockets is ready."""
        pending = [each for each in reads if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not pending:
            return super().select(reads, writes, errors, timeout)
        readable, writable, failed = super().select(reads, writes, errors, 0)
        return [*readable, *(each for each in pending if each not in readable)], writable, failed

    def hang_up(self) -> None:
        """End the connection, if there is one, from whatever thread."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _limited(plain: socket.socket) -> LimitedSocket:
    timeout_seconds = plain.gettimeout()
    limited = LimitedSocket(fileno=plain.detach())
    limited.settimeout(timeout_seconds)
    return limited


def _encrypted(plain: socket.socket, context: ssl.SSLContext, hostname: str) -> LimitedTlsSocket:
    context.sslsocket_class = LimitedTlsSocket
    encrypted = context.wrap_socket(plain, server_hostname=hostname)
    assert isinstance(encrypted, LimitedTlsSocket)  # noqa: S101 - of the class above
    return encrypted
