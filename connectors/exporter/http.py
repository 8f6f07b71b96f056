"""The HTTP server of a Headgate process: metrics, health and readiness, and for the exporter the status page."""

import re
import threading
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from connectors.http.server import (
    HTML,
    HttpAccess,
    HttpServer,
    Response,
    TlsContext,
    begin_answer,
    error_response,
    has_access,
    is_own_host,
)
from policies.units import UserError, printable

Check = Callable[[], str | None]
"""Returns None if all is well, else a sentence about the problem."""
Site = Callable[[str], Response | None]
"""Returns the response for a path; None if the path does not exist."""

_REQUEST_SECONDS = 10.0
_MOST_UNREAD_BYTES = 65_536
_MOST_RENDERED = 2
"""Answers that are made at once. Each takes a second of processor time in a large fleet, and health checks share the
processor with all of them."""
_LENGTH = re.compile("[0-9]{1,18}")
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
_OPEN = frozenset({"/-/healthy", "/-/ready"})
"""Served without a token, because the orchestrator that starts and ends processes has none."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each response. The browser loads nothing from other hosts, and runs no script inside a page."""

_log = structlog.get_logger(__name__)


class MetricsServer(HttpServer):
    """Serves metrics, health checks, and a site.

    Args:
        registry: the metrics of `/metrics`, in the format that the client asks for, compressed on request.
        port: 0 for any free port, which the attribute `port` then holds.
        healthy: the checks of `/-/healthy`, by name. The status is 200 if all return None; otherwise it is 503, and
            the body has one sentence a line.
        ready: the same for `/-/ready`.
        setting: the name of the port's setting, for the error.
        site: serves all other paths.
        names: further names by which clients call this server, for their header `Host`.

    Raises:
        UserError: it cannot listen there, or a file that `access` names cannot be used.
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
        site: Site | None = None,
        access: HttpAccess | None = None,
        names: Collection[str] = (),
    ) -> None:
        access = access or HttpAccess()
        access.bearer_token()  # raises at once if its file cannot be read
        values = {"registry": registry, "healthy": healthy, "ready": ready, "access": access, "names": (host, *names)}
        values["rendering"] = threading.BoundedSemaphore(_MOST_RENDERED)
        handler = type("Handler", (_Handler,), {**values, "site": staticmethod(site or (lambda _: None))})
        tls = TlsContext(access)
        super().__init__(
            handler, host, port, name="metrics", setting=setting, tls=tls.context, follow_files=tls.follow_files
        )


class _Handler(MetricsHandler):
    """Serves GET and HEAD; the subclass of each server has its registry, checks and site."""

    timeout = _REQUEST_SECONDS
    server_version = "headgate"
    sys_version = ""
    healthy: Mapping[str, Check]
    ready: Mapping[str, Check]
    access: HttpAccess
    names: tuple[str, ...]
    site: Site
    rendering: threading.BoundedSemaphore

    def __getattr__(self, name: str) -> Any:
        """Refuse every method but those defined below."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def do_HEAD(self) -> None:  # noqa: N802 - the library's name
        """Serve the headers of GET."""
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        """Serve a path."""
        begin_answer(self.server, self.connection)
        path = self.path.partition("?")[0]
        if not is_own_host(self.headers.get("Host"), self.names):
            sentence = "the name in the header Host is not this server's: list it in http.host_names if it is"
            self._send(error_response(HTTPStatus.MISDIRECTED_REQUEST, sentence))
            return
        if path not in _OPEN and not self._is_authorized():
            sentence = "a token is needed, as a bearer's or as basic authentication's password"
            challenge = 'Basic realm="headgate", charset="UTF-8", Bearer realm="headgate"'
            self._send(error_response(HTTPStatus.UNAUTHORIZED, sentence), WWW_Authenticate=challenge)
            return
        match path:
            case "/-/healthy":
                self._send_checks(self.healthy)
            case "/-/ready":
                self._send_checks(self.ready)
            case _:
                self._render(path)

    def end_headers(self) -> None:
        """Add the headers of each response; a response to HEAD ends here."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()
        if self.command == "HEAD":
            self.wfile = BytesIO()

    def _render(self, path: str) -> None:
        """Make the whole answer first, so that a client that reads slowly keeps no other one waiting."""
        if not self.rendering.acquire(timeout=_REQUEST_SECONDS):
            self._send(error_response(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try again"))
            return
        client, answer = self.wfile, BytesIO()
        try:
            self.wfile = answer
            if path == "/metrics":
                super().do_GET()
            else:
                self._send_site(path)
        finally:
            self.rendering.release()
            self.wfile = client
        client.write(answer.getbuffer())

    def _send_site(self, path: str) -> None:
        try:
            found = self.site(path)
        except Exception:
            _log.exception("rendering a page failed", path=path)
            found = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of Headgate's: its log says more")
        if found is not None:
            self._send(found)
        elif path == "/":
            self._send_text(HTTPStatus.OK, _INDEX, HTML)
        elif path == "/api" or path.startswith("/api/"):
            self._send(error_response(HTTPStatus.NOT_FOUND, "there is nothing here"))
        else:
            self._send_text(HTTPStatus.NOT_FOUND, "not found\n")

    def _send_checks(self, checks: Mapping[str, Check]) -> None:
        problems = [f"{name}: {problem}\n" for name, check in checks.items() if (problem := _run_check(name, check))]
        self._send_text(HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK, "".join(problems) or "ok\n")

    def _send_text(self, status: HTTPStatus, text: str, content_type: str = _TEXT) -> None:
        self._send(Response(printable(text).encode(errors="replace"), content_type, status))

    def _send(self, response: Response, **headers: str) -> None:
        is_known = response.is_known(self.headers.get("If-None-Match"))
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else response.status)
        if response.status is HTTPStatus.OK:
            self.send_header("ETag", response.etag)
        self.send_header("Cache-Control", "no-cache")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if not is_known:
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if not is_known:
            self.wfile.write(response.body)

    def _refuse(self) -> None:
        """Refuse a method on any path: the server is read-only."""
        length = self.headers.get("Content-Length", "")
        if _LENGTH.fullmatch(length):
            # If the body stays unread, the client loses the response together with the connection.
            self.rfile.read(min(int(length), _MOST_UNREAD_BYTES))
        sentence = f"{self.command} is not served: this is read-only"
        self._send(error_response(HTTPStatus.METHOD_NOT_ALLOWED, sentence), Allow="GET, HEAD")

    def _is_authorized(self) -> bool:
        try:
            token = self.access.bearer_token()
        except UserError as error:
            _log.warning("every request is refused: the token cannot be read", detail=str(error))
            return False
        return token is None or has_access(self.headers.get("Authorization"), token)


def _run_check(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # An exception counts as a problem, too.
        _log.exception("a check failed", check=name)
        return f"the check failed: {type(error).__name__}"
