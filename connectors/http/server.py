"""The HTTP server of a Headgate process: metrics, health and readiness, and for the exporter the status page.

uvicorn runs on its own thread with its own event loop, and with a time limit for each connection.
"""

import asyncio
import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Self

import anyio
import structlog
import uvicorn
from anyio.to_thread import run_sync
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.http.access import HttpAccess, has_access, is_own_host, listen
from policies.units import UserError, printable

_CONNECTION_SECONDS = 60.0
"""Limit of a request with its answer, from the connection's beginning or from the last answer. An answer to a slow
client takes seconds; a client that sends or reads byte by byte is cut off."""
_HANDSHAKE_SECONDS = 5.0
"""Limit of a TLS handshake, whose connections are not counted yet."""
_MAX_CONNECTIONS = 64
"""For one more, the oldest connection that waits for no answer is closed, else the oldest: so a client that keeps many
open, silent or unread, loses its own; a health check is answered, and a scrape ends."""
_REQUEST_SECONDS = 0.25
"""A connection this young may not have sent its request yet."""

_HEADERS = {
    "Server": "headgate",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Headers of each response. The browser loads nothing from other hosts, and runs no script inside a page."""


class HttpServer:
    """Serves an ASGI application, which logs its own faults, until it is closed. Listens and raises as `listen` does.

    The attribute `port` has the number of its port.
    """

    def __init__(self, app: Any, host: str, port: int, *, setting: str, tls: ssl.SSLContext | None) -> None:
        self._socket = listen(host, port, setting)
        self.port = int(self._socket.getsockname()[1])
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # it logs each malformed request, and clients may send many
                access_log=False,
                server_header=False,
                proxy_headers=False,
                headers=list(_HEADERS.items()),
                ssl_context_factory=None if tls is None else lambda *_: tls,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="http server", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and return when the port is free. May be called twice."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a short limit for TLS handshakes, which uvicorn has no setting for."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = _HANDSHAKE_SECONDS
        return await super().create_server(*arguments, **options)


class _Connection(H11Protocol):
    """A connection that ends in time, and makes room for another one. uvicorn limits a connection only while idle."""

    begun_at = 0.0
    """The instant on the loop's clock at which it was opened, or at which its last answer was made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._begin()
        while len(self.connections) > _MAX_CONNECTIONS:
            oldest = min(self.connections, key=self._precedence)
            self.connections.discard(oldest)
            oldest.transport.abort()

    def on_response_complete(self) -> None:
        self._limit.cancel()
        super().on_response_complete()
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self.begun_at = self.loop.time()
        self._limit = self.loop.call_later(_CONNECTION_SECONDS, self.transport.abort)

    def _precedence(self, other: Any) -> tuple[bool, float]:
        """Return the key by which the first connection to close is the least."""
        waits_for_answer = other.cycle is not None and not other.cycle.response_complete
        return waits_for_answer or other.begun_at > self.begun_at - _REQUEST_SECONDS, other.begun_at


# The routes of all processes.

Check = Callable[[], str | None]
"""Returns None if all is well, else a sentence about the problem."""
Site = Callable[[str], Response | None]
"""Returns the response for a path as it was sent; None if the path does not exist."""

_QUEUE_SECONDS = 5.0
"""Half of the time that Prometheus waits for a scrape."""
_MOST_RENDERED = 2
"""Answers that are made at once. Each takes a second of processor time in a large fleet, and health checks share the
processor with all of them."""
_HEALTHY, _READY = "/-/healthy", "/-/ready"
_INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Headgate</title></head>
<body><h1>Headgate</h1>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/-/healthy">/-/healthy</a>: whether this process works</li>
<li><a href="/-/ready">/-/ready</a>: whether what it says is complete</li>
</ul></body></html>
"""
_STATIC = StaticFiles(packages=[("connectors.exporter.page", "static")])

_log = structlog.get_logger(__name__)


class MetricsServer(HttpServer):
    """Serves metrics, health checks, and a site. Raises as `HttpServer` does, and if a file of `access` cannot be used.

    Args:
        healthy: the checks of `/-/healthy`, by name. The status is 200 if all return None; otherwise it is 503, and
            the body has one sentence a line.
        ready: the same for `/-/ready`.
        site: serves all other paths.
        names: further names by which clients call this server, for their header `Host`.
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
        pages = _Pages(registry, site or (lambda _: None))
        app = Starlette(
            routes=[
                Route(_HEALTHY, partial(_answer_checks, healthy)),
                Route(_READY, partial(_answer_checks, ready)),
                Route("/metrics", pages.metrics),
                Mount("/static", _STATIC),
                Route("/{path:path}", pages.page),
            ],
            middleware=[Middleware(_Guard, names=(host, *names), access=access)],
            exception_handlers={HTTPException: _refuse, Exception: _fail},
        )
        super().__init__(app, host, port, setting=setting, tls=access.tls())


class _Pages:
    """Makes whole answers on threads, so that a client that reads slowly keeps no other one waiting."""

    def __init__(self, registry: CollectorRegistry, site: Site) -> None:
        self._registry = registry
        self._site = site
        self._rendered = anyio.CapacityLimiter(_MOST_RENDERED)

    async def metrics(self, request: Request) -> Response:
        """Serve the metrics."""
        response: Response = await self._render(request, partial(_write_metrics, self._registry, request))
        return response

    async def page(self, request: Request) -> Response:
        """Serve a path of the site."""
        path = request.scope["raw_path"].decode("latin-1")
        found = await self._render(request, partial(self._site, path))
        if found is None and path == "/":
            found = HTMLResponse(_INDEX)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is nothing here")
        return _conditional(request, found)

    async def _render(self, request: Request, make: Callable[[], Any]) -> Any:
        try:
            with anyio.fail_after(_QUEUE_SECONDS):
                await self._rendered.acquire()
        except TimeoutError:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try again") from None
        try:
            if await request.is_disconnected():
                raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the client has gone")
            return await run_sync(make)
        finally:
            self._rendered.release()


def _write_metrics(registry: CollectorRegistry, request: Request) -> Response:
    names, encodings = request.query_params.getlist("name[]"), request.headers.get("Accept-Encoding", "")
    encode, media_type = choose_encoder(request.headers.get("Accept", ""))
    text = encode(registry.restricted_registry(names) if names else registry)
    headers = {"Content-Type": media_type, "Vary": "Accept-Encoding"}
    if "gzip" in encodings:
        text, headers["Content-Encoding"] = gzip.compress(text, compresslevel=6), "gzip"
    return Response(text, headers=headers)


def json_response(document: BaseModel | Mapping[str, object], status: int = HTTPStatus.OK, **headers: str) -> Response:
    """Make a response in ASCII, so that foreign names cannot send control characters to a terminal."""
    content = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    body = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(f"{body}\n", status, headers, "application/json")


def error_response(status: int, sentence: str, **headers: str) -> Response:
    """Make an error response."""
    return json_response({"status": status, "error": sentence}, status, **headers)


def _conditional(request: Request, response: Response) -> Response:
    """Send nothing to a client that has the response already, by `If-None-Match`."""
    if response.status_code != HTTPStatus.OK:
        return response
    if "ETag" not in response.headers:  # the site returns one response several times
        response.headers["ETag"] = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
    return (
        NotModifiedResponse(response.headers)
        if _STATIC.is_not_modified(response.headers, request.headers)
        else response
    )


async def _answer_checks(checks: Mapping[str, Check], _: Request) -> Response:
    problems = await run_sync(_find_problems, checks)
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return PlainTextResponse(printable(problems or "ok\n").encode(errors="replace"), status)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as it is registered
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return error_response(error.status_code, "only GET and HEAD are served: this is read-only", Allow="GET, HEAD")
    return error_response(error.status_code, error.detail)


async def _fail(request: Request, error: Exception) -> Response:
    _log.error("an answer failed", path=request.url.path, exc_info=error)
    return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of Headgate's: its log says more")


class _Guard:
    """Refuses requests to another server's name, and requests without the token; health checks need none.

    Starlette's TrustedHostMiddleware knows no pattern for any address.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], access: HttpAccess) -> None:
        self._app = app
        self._names = names
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer, headers = self._app, Headers(scope=scope)
        if not is_own_host(headers.get("Host"), self._names):
            sentence = "the name in the header Host is not this server's: list it in http.host_names if it is"
            answer = error_response(HTTPStatus.MISDIRECTED_REQUEST, sentence)
        elif scope["path"] not in (_HEALTHY, _READY) and not self._has_token(headers):
            sentence = "a token is needed, as a bearer's or as basic authentication's password"
            challenge = 'Basic realm="headgate", charset="UTF-8", Bearer realm="headgate"'
            answer = error_response(HTTPStatus.UNAUTHORIZED, sentence, **{"WWW-Authenticate": challenge})
        await answer(scope, receive, send)

    def _has_token(self, headers: Headers) -> bool:
        """Whether the request has the token, as it is now in its file."""
        try:
            token = self._access.bearer_token()
        except UserError as error:
            _log.warning("every request is refused: the token cannot be read", detail=str(error))
            return False
        return token is None or has_access(headers.get("Authorization"), token)


def _find_problems(checks: Mapping[str, Check]) -> str:
    lines = ""
    for name, check in checks.items():
        try:
            problem = check()
        except Exception as error:  # it counts as a problem, too
            _log.exception("a check failed", check=name)
            problem = f"the check failed: {type(error).__name__}"
        lines += "" if problem is None else f"{name}: {problem}\n"
    return lines
