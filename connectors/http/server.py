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
"""An answer to a slow client takes seconds; one who sends a byte now and then is ended."""
_MAX_CONNECTIONS = 64
_LOOK_SECONDS = 0.2
"""It looks so often whether a connection takes too long: a request wakes it at once, and so does its end."""

_log = structlog.get_logger(__name__)


class HttpServer(Closing):
    """Serves from the moment it is made until it is closed; use it as a context manager, or call `close`.

    Args:
        handler: answers requests, each on a thread of its own.
        host: the address to listen on; empty for all.
        port: 0 for any that is free; `port` tells which.
        name: of its thread.
        setting: the name of the setting that gives the port, for the error.
        tls: encrypts, where it is given; who asks shakes hands on the thread that answers.

    Raises:
        UserError: it cannot listen there.
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
            target=self._server.serve_forever, args=(_LOOK_SECONDS,), name=name, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening and return when the port is free. May be called twice."""
        with suppress(OSError):  # not every system can
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes its thread
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Each connection ends after a while, however slowly its client speaks, and there are never more than so many."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own; one too many is closed."""
        with self._lock:
            is_taken = len(self._open) < _MAX_CONNECTIONS
            if is_taken:
                self._open[request] = time.monotonic() + _CONNECTION_SECONDS
        if is_taken:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """It is served."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Now and then: end what takes too long. Its thread sees a broken connection."""
        with self._lock:
            late = [request for request, ends_at in self._open.items() if time.monotonic() > ends_at]
        for request in late:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name, which may take it half a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """Who asks may hang up, which is nothing to report; anything else is a fault of ours."""
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
