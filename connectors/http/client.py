"""HTTP requests with one deadline for the whole call and a limit on the size of the answer.

httpx limits each wait for a byte, so a server that sends byte by byte can hold a call forever, and it reads answers of
any size. Here a request runs on one event loop for the whole process, where `asyncio.timeout` ends it at its deadline.
"""

import asyncio
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import cache
from typing import Any, TypeVar

import httpx

from connectors.redaction import remember_secret

# Addresses of HTTP servers in settings, and the token that goes to them.

_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")


class BearerAuth(httpx.Auth):
    """Adds the present token to each request."""

    def __init__(self, token: Callable[[], str | None]) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header."""
        token = self._token()
        if token is not None:
            remember_secret(token)  # a server may quote the request
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


def url_problems(
    field: str, url: str, example: str = "https://pulsar.example.org:8443", api: str = "/admin/v2"
) -> Iterator[tuple[str, str]]:
    """Yield the problem of a malformed address, without quoting it, because it may hold a password."""
    if not _URL.fullmatch(url) or not _has_host(url):
        yield field, f"is not http(s)://host:port, such as {example}, without user and query"
    elif api in url:
        yield field, f"must end before {api}"


def _has_host(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return bool(parsed.host) and (parsed.port is None or 0 < parsed.port < 65536)


MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Default maximum size of an answer; an answer with 100,000 topics is half as long."""

MAX_CONNECTIONS = 16
"""Maximum number of parallel requests; a server handles them with threads that its own work needs, too."""

_CONNECT_SHARE = 0.9

ENDS_AT = "headgate.ends_at"
"""The extension of a request that ends it earlier: an instant on the monotonic clock, in seconds. Redirects keep it."""

_Result = TypeVar("_Result")


def bounded_client(
    verify: ssl.SSLContext,
    timeout_seconds: float,
    *,
    base_url: str = "",
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Make a client whose requests take at most `timeout_seconds` with their answer, or until their `ENDS_AT`.

    It follows no redirect, so that no other server gets a credential, and uses no proxy of the environment.
    An answer longer than `max_answer_bytes`, or a compressed one, raises DecodingError; tests replace `transport`.
    """
    # At INFO httpx logs each request, thousands for each reading; the readings report their results.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    transport = transport or _Network(verify, timeout_seconds, max_answer_bytes)
    # A short compressed answer could expand to a very long one.
    return httpx.Client(
        base_url=base_url, headers={"Accept-Encoding": "identity"}, trust_env=False, transport=transport
    )


class _Network(httpx.BaseTransport):
    """Reads complete answers within the limits."""

    def __init__(self, verify: ssl.SSLContext, timeout_seconds: float, max_answer_bytes: int) -> None:
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        self._wrapped = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
        self._timeout_seconds = timeout_seconds
        self._max_answer_bytes = max_answer_bytes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return _run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        seconds = min(self._timeout_seconds, request.extensions.get(ENDS_AT, float("inf")) - time.monotonic())
        # Shorter, so that a request which no connection took ends as one that was certainly not sent.
        to_connect = _CONNECT_SHARE * seconds
        request.extensions = {**request.extensions, "timeout": {"connect": to_connect, "pool": to_connect}}
        try:
            async with asyncio.timeout(seconds):
                return await self._read(request)
        except TimeoutError:
            raise httpx.ReadTimeout(f"no answer within {seconds:.2g} s", request=request) from None
        except OSError as error:  # httpx does not map what breaks TLS after its handshake
            raise httpx.ReadError(str(error), request=request) from error
        except httpx.NetworkError as error:
            raise type(error)(_find_reason(error), request=request) from error

    async def _read(self, request: httpx.Request) -> httpx.Response:
        answer = await self._wrapped.handle_async_request(request)
        try:
            if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise httpx.DecodingError("the answer is compressed, which was not asked for", request=request)
            content = bytearray()
            async for chunk in answer.aiter_raw():
                content += chunk
                if len(content) > self._max_answer_bytes:
                    limit = f"{self._max_answer_bytes / 1024**2:g} MiB"
                    raise httpx.DecodingError(f"the answer is longer than {limit}", request=request)
        finally:
            await answer.aclose()
        stream = httpx.ByteStream(bytes(content))
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)

    def close(self) -> None:
        _run(self._wrapped.aclose())


def _find_reason(error: BaseException) -> str:
    """Return the reason at the root of a network error: httpx's own text is "All connection attempts failed"."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or "the connection broke off"


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    with _STARTING:
        loop = _event_loop()
    return asyncio.run_coroutine_threadsafe(work, loop).result()


_STARTING = threading.Lock()
"""`cache` alone lets two threads that ask first start a loop each, and a client must stay on one."""


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Start the event loop of all clients of this process, on its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="http client", daemon=True).start()
    return loop
