"""Maps answers and errors of the admin REST API to the outcome of a reading and a short reason."""

import ssl
from http import HTTPStatus
from typing import Any

import httpx

from connectors.collection.read_errors import ReadErrors, one_line
from connectors.redaction import without_secrets
from policies.errors import UserError
from policies.observations import Outcome

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


def shape_error(response: httpx.Response, why: str) -> AdminError:
    """Make the error for an answer of another shape."""
    return AdminError(Outcome.ERROR, f"{request_line(response.request)}: {why}")


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


def detail_of(error: BaseException) -> str:
    """Return the error in one short line without a secret."""
    return one_line(_text(error))


def was_not_done(error: BaseException) -> bool:
    """Whether a failed write certainly had no effect: it was refused (also for a conflict), or not sent."""
    if isinstance(error, AdminError):
        # From 500 on, the answer may come from a proxy whose broker carried the write out.
        return error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, UserError | _NOT_SENT)


def _text(error: BaseException) -> str:
    match error:
        case AdminError() | UserError():
            return str(error)
        case httpx.PoolTimeout():
            return f"{_place(error)}no connection became free in time"
        case httpx.ConnectTimeout():
            return f"{_place(error)}no connection in time"
        case httpx.TimeoutException():
            return f"{_place(error)}no answer in time"
        case httpx.RequestError():
            return f"{_place(error)}{str(error) or type(error).__name__}"
    return str(error) or type(error).__name__


def _place(error: httpx.RequestError) -> str:
    try:
        return f"{request_line(error.request)}: "
    except RuntimeError:  # raised before there was a request
        return ""


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


READ_ERRORS = ReadErrors((AdminError, httpx.RequestError, UserError), outcome_of, detail_of)
"""The errors of a request."""
