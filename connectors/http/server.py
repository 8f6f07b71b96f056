"""A small HTTP server on its own thread, with a clear error if its port is taken."""

import errno
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

import structlog

from policies.errors import UserError

_CONNECTION_SECONDS = 60.0
"""Limit of a connection. An answer to a slow client takes seconds; a client that sends byte by byte is cut off."""
_MAX_CONNECTIONS = 64
"""For one more, a connection of the address that has the most is closed: the oldest one that has sent no request, else
the oldest. So a client that keeps many open loses its own, a health check is always answered, and a scrape ends."""
_REQUEST_SECONDS = 1.0
"""A connection this young may not have sent its request yet."""
_BACKLOG = 128
_CHECK_SECONDS = 0.2
"""Interval of the check for connections that take too long."""

_log = structlog.get_logger(__name__)


class HttpServer:
    """Serves until it is closed; use it as a context manager, or call `close`.

    Args:
        handler: answers requests, each on its own thread.
        host: the address to listen on; empty for all.
        port: 0 for any free port; the attribute `port` has its number.
        setting: the name of the port's setting, for the error.
        tls: None for no encryption. The handshake runs on the thread that answers.
        follow_files: called several times a second, so that `tls` follows its files.

    Raises:
        UserError: it cannot listen on this port.
    """

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        host: str,
        port: int,
        *,
        name: str,
        setting: str,
        tls: ssl.SSLContext | None = None,
        follow_files: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = _listen(handler, host, port, setting)
        self._server.follow_files = follow_files
        if tls is not None:
            listening = self._server.socket
            self._server.socket = tls.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CHECK_SECONDS,), name=name, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and return when the port is free. May be called twice."""
        with suppress(OSError):  # not every system supports it
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the server's thread
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def require_free_port(host: str, port: int, setting: str) -> None:
    """Raise UserError as `HttpServer` does, before anything is started that takes long to end."""
    _listen(BaseHTTPRequestHandler, host, port, setting).server_close()


def _listen(handler: type[BaseHTTPRequestHandler], host: str, port: int, setting: str) -> "_Server":
    try:
        return _server_class(host, port)((host, port), handler)
    except (OSError, OverflowError) as error:
        raise UserError(_why_not(error, host, port, setting)) from None


class _Connection(NamedTuple):
    address: str
    accepted_at: float
    """In seconds of the monotonic clock."""
    is_answered: bool = False
    """Whether its request has come, so that an answer is made or written."""


class _Server(ThreadingHTTPServer):
    """A server with a time limit for each connection, and a maximum number of connections."""

    daemon_threads = True
    request_queue_size = _BACKLOG
    follow_files: Callable[[], None]

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, _Connection] = {}
        """The connections in the order in which they were accepted."""
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread; if there are too many, close another one."""
        with self._lock:
            given_up = self._pop_oldest() if len(self._open) >= _MAX_CONNECTIONS else None
            self._open[request] = _Connection(client_address[0], time.monotonic())
        if given_up is not None:
            _cut(given_up)
        super().process_request(request, client_address)

    def begin_answer(self, request: socket.socket) -> None:
        """Note that a connection's request has come; until it is answered, others are closed before it."""
        with self._lock:
            if request in self._open:
                self._open[request] = self._open[request]._replace(is_answered=True)

    def _pop_oldest(self) -> socket.socket:
        """Forget a connection of the address that has the most; its thread sees a broken connection."""
        counts = Counter(connection.address for connection in self._open.values())
        busiest, young_from = max(counts.values()), time.monotonic() - _REQUEST_SECONDS
        of_busiest = [(request, each) for request, each in self._open.items() if counts[each.address] == busiest]
        silent = (request for request, each in of_busiest if not each.is_answered and each.accepted_at < young_from)
        given_up = next(silent, of_busiest[0][0])
        del self._open[given_up]
        return given_up

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has been served."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; their threads see a broken connection."""
        self.follow_files()
        with self._lock:
            ended = time.monotonic() - _CONNECTION_SECONDS
            late = [request for request, each in self._open.items() if each.accepted_at < ended]
        for request in late:
            _cut(request)

    def server_bind(self) -> None:
        """Bind without a reverse lookup of our own name, which may take half a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """Log it at debug level only, because clients may hang up."""
        _log.debug("a request broke off", client=str(client_address), exc_info=True)


def begin_answer(server: Any, request: socket.socket) -> None:
    """Tell a handler's server that the request of a connection has come."""
    server.begin_answer(request)


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _server_class(host: str, port: int) -> type[_Server]:
    """A server for the kind of address the host has."""
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return type("Server", (_Server,), {"address_family": family})


def _why_not(error: OSError | OverflowError, host: str, port: int, setting: str) -> str:
    where = f"port {port} of {host}" if host else f"port {port}"
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"{setting}: {where} is in use: end what uses it, or set another port."
        case errno.EACCES:
            return f"{setting}: {where} needs rights this process has not: set a port above 1023."
        case _:
            return f"{setting}: cannot listen on {where}: {getattr(error, 'strerror', None) or error}."
