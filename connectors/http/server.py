"""A small HTTP server on its own thread, with a clear error if its port is taken."""

import errno
import socket
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog

from connectors.closing import Closing
from policies.errors import UserError

_CONNECTION_SECONDS = 60.0
"""Limit of a connection. An answer to a slow client takes seconds; a client that sends byte by byte is cut off."""
_MAX_CONNECTIONS = 64
_CHECK_SECONDS = 0.2
"""Interval of the check for connections that take too long."""

_log = structlog.get_logger(__name__)


class HttpServer(Closing):
    """Serves until it is closed; use it as a context manager, or call `close`.

    Args:
        handler: answers requests, each on its own thread.
        host: the address to listen on; empty for all.
        port: 0 for any free port; the attribute `port` has its number.
        name: the name of its thread.
        setting: the name of the port's setting, for the error.
        tls: None for no encryption. The handshake runs on the thread that answers.

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
    ) -> None:
        try:
            self._server = _server_class(host, port)((host, port), handler)
        except (OSError, OverflowError) as error:
            raise UserError(_why_not(error, host, port, setting)) from None
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

    def close(self) -> None:
        """Stop listening, and return when the port is free. May be called twice."""
        with suppress(OSError):  # not every system supports it
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the server's thread
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A server with a time limit for each connection, and a maximum number of connections."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread; close it if there are too many."""
        with self._lock:
            is_taken = len(self._open) < _MAX_CONNECTIONS
            if is_taken:
                self._open[request] = time.monotonic() + _CONNECTION_SECONDS
        if is_taken:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has been served."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; their threads see a broken connection."""
        with self._lock:
            late = [request for request, ends_at in self._open.items() if time.monotonic() > ends_at]
        for request in late:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without a reverse lookup of our own name, which may take half a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """Log it at debug level only, because clients may hang up."""
        _log.debug("a request broke off", client=str(client_address), exc_info=True)


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
