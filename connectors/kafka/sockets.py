"""Sockets for kafka-python that fix its shortcomings, through the hooks it offers.

- It sets no limit to a TLS handshake: a stopped process, whose kernel still accepts connections, blocks it for ever.
- It leaves the sockets of failed connects and handshakes to the garbage collector.
- It drops data received together with the end of the stream. A broker that refuses a login answers and closes at once,
  so the refusal would mostly look like a lost connection.
"""

import ssl
import time
from contextlib import suppress
from socket import SHUT_RDWR, SOCK_STREAM
from socket import socket as Socket  # noqa: N812  # a method below has to be named `socket`
from typing import Any

from kafka.net.inet import KafkaNetSocket

PROXY_URL = "headgate://"
"""The `proxy_url` that makes kafka-python take these sockets; nothing is proxied."""


class _DataBeforeEofSocket(Socket):
    """Reports the end of the stream one call later when it comes right after data, so that the data is handled."""

    _has_unhandled = False

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        has_unhandled, self._has_unhandled = self._has_unhandled, False
        data = super().recv(buflen, flags)
        if not data and has_unhandled:
            raise BlockingIOError
        self._has_unhandled = bool(data)
        return data


class _TlsSocket(_DataBeforeEofSocket, ssl.SSLSocket):
    """The same, encrypted; its handshake is among `handshakes` while it lasts, and the socket closed when it fails."""

    handshakes: "Handshakes"

    def do_handshake(self, block: bool = False) -> None:
        self.handshakes.began.setdefault(self, time.monotonic())
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException as error:
            self.close()
            del self.handshakes.began[self]
            if self in self.handshakes.ended:
                # Whoever asked meanwhile waits for the same connection: to them, too, it is the broker that hangs.
                self.handshakes.ended.discard(self)
                raise TimeoutError("it timed out") from error
            raise
        del self.handshakes.began[self]


class Handshakes:
    """The TLS handshakes that a client is at, so that they can be ended."""

    def __init__(self) -> None:
        self.began: dict[_TlsSocket, float] = {}
        self.ended: set[_TlsSocket] = set()
        """Those that were ended here, and have not failed yet."""

    def end_older_than(self, seconds: float) -> None:
        """Let handshakes fail that have taken longer; to be called on the client's input-output thread."""
        for sock, began in list(self.began.items()):
            if time.monotonic() - began > seconds:
                self.ended.add(sock)
                # Not closed: the selector watches it, and will find it at its end.
                with suppress(OSError):
                    Socket.shutdown(sock, SHUT_RDWR)

    def close(self) -> None:
        """Close what is left when the client has ended."""
        while self.began:
            self.began.popitem()[0].close()
        self.ended.clear()


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """Connects without a proxy; kafka-python finds this class by the scheme of `PROXY_URL`."""

    SCHEMES = (PROXY_URL.partition(":")[0],)

    def socket(self, family: int = -1, kind: int = SOCK_STREAM, protocol: int = 0) -> Socket:
        """A socket to connect."""
        return _DataBeforeEofSocket(family, kind, protocol)

    async def sock_connect(self, net: Any, sock: Socket, address: Any, timeout_at: float | None = None) -> Any:
        """Connect, or close the socket and raise."""
        try:
            return await super().sock_connect(net, sock, address, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


def with_sockets(options: dict[str, Any]) -> tuple[dict[str, Any], Handshakes]:
    """Options of one kafka-python client with these sockets, and the handshakes it will be at."""
    handshakes = Handshakes()
    if "ssl_context" in options:
        options["ssl_context"].sslsocket_class = type("_TlsSocketOfClient", (_TlsSocket,), {"handshakes": handshakes})
    return {**options, "proxy_url": PROXY_URL}, handshakes
