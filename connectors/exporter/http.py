"""The HTTP server of a Headgate process: metrics, health and readiness, and for the exporter the status page."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from connectors.http.access import HttpAccess, is_let_in
from connectors.http.responses import HTML, Response, error_response
from connectors.http.server import HttpServer
from policies.errors import UserError
from policies.printable import printable

Check = Callable[[], str | None]
"""None when all is well, else a sentence that says what is wrong."""
Site = Callable[[str], Response | None]
"""From a path to what is there."""

_REQUEST_SECONDS = 10.0
_MOST_UNREAD_BYTES = 65_536
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
"""For anybody: who starts and ends processes has no token."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of each answer. Nothing is taken from elsewhere, and nothing that stands in a page itself is run."""

_log = structlog.get_logger(__name__)


class MetricsServer(HttpServer):
    """Serves metrics and health, and what else there is to see.

    Args:
        registry: what `/metrics` shows, in the format the client asks for (OpenMetrics too), compressed on request.
        host: the address to listen on; empty for all.
        port: 0 for any that is free; `port` tells which.
        healthy: the checks of `/-/healthy`, by name: all None is 200, else 503 and the sentences, one a line.
        ready: the same for `/-/ready`.
        setting: the name of the setting that gives the port, for the error.
        site: what is served at all other paths; None at a path where nothing is.
        access: who may ask, and how it is encrypted.

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
    ) -> None:
        access = access or HttpAccess()
        access.bearer_token()  # a file that cannot be read is said at once
        values = {"registry": registry, "healthy": healthy, "ready": ready, "access": access}
        handler = type("Handler", (_Handler,), {**values, "site": staticmethod(site or _no_site)})
        super().__init__(handler, host, port, name="metrics", setting=setting, tls=access.tls())


class _Handler(MetricsHandler):
    """Answers GET and HEAD; the subclass of each server has its registry, checks and site."""

    timeout = _REQUEST_SECONDS
    server_version = "headgate"
    sys_version = ""
    healthy: Mapping[str, Check]
    ready: Mapping[str, Check]
    access: HttpAccess
    site: Site

    def __getattr__(self, name: str) -> Any:
        """Whatever else may be asked to be done is not."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def do_HEAD(self) -> None:  # noqa: N802 - the library's name
        """As GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        """Answer."""
        path = self.path.partition("?")[0]
        if path not in _OPEN and not self._is_let_in():
            self._demand_token()
            return
        match path:
            case "/metrics":
                super().do_GET()
            case "/-/healthy":
                self._answer_checks(self.healthy)
            case "/-/ready":
                self._answer_checks(self.ready)
            case _:
                self._answer_from_site(path)

    def end_headers(self) -> None:
        """With what is said of each answer; of HEAD this is the end."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()
        if self.command == "HEAD":
            self.wfile = BytesIO()

    def _answer_from_site(self, path: str) -> None:
        try:
            found = self.site(path)
        except Exception:
            _log.exception("a page could not be made", path=path)
            found = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of Headgate's: its log says more")
        if found is not None:
            self._send(found)
        elif path == "/":
            self._answer(HTTPStatus.OK, _INDEX, HTML)
        elif path == "/api" or path.startswith("/api/"):
            self._send(error_response(HTTPStatus.NOT_FOUND, "there is nothing here"))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "not found\n")

    def _answer_checks(self, checks: Mapping[str, Check]) -> None:
        wrong = [f"{name}: {sentence}\n" for name, check in checks.items() if (sentence := _ask(name, check))]
        self._answer(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, "".join(wrong) or "ok\n")

    def _answer(self, status: HTTPStatus, text: str, content_type: str = _TEXT) -> None:
        self._send(Response(printable(text).encode(errors="replace"), content_type, status))

    def _send(self, answer: Response, **headers: str) -> None:
        is_known = answer.is_known(self.headers.get("If-None-Match"))
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else answer.status)
        if answer.status is HTTPStatus.OK:
            self.send_header("ETag", answer.etag)
        self.send_header("Cache-Control", "no-cache")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if not is_known:
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not is_known:
            self.wfile.write(answer.body)

    def _refuse(self) -> None:
        """It reads, and does nothing else: whatever the path."""
        length = self.headers.get("Content-Length", "")
        if _LENGTH.fullmatch(length):
            self.rfile.read(min(int(length), _MOST_UNREAD_BYTES))  # else the answer would be lost with the connection
        sentence = f"{self.command} is not served: this is read-only"
        self._send(error_response(HTTPStatus.METHOD_NOT_ALLOWED, sentence), Allow="GET, HEAD")

    def _is_let_in(self) -> bool:
        try:
            token = self.access.bearer_token()
        except UserError as error:
            _log.warning("nobody is let in: the token cannot be read", detail=str(error))
            return False
        return token is None or is_let_in(self.headers.get("Authorization"), token)

    def _demand_token(self) -> None:
        answer = error_response(
            HTTPStatus.UNAUTHORIZED, "a token is needed, as a bearer's or as basic authentication's password"
        )
        self._send(answer, WWW_Authenticate='Basic realm="headgate", charset="UTF-8", Bearer realm="headgate"')


def _no_site(path: str) -> Response | None:  # noqa: ARG001 - by default there is none
    return None


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        # A check that fails is not a good sign.
        _log.exception("a check failed", check=name)
        return f"the check failed: {type(error).__name__}"
