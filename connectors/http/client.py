"""HTTP requests with one deadline for the whole call and a limit on the size of the answer.

httpx limits each wait for a byte, so a server that sends byte by byte can hold a call forever, and it reads answers of
any size. Here every wait on the network ends at the call's deadline, except name resolution, which has its own limits.
"""

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import httpcore
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

_TIMEOUTS = ("connect", "read", "write", "pool")
_ends_at: ContextVar[float | None] = ContextVar("ends_at", default=None)


class OversizedAnswerError(httpx.RequestError):
    """The answer exceeds the maximum size."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the total time of this thread's requests; an earlier deadline in force stays."""
    ends_at, outer = time.monotonic() + seconds, _ends_at.get()
    token = _ends_at.set(ends_at if outer is None else min(outer, ends_at))
    try:
        yield
    finally:
        _ends_at.reset(token)


def bounded_client(
    verify: ssl.SSLContext,
    timeout_seconds: float,
    *,
    base_url: str = "",
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Make a client whose requests take at most `timeout_seconds` with their answer, or the rest of a `deadline`.

    It follows no redirect, so that no other server gets a credential, and uses no proxy of the environment.

    Args:
        timeout_seconds: limit of one request, connecting included.
        max_answer_bytes: a longer answer raises OversizedAnswerError.
        transport: replaces the network in tests.
    """
    # At INFO httpx logs each request, thousands for each reading; the readings report their results.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    bounded = _Bounded(transport or _Network(verify), timeout_seconds, max_answer_bytes)
    # A short compressed answer could expand to a very long one.
    return httpx.Client(base_url=base_url, headers={"Accept-Encoding": "identity"}, trust_env=False, transport=bounded)


class _Bounded(httpx.BaseTransport):
    """Reads complete answers within the limits."""

    def __init__(self, wrapped: httpx.BaseTransport, timeout_seconds: float, max_answer_bytes: int) -> None:
        self._wrapped = wrapped
        self._timeout_seconds = timeout_seconds
        self._max_answer_bytes = max_answer_bytes

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with deadline(self._timeout_seconds):
            left_seconds = _left_seconds(lambda: httpx.ConnectTimeout("no time was left for it", request=request))
            request.extensions["timeout"] = dict.fromkeys(_TIMEOUTS, left_seconds)
            answer = self._wrapped.handle_request(request)
            try:
                return self._read(request, answer)
            finally:
                answer.close()

    def _read(self, request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise httpx.DecodingError("the answer is compressed, which was not asked for", request=request)
        content = bytearray()
        assert isinstance(answer.stream, httpx.SyncByteStream)  # noqa: S101 - as every transport of a client
        for chunk in answer.stream:
            content += chunk
            if len(content) > self._max_answer_bytes:
                limit = f"{self._max_answer_bytes / 1024**2:g} MiB"
                raise OversizedAnswerError(f"the answer is longer than {limit}", request=request)
            _left_seconds(lambda: httpx.ReadTimeout("", request=request))
        stream = httpx.ByteStream(bytes(content))
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, extensions=answer.extensions)

    def close(self) -> None:
        self._wrapped.close()


class _Network(httpx.HTTPTransport):
    def __init__(self, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify, trust_env=False)
        # httpx has no parameter for the network backend. Replacing the pool keeps httpx's mapping of exceptions.
        self._pool = httpcore.ConnectionPool(
            ssl_context=verify,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=5.0,
            network_backend=_Backend(),
        )


class _Backend(httpcore.SyncBackend):
    """Connects to one address after the other, within the deadline."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline is shorter
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter for a name that the DNS cannot have
            raise httpcore.ConnectError(str(error)) from None
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, address in found:
            try:
                left_seconds = _left_seconds(httpcore.ConnectTimeout)
                stream = super().connect_tcp(str(address[0]), port, left_seconds, local_address, socket_options)
                return _Stream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore.NetworkStream):
    """A connection whose waits end at the deadline of the present call."""

    def __init__(self, wrapped: httpcore.NetworkStream) -> None:
        self._wrapped = wrapped

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - the deadline is shorter
        return self._wrapped.read(max_bytes, _left_seconds(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - the deadline is shorter
        self._wrapped.write(buffer, _left_seconds(httpcore.WriteTimeout))

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - the deadline is shorter
    ) -> httpcore.NetworkStream:
        left_seconds = _left_seconds(httpcore.ConnectTimeout)
        return _Stream(self._wrapped.start_tls(ssl_context, server_hostname, left_seconds))

    def get_extra_info(self, info: str) -> Any:
        return self._wrapped.get_extra_info(info)

    def close(self) -> None:
        with suppress(OSError):
            self._wrapped.close()


def _left_seconds(too_late: Callable[[], Exception]) -> float:
    """Return the time until the deadline in force; raises `too_late` if it is over."""
    ends_at = _ends_at.get()
    left_seconds = float("inf") if ends_at is None else ends_at - time.monotonic()
    if left_seconds <= 0:
        raise too_late()
    return left_seconds
