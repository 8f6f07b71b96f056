"""JSON requests over HTTP: validates answers, classifies failures, and renews connections."""

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import httpx
import tenacity
from pydantic import FailFast, TypeAdapter, ValidationError

from connectors.collection.read_errors import first_problem
from connectors.http.client import deadline
from connectors.pulsar.outcomes import AdminError, refusal, request_line, shape_error
from policies.observations import Outcome

_ATTEMPTS = 3
_LONGEST_WAIT_SECONDS = 0.5
_REDIRECTS = 5  # a broker redirects to a bundle's owner, and the owner may just have changed

_MAX_OBJECT_BYTES = 2 * 1024 * 1024
"""Maximum size of an answer that is no list; enough for 15,000 bundles. Validation lists every error of a wrong object,
at 1 kB each, but only the first one of a list (see `Names`)."""

_PASSING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)

Names = Annotated[tuple[str, ...], FailFast()]
"""A list of names, which may be long; validation stops at the first error."""

Parsed = TypeVar("Parsed")


class RestClient:
    """One server's REST API, for any number of threads.

    Args:
        fingerprint: returns the state of the client's files; when it changes, a new client is made.
        timeout_seconds: limit of a call with its retries and redirects.
        may_follow: whether to follow a redirect to another host, with the token; by default never.
    """

    def __init__(
        self,
        build: Callable[[], httpx.Client],
        fingerprint: Callable[[], object],
        timeout_seconds: float,
        may_follow: Callable[[httpx.URL], bool] = lambda _: False,
    ) -> None:
        self._build = build
        self._fingerprint = fingerprint
        self._timeout_seconds = timeout_seconds
        self._may_follow = may_follow
        self._lock = threading.Lock()
        self._made_of: object = None
        self._client: httpx.Client | None = None
        self._retired: list[httpx.Client] = []

    def get(self, path: str, shape: TypeAdapter[Parsed], params: Mapping[str, str] | None = None) -> Parsed:
        """Read a document; an empty answer counts as null.

        It makes up to three attempts if the server drops the connection or is too busy. It does not retry if no server
        listens or the time is over, because its callers poll anyway.

        Raises:
            AdminError: the server refuses, or its answer has another shape.
            httpx.RequestError: there is no answer.
            UserError: a file of the connection cannot be used.
        """
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_LONGEST_WAIT_SECONDS),
            retry=tenacity.retry_if_exception(_is_transient),
            reraise=True,
        )
        with deadline(self._timeout_seconds):
            return _parse(retrying(self.send, "GET", path, params=params), shape)

    def send(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Any = None
    ) -> httpx.Response:
        """Send a request once, and return a successful answer. Raises as `get` does.

        It follows redirects with the token, as Pulsar's own clients do. It never follows one from https to http, nor to
        a host that neither the settings name nor `may_follow` allows.
        """
        client = self._current()
        request = client.build_request(method, path, params=params, json=json)
        with deadline(self._timeout_seconds):
            for _ in range(_REDIRECTS):
                response = client.send(request)
                if response.next_request is None:
                    break
                request = self._checked_redirect(client, request, response.next_request)
        error = refusal(response)
        if error is not None:
            raise error
        return response

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        with self._lock:
            clients = [*self._retired, *([self._client] if self._client is not None else [])]
            self._client, self._retired = None, []
        for client in clients:
            client.close()

    def _checked_redirect(self, client: httpx.Client, request: httpx.Request, target: httpx.Request) -> httpx.Request:
        if request.url.scheme == "https" and target.url.scheme != "https":
            message = f"{request_line(request)}: redirected to plain http, where it would be seen by others"
            raise AdminError(Outcome.ERROR, message)
        if target.url.userinfo or not (target.url.host == client.base_url.host or self._may_follow(target.url)):
            message = f"{request_line(request)}: redirected to a host that is neither the one asked nor a listed broker"
            raise AdminError(Outcome.ERROR, message)
        return target

    def _current(self) -> httpx.Client:
        """Return the client; a new one if a certificate has changed on disk."""
        made_of = self._fingerprint()
        with self._lock:
            if self._client is None or made_of != self._made_of:
                client = self._build()
                if self._client is not None:
                    self._retired.append(self._client)  # another thread may be using it
                self._client, self._made_of = client, made_of
            return self._client


def _is_transient(error: BaseException) -> bool:
    """Whether an immediate retry may help."""
    if isinstance(error, AdminError):
        return error.status in _PASSING
    is_dropped = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
    return is_dropped and not isinstance(error, httpx.ConnectError)


def _parse(response: httpx.Response, shape: TypeAdapter[Parsed]) -> Parsed:
    if len(response.content) > _MAX_OBJECT_BYTES and not response.content.lstrip().startswith(b"["):
        raise shape_error(response, f"the answer is longer than {_MAX_OBJECT_BYTES // 1024**2} MiB")
    try:
        return shape.validate_json(response.content or b"null")
    except ValidationError as error:
        raise shape_error(response, first_problem(error)) from None
