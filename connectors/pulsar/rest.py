"""JSON requests over HTTP: validates answers, classifies failures, and renews connections."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import tenacity
from pydantic import AfterValidator, BaseModel, FailFast, Field, SecretStr, TypeAdapter, ValidationError

from connectors.collection import ReadErrors, first_problem, one_line
from connectors.http.client import ENDS_AT, BearerAuth, bounded_client, url_problems
from connectors.http.tls import Tls, ssl_context_for
from connectors.redaction import RedactedBlock, secret, without_secrets
from policies.observations import Outcome
from policies.units import PositiveDuration, UserError, parse_duration

# Connection settings of a Pulsar cluster's admin REST API: addresses and credentials.

_MEMBER_URL = re.compile(r"https?://(?:\{member\}|\{host\}:[0-9]{1,5})")
_MEMBER = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(?P<port>[0-9]{1,5})")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # an HTTP library refuses any other text, and quotes it


def _checked_member_url(url: str) -> str:
    if not _MEMBER_URL.fullmatch(url):
        raise ValueError("is neither http(s)://{member} nor http(s)://{host}:port, such as https://{host}:8443")
    return url


MemberUrl = Annotated[str, AfterValidator(_checked_member_url)]
"""An address for all brokers: `{member}` stands for a broker's registered `host:port`, `{host}` for its host."""


def is_member(name: str) -> bool:
    """Whether a name is `host:port` and nothing more, so that it may be part of an address."""
    match = _MEMBER.fullmatch(name)
    return match is not None and 0 < int(match["port"]) < 65536


def address_problem(member: str, admin_url: str) -> str | None:
    """Return why a broker is not asked at the address under which it registers itself; None if it may be.

    An address that means this machine, whichever it is, leads to whatever listens here, which would get the token and
    answer in the broker's place. A loopback address is the broker's own if `admin_url` is one, too: then the whole
    cluster is on this machine.
    """
    ip = _find_ip(member)
    if ip is None or not (ip.is_unspecified or ip.is_loopback or ip.is_link_local):
        return None
    own = _find_ip(f"{httpx.URL(admin_url).host}:0")
    if ip.is_loopback and own is not None and (own.is_loopback or own.is_unspecified):
        return None
    kind = "an unspecified" if ip.is_unspecified else "a loopback" if ip.is_loopback else "a link-local"
    return f"{member} is {kind} address, at which each machine finds itself: set the broker's advertisedAddress"


def _find_ip(member: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a member's host is; None for a name. Resolvers take numbers such as `127.1`, too."""
    host = member.rpartition(":")[0].strip("[]").rstrip(".").lower()
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return ip_address("127.0.0.1")
    try:
        ip = ip_address(host if ":" in host else socket.inet_aton(host))
    except (ValueError, OSError):
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def plain_http_problem(field: str, block: BaseModel, url: str, admin: "PulsarAdmin | None") -> Iterator[str]:
    """Yield a problem if a token would be sent in plain text to a default address; a default is no consent."""
    is_default = field.rpartition(".")[2] not in block.model_fields_set
    if admin is not None and admin.sends_token and is_default and not admin.is_plain and url.startswith("http:"):
        yield (
            f"{field}: would send the token over plain http, where pulsar.admin_url is https: set "
            "https://{host}:8443, with the brokers' own port, or http://{member} to allow it"
        )


class PulsarAdmin(RedactedBlock):
    """The address of a cluster's admin REST API, and our credentials."""

    admin_url: str = Field(
        description="`http://…` or `https://…` of a broker, of a proxy, or a name of several of them, such as "
        "`https://pulsar.example.org:8443`; without `/admin/v2`."
    )
    tls: Tls | None = Field(
        default=None,
        description="For `https` only: trusted authorities, and our certificate. Default: the system's authorities.",
    )
    token: SecretStr | None = Field(default=None, min_length=1, description="Sent as `Authorization: Bearer …`.")
    token_file: Path | None = Field(default=None, description="The token in a file; a changed file is used at once.")
    timeout: PositiveDuration = Field(
        default=parse_duration("5s"),
        description="Limit of one request in all: connecting, the whole answer, and retries.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a malformed address or token, and settings that contradict each other."""
        yield from url_problems("admin_url", self.admin_url)
        if self.tls is not None and self.is_plain:
            yield "tls", "has no meaning with an http:// address: leave it out, or use https://"
        if self.token is not None and not _TOKEN.fullmatch(self.token.get_secret_value()):
            yield "token", "is not one word of printable ASCII characters"

    @property
    def sends_token(self) -> bool:
        """Whether requests carry a token."""
        return self.token is not None or self.token_file is not None

    @property
    def is_plain(self) -> bool:
        """Whether its own address is not encrypted."""
        return not self.admin_url.lower().startswith("https:")

    @property
    def timeout_seconds(self) -> float:
        """Limit of one request in all."""
        return self.timeout.total_seconds()

    def bearer_token(self) -> str | None:
        """Return the present token in plain text; None without a token.

        Raises:
            UserError: its file cannot be read, or holds no token.
        """
        token = secret(self.token, self.token_file, "token_file")
        if token is not None and not _TOKEN.fullmatch(token):
            raise UserError(f"token_file: {self.token_file} holds more than one word of printable ASCII characters.")
        return token

    def http_client(self, transport: httpx.BaseTransport | None = None) -> httpx.Client:
        """Make a client of this address that sends the token.

        It follows no redirect, so that no other server gets the token, and uses no proxy of the environment.

        Raises:
            UserError: a certificate's file cannot be used.
        """
        client = plain_client(self.admin_url, self, transport)
        client.auth = BearerAuth(self.bearer_token)
        return client


def plain_client(url: str, settings: PulsarAdmin, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """Make a client of an address of the cluster, with its certificates and without its token."""
    return bounded_client(
        ssl_context_for(url, settings.tls), settings.timeout_seconds, base_url=url, transport=transport
    )


def url_of_member(url: MemberUrl, member: str) -> str:
    """Return the address of one broker."""
    return url.replace("{member}", member).replace("{host}", member.rpartition(":")[0])


# Maps answers and errors of the admin REST API to the outcome of a reading and a short reason.

_NOT_SENT = httpx.ConnectError | httpx.ConnectTimeout

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


def describe_pulsar_error(error: BaseException) -> str:
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


PULSAR_READ_ERRORS = ReadErrors((AdminError, httpx.RequestError, UserError), outcome_of, describe_pulsar_error)
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

    Args:
        timeout_seconds: limit of a call with its retries and redirects.
        may_follow: whether to follow a redirect to another host, with the token; by default never.
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
            message = f"{request_line(request)}: redirected to plain http, where it would be seen by others"
            raise AdminError(Outcome.ERROR, message)
        if target.url.userinfo or not (target.url.host == client.base_url.host or self._may_follow(target.url)):
            message = f"{request_line(request)}: redirected to a host that is neither the one asked nor a listed broker"
            raise AdminError(Outcome.ERROR, message)
        return target

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
        raise shape_error(response, f"the answer is longer than {_MAX_OBJECT_BYTES // 1024**2} MiB")
    try:
        return shape.validate_json(response.content or b"null")
    except ValidationError as error:
        raise shape_error(response, first_problem(error)) from None
