"""Addresses of HTTP servers in settings, and the token that goes to them."""

import re
from collections.abc import Callable, Generator, Iterator

import httpx

from connectors.redaction import remember_secret

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
