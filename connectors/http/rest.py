"""JSON requests over HTTP: validates answers, classifies failures, and renews connections."""

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import httpx
import tenacity
from pydantic import FailFast, TypeAdapter, ValidationError

from connectors.collection import ReadErrors, first_problem, one_line
from connectors.http.client import ENDS_AT
from connectors.redaction import without_secrets
from policies.observations import Outcome
from policies.units import UserError

# Maps answers and errors of the admin REST API to the outcome of a reading and a short reason.

_NOT_SENT = httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout

_OUTCOMES: dict[int, Outcome] = {
    HTTPStatus.UNAUTHORIZED: Outcome.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: Outcome.UNAUTHORIZED,
    HTTPStatus.METHOD_NOT_ALLOWED: Outcome.UNSUPPORTED,
    HTTPStatus.NOT_IMPLEMENTED: Outcome.UNSUPPORTED,
}


class AdminError(Exception):
    """The server's answer is an error, or has another shape.

    Args:
        message: the reason with the request's method and path, without a secret.
        status: the answer's status; None if only its content is bad.
        missing: True if the server reports that the tenant, namespace or bookie does not exist.
    """

    def __init__(self, outcome: Outcome, message: str, *, status: int | None = None, missing: bool = False) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.status = status
        self.missing = missing


def refusal(response: httpx.Response) -> AdminError | None:
    """Return the error of an answer; None for a success."""
    if response.is_success:
        return None
    status, reason = response.status_code, _reason(response)
    outcome = _OUTCOMES.get(status, Outcome.ERROR)
    missing = status == HTTPStatus.NOT_FOUND and reason is not None
    if status == HTTPStatus.NOT_FOUND and reason is None:
        # A broker reports a missing object in JSON; any other page comes from an address without the API.
        outcome, reason = Outcome.UNSUPPORTED, "there is no such API at this address"
    explained = f": {reason}" if reason else ""
    message = f"{request_line(response.request)}: status {status}{explained}"
    return AdminError(outcome, message, status=status, missing=missing)


def request_line(request: httpx.Request) -> str:
    """Return the method and path of a request, without its query."""
    return f"{request.method} {request.url.path}"


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome for an error of a request."""
    match error:
        case AdminError():
            return error.outcome
        case httpx.TimeoutException():
            return Outcome.TIMEOUT
        case httpx.ConnectError() if _is_tls(error):
            return Outcome.ERROR
        case httpx.NetworkError() | httpx.RemoteProtocolError():
            return Outcome.UNREACHABLE
    return Outcome.ERROR


def describe_rest_error(error: BaseException) -> str:
    """Return the error in one short line without a secret."""
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            text = "no connection in time"
        case httpx.TimeoutException():
            text = "no answer in time"
        case _:
            text = str(error) or type(error).__name__
    if isinstance(error, httpx.RequestError):
        with suppress(RuntimeError):  # raised before there was a request
            text = f"{request_line(error.request)}: {text}"
    return one_line(text)


def was_not_done(error: BaseException) -> bool:
    """Whether a failed write certainly had no effect: it was refused (also for a conflict), or not sent."""
    if isinstance(error, AdminError):
        # From 500 on, the answer may come from a proxy whose broker carried the write out.
        return error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, UserError | _NOT_SENT)


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(response: httpx.Response) -> str | None:
    """Return Pulsar's reason for a refusal; None if the answer is not Pulsar's."""
    try:
        document: Any = response.json()
    except ValueError:
        return None
    reason = document.get("reason") if isinstance(document, dict) else None
    return without_secrets(reason) if isinstance(reason, str) else None  # the server may quote the request


REST_READ_ERRORS = ReadErrors((AdminError, httpx.RequestError, UserError), outcome_of, describe_rest_error)
"""The errors of a request."""


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

    `timeout_seconds` limits a call with its retries and redirects. `may_follow` allows a redirect to another host, with
    the token.
    """

    def __init__(
        self,
        build: Callable[[], httpx.Client],
        timeout_seconds: float,
        may_follow: Callable[[httpx.URL], bool] = lambda _: False,
    ) -> None:
        self._build = build
        self._timeout_seconds = timeout_seconds
        self._may_follow = may_follow
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def get(self, path: str, shape: TypeAdapter[Parsed], params: Mapping[str, str] | None = None) -> Parsed:
        """Read a document; an empty answer counts as null.

        It makes up to three attempts if the server drops the connection or is too busy. It does not retry if no server
        listens or the time is over, because its callers poll anyway. Raises what `REST_READ_ERRORS` expects.
        """
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_LONGEST_WAIT_SECONDS),
            retry=tenacity.retry_if_exception(_is_transient),
            reraise=True,
        )
        return _parse(retrying(self._send, "GET", path, self._ends_at(), params=params), shape)

    def send(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Any = None
    ) -> httpx.Response:
        """Send a request once, and return a successful answer. Raises as `get` does.

        It follows redirects with the token, as Pulsar's own clients do. It never follows one from https to http, nor to
        a host that neither the settings name nor `may_follow` allows.
        """
        return self._send(method, path, self._ends_at(), params=params, json=json)

    def _ends_at(self) -> float:
        return time.monotonic() + self._timeout_seconds

    def _send(self, method: str, path: str, ends_at: float, **content: Any) -> httpx.Response:
        client = self._current()
        request = client.build_request(method, path, extensions={ENDS_AT: ends_at}, **content)
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
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _checked_redirect(self, client: httpx.Client, request: httpx.Request, target: httpx.Request) -> httpx.Request:
        if request.url.scheme == "https" and target.url.scheme != "https":
            why = "plain http, where it would be seen by others"
        elif target.url.userinfo or not (target.url.host == client.base_url.host or self._may_follow(target.url)):
            why = "a host that is neither the one asked nor a listed broker"
        else:
            return target
        raise AdminError(Outcome.ERROR, f"{request_line(request)}: redirected to {why}")

    def _current(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = self._build()
            return self._client


def _is_transient(error: BaseException) -> bool:
    """Whether an immediate retry may help."""
    if isinstance(error, AdminError):
        return error.status in _PASSING
    is_dropped = isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError)
    return is_dropped and not isinstance(error, httpx.ConnectError)


def _parse(response: httpx.Response, shape: TypeAdapter[Parsed]) -> Parsed:
    if len(response.content) > _MAX_OBJECT_BYTES and not response.content.lstrip().startswith(b"["):
        why = f"the answer is longer than {_MAX_OBJECT_BYTES // 1024**2} MiB"
    else:
        try:
            return shape.validate_json(response.content or b"null")
        except ValidationError as error:
            why = first_problem(error)
    raise AdminError(Outcome.ERROR, f"{request_line(response.request)}: {why}")
