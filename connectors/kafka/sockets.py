"""Sockets for kafka-python that work around its defects, through the hooks it offers.

- It has no limit for a TLS handshake. A stopped process, whose kernel still accepts connections, blocks it forever.
- It leaves the sockets of failed connects and handshakes to the garbage collector.
- It drops data that arrives together with the end of the stream. A broker that refuses a login answers and closes at
  once, so the refusal would mostly look like a lost connection.
"""

import ssl
import time
from contextlib import suppress
from socket import SHUT_RDWR, SOCK_STREAM
from socket import socket as Socket  # noqa: N812  # a method below has to be named `socket`
from typing import Any

from kafka.net.inet import KafkaNetSocket

PROXY_URL = "headgate://"
"""The `proxy_url` that makes kafka-python use these sockets; there is no proxy."""


class _DataBeforeEofSocket(Socket):
    """Reports an end of the stream that follows data one call later, so that the data is handled."""

    _has_unhandled = False

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        has_unhandled, self._has_unhandled = self._has_unhandled, False
        data = super().recv(buflen, flags)
        if not data and has_unhandled:
            raise BlockingIOError
        self._has_unhandled = bool(data)
        return data


class _TlsSocket(_DataBeforeEofSocket, ssl.SSLSocket):
    """The same with TLS. `handshakes` lists its handshake while it lasts; a failed handshake closes the socket."""

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
                # Other requests wait for the same connection, so they must get a timeout, too.
                self.handshakes.ended.discard(self)
                raise TimeoutError("it timed out") from error
            raise
        del self.handshakes.began[self]


class Handshakes:
    """The running TLS handshakes of a client, so that they can be ended."""

    def __init__(self) -> None:
        self.began: dict[_TlsSocket, float] = {}
        self.ended: set[_TlsSocket] = set()
        """Handshakes that were ended here and have not failed yet."""

    def end_older_than(self, seconds: float) -> None:
        """End handshakes that have taken longer; call it on the client's input-output thread."""
        for sock, began in list(self.began.items()):
            if time.monotonic() - began > seconds:
                self.ended.add(sock)
                # Shut down instead of closed, because the selector still watches the socket.
                with suppress(OSError):
                    Socket.shutdown(sock, SHUT_RDWR)

    def close(self) -> None:
        """Close the remaining sockets after the client has ended."""
        while self.began:
            self.began.popitem()[0].close()
        self.ended.clear()


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """Connects without a proxy; kafka-python selects this class by the scheme of `PROXY_URL`."""

    SCHEMES = (PROXY_URL.partition(":")[0],)

    def socket(self, family: int = -1, kind: int = SOCK_STREAM, protocol: int = 0) -> Socket:
        """Make a socket."""
        return _DataBeforeEofSocket(family, kind, protocol)

    async def sock_connect(self, net: Any, sock: Socket, address: Any, timeout_at: float | None = None) -> Any:
        """Connect, or close the socket and raise."""
        try:
            return await super().sock_connect(net, sock, address, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


def with_sockets(options: dict[str, Any]) -> tuple[dict[str, Any], Handshakes]:
    """Return the options of one kafka-python client with these sockets, and its handshakes."""
    handshakes = Handshakes()
    if "ssl_context" in options:
        options["ssl_context"].sslsocket_class = type("_TlsSocketOfClient", (_TlsSocket,), {"handshakes": handshakes})
    return {**options, "proxy_url": PROXY_URL}, handshakes
