"""The HTTP server of a Headgate process: metrics, health and readiness."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from connectors.http_server import HttpServer
from connectors.printable import printable

Check = Callable[[], str | None]
"""None when all is well, else a sentence that says what is wrong."""

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


class MetricsServer(HttpServer):
    """Serves metrics and health.

    Args:
        registry: what `/metrics` shows, in the format the client asks for (OpenMetrics too), compressed on request.
        host: the address to listen on; empty for all.
        port: 0 for any that is free; `port` tells which.
        healthy: the checks of `/-/healthy`, by name: all None is 200, else 503 and the sentences, one a line.
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
        super().__init__(handler, host, port, name="metrics", setting=setting)


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
        body = printable(text).encode(errors="replace")
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
