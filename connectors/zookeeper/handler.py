"""A kazoo handler with threads and sockets that fixes hangs and lost error reasons.

Its sockets limit the size and the time of an answer, for which kazoo has no limits. An answer is four bytes of length
and then as many bytes. kazoo requests from a socket the rest of either, never more.
"""

import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from connectors.http.tls import Tls
from policies.errors import UserError

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum size of an answer. ZooKeeper's own limit is 1 MB; Pulsar recommends 10 MB."""

_LENGTH_BYTES = 4


class FrameLimit:
    """Checks the answers of one connection.

    `frame_seconds` is the limit from the first byte of an answer to its last.
    """

    def __init__(self, frame_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._frame_seconds = frame_seconds
        self._clock = clock
        self._length = b""
        self._left_bytes = 0
        self._ends_at: float | None = None

    def check(self, wanted_bytes: int) -> None:
        """Check before a read of `wanted_bytes`.

        Raises:
            OSError: the answer is too long, or takes too long; the connection must end.
        """
        if wanted_bytes > MAX_FRAME_BYTES:
            raise OSError(errno.EMSGSIZE, f"an answer is longer than {MAX_FRAME_BYTES // 1024**2} MiB")
        if self._ends_at is None:
            self._ends_at = self._clock() + self._frame_seconds
        elif self._clock() > self._ends_at:
            raise TimeoutError(errno.ETIMEDOUT, f"an answer had no end within {self._frame_seconds:.2g} s")

    def count(self, data: bytes) -> bytes:
        """Count received bytes, and return them."""
        missing = _LENGTH_BYTES - len(self._length)
        self._length += data[:missing]
        if missing and len(self._length) == _LENGTH_BYTES:
            self._left_bytes = int.from_bytes(self._length, signed=True)
        self._left_bytes -= len(data[missing:])
        if len(self._length) == _LENGTH_BYTES and self._left_bytes <= 0:
            self._length, self._left_bytes, self._ends_at = b"", 0, None
        return data


class _LimitedSocket(socket.socket):
    limit: FrameLimit

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        self.limit.check(bufsize)
        return self.limit.count(super().recv(bufsize, flags))


class _LimitedTlsSocket(ssl.SSLSocket):
    limit: FrameLimit

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        self.limit.check(buflen)
        return self.limit.count(super().recv(buflen, flags))


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """The handler of one kazoo client.

    - TLS follows `Tls`: only its own authorities are trusted, the host name is checked, and the next connection reads
      changed files. It never asks for a key's password on the terminal, as kazoo would.
    - It sees replies that are already decrypted in a TLS socket; kazoo would wait for more bytes on the wire.
    - `obstacles` holds the reasons for a missing connection; kazoo only logs them.
    - `hang_up` ends a connection to a server that does not answer. A connection whose answer has no end, or trickles,
      ends by itself.

    Args:
        connect_seconds: limit for connecting to one server.
        frame_seconds: limit for the bytes of one answer.
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
            limited: Any
            if context is None:
                timeout_seconds = plain.gettimeout()
                limited = _LimitedSocket(fileno=plain.detach())
                limited.settimeout(timeout_seconds)
            else:
                context.sslsocket_class = _LimitedTlsSocket
                limited = context.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise
        limited.limit = FrameLimit(self._frame_seconds)
        return limited  # type: ignore[no-any-return]

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
