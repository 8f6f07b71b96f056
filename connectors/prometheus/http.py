"""The HTTP server of a Headgate process: metrics, health and readiness."""

import errno
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from policies.errors import UserError

Check = Callable[[], str | None]
"""Null when all is well, else a sentence that says what is wrong."""

_REQUEST_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"
_INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Headgate</title></head>
<body><h1>Headgate</h1>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/-/healthy">/-/healthy</a>: whether this process works</li>
<li><a href="/-/ready">/-/ready</a>: whether what it says is complete</li>
</ul></body></html>
"""

_log = structlog.get_logger(__name__)


class MetricsServer:
    """Serves from the moment it is made until it is closed; use it as a context manager, or call `close`.

    Args:
        registry: what `/metrics` shows, in the format the client asks for (OpenMetrics too), compressed on request.
        host: the address to listen on; empty for all.
        port: 0 for any that is free; `port` tells which.
        healthy: the checks of `/-/healthy`, by name: all null is 200, else 503 and the sentences, one a line.
        ready: the same for `/-/ready`.
        setting: the name of the setting that gives the port, for the error.

    Raises:
        UserError: it cannot listen there.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        host: str,
        port: int,
        healthy: Mapping[str, Check],
        ready: Mapping[str, Check],
        setting: str = "metrics.port",
    ) -> None:
        handler = type("Handler", (_Handler,), {"registry": registry, "healthy": healthy, "ready": ready})
        try:
            self._server = _server_class(host, port)((host, port), handler)
        except (OSError, OverflowError) as error:
            raise UserError(_why_not(error, host, port, setting)) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening and return when the port is free. May be called twice."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking the name service for our own name, which may take it half a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """A scraper that hangs up is nothing to report; anything else is a fault of ours."""
        _log.debug("a request broke off", client=str(client_address), exc_info=True)


class _Handler(MetricsHandler):
    """Answers GET; the subclass of each server has its registry and checks."""

    timeout = _REQUEST_SECONDS
    healthy: Mapping[str, Check]
    ready: Mapping[str, Check]

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        match urlsplit(self.path).path:
            case "/metrics":
                super().do_GET()
            case "/-/healthy":
                self._answer_checks(self.healthy)
            case "/-/ready":
                self._answer_checks(self.ready)
            case "/":
                self._answer(HTTPStatus.OK, _INDEX, "text/html; charset=utf-8")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "not found\n")

    def _answer_checks(self, checks: Mapping[str, Check]) -> None:
        wrong = [f"{name}: {sentence}\n" for name, check in checks.items() if (sentence := _ask(name, check))]
        self._answer(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, "".join(wrong) or "ok\n")

    def _answer(self, status: HTTPStatus, text: str, content_type: str = _TEXT) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # A check that fails is not a good sign.
        _log.exception("a check failed", check=name)
        return f"the check failed: {type(error).__name__}"


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
