"""Sockets to ZooKeeper that limit the length and the time of an answer, for which kazoo has no limits.

An answer is four bytes of length and then as many bytes. kazoo asks a socket for what is left of either, never for
more.
"""

import errno
import socket
import ssl
import time
from collections.abc import Callable

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Of one answer: ZooKeeper's own bound is 1 MB, and Pulsar's advice for it 10 MB."""

_LENGTH_BYTES = 4


class FrameLimit:
    """Follows the answers of one connection.

    Args:
        frame_seconds: from the first byte of an answer to its last.
        clock: seconds, never going backwards.
    """

    def __init__(self, frame_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._frame_seconds = frame_seconds
        self._clock = clock
        self._length = b""
        self._left_bytes = 0
        self._ends_at: float | None = None

    def ask(self, wanted_bytes: int) -> None:
        """Bytes are about to be read.

        Raises:
            OSError: they are too many, or the answer they belong to has taken too long: the connection is to end.
        """
        if wanted_bytes > MAX_FRAME_BYTES:
            raise OSError(errno.EMSGSIZE, f"an answer is longer than {MAX_FRAME_BYTES // 1024**2} MiB")
        if self._ends_at is None:
            self._ends_at = self._clock() + self._frame_seconds
        elif self._clock() > self._ends_at:
            raise TimeoutError(errno.ETIMEDOUT, f"an answer had no end within {self._frame_seconds:.2g} s")

    def take(self, data: bytes) -> None:
        """So many were read."""
        missing = _LENGTH_BYTES - len(self._length)
        self._length += data[:missing]
        if missing and len(self._length) == _LENGTH_BYTES:
            self._left_bytes = int.from_bytes(self._length, signed=True)
        self._left_bytes -= len(data[missing:])
        if len(self._length) == _LENGTH_BYTES and self._left_bytes <= 0:
            self._length, self._left_bytes, self._ends_at = b"", 0, None


class LimitedSocket(socket.socket):
    """Without encryption; `limit` is set before it is read from."""

    limit: FrameLimit

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Read within the limit."""
        self.limit.ask(bufsize)
        data = super().recv(bufsize, flags)
        self.limit.take(data)
        return data


class LimitedTlsSocket(ssl.SSLSocket):
    """Encrypted; `limit` is set before it is read from."""

    limit: FrameLimit

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read within the limit."""
        self.limit.ask(buflen)
        data = super().recv(buflen, flags)
        self.limit.take(data)
        return data
