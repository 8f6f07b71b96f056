"""A small HTTP server on its own thread, with a clear error if its port is taken."""

import errno
import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
import threading
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from connectors.http.tls import FileStamps, read_stamps
from connectors.redaction import RedactedBlock, secret
from policies.units import UserError

# Access to our own HTTP servers: bearer token and TLS.

_log = structlog.get_logger(__name__)

_LOCAL_SUFFIXES = (".localhost", ".local", ".svc", ".cluster.local", ".internal")
"""Names that nobody can register in the public DNS."""


class HttpAccess(RedactedBlock):
    """The token that requests must have, and the server's certificate."""

    place: ClassVar[str] = "http.access"
    """The path of the block in the settings, for errors."""

    token: SecretStr | None = Field(
        default=None, min_length=1, description="Clients must send it as `Authorization: Bearer …`."
    )
    token_file: Path | None = Field(default=None, description="The token in a file.")
    cert_file: Path | None = Field(default=None, description="PEM; the server's certificate and its chain.")
    key_file: Path | None = Field(default=None, description="PEM; the certificate's key.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """See `RedactedBlock`."""
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.key_file is None else ("key_file", "cert_file")
            yield other, f"is needed with {given}"

    def bearer_token(self) -> str | None:
        """Return the token that requests must have, or None. Raises UserError if its file cannot be read."""
        return secret(self.token, self.token_file, f"{self.place}.token_file")

    def tls(self) -> ssl.SSLContext | None:
        """Return the server's TLS context; None without a certificate.

        Raises:
            UserError: the certificate cannot be used.
        """
        if self.cert_file is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load_certificate(context)
        return context

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the certificate into a context, for its next connections; raises as `tls` does."""
        try:
            # Without this function, OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(self.cert_file or "", self.key_file, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"{self.place}.cert_file: cannot be used ({why})") from None


def is_own_host(header: str | None, names: Collection[str]) -> bool:
    """Whether a request's `Host` can be this server's, and not a name that somebody else has pointed at its address.

    A page of `evil.example` may let its name resolve to our address: the browser then takes our answers for its own.
    Addresses, the machine's name, and names without a public domain cannot be used for that.

    Args:
        header: as it was sent; None: the client is no browser.
    """
    if header is None:
        return True
    bracketed, _, rest = header.rpartition("]")
    host = bracketed.removeprefix("[") if bracketed else rest.partition(":")[0]
    host = host.lower().removesuffix(".")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        own = {*map(str.lower, names), socket.gethostname().lower()}
        return "." not in host or host.endswith(_LOCAL_SUFFIXES) or host in own
    return True


class TlsContext:
    """A server's TLS context, whose certificate is read again when its files change.

    Raises:
        UserError: the certificate cannot be used.
    """

    def __init__(self, access: HttpAccess) -> None:
        self._access = access
        self.context = access.tls()
        self._stamps = self._read_stamps()

    def follow_files(self) -> None:
        """Use a renewed certificate for new connections; while it cannot be used, the old one stays in use."""
        stamps = self._read_stamps()
        if self.context is None or stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._access.load_certificate(self.context)
            _log.info("the server's certificate was read again")
        except UserError as error:
            _log.warning("the server's new certificate is not used", detail=str(error))

    def _read_stamps(self) -> FileStamps:
        return read_stamps({"cert_file": self._access.cert_file, "key_file": self._access.key_file})


def has_access(authorization: str | None, token: str) -> bool:
    """Whether a request's header has the token, as a bearer token or as the password of a browser's user.

    It takes as long for a wrong token as for the right one.
    """
    scheme, _, sent = (authorization or "").partition(" ")
    match scheme.lower():
        case "bearer":
            found = sent.strip().encode()
        case "basic":
            try:
                found = b64decode(sent.strip(), validate=True).partition(b":")[2]
            except (Base64Error, ValueError):
                found = b""
        case _:
            return False
    return hmac.compare_digest(found, token.encode())


# Responses to HTTP requests.

HTML, JSON = "text/html; charset=utf-8", "application/json"


class ErrorDocument(BaseModel):
    """An error response."""

    model_config = ConfigDict(frozen=True)

    status: int = Field(description="The HTTP status.")
    error: str = Field(description="The reason, in one sentence.")


@dataclass(frozen=True)
class Response:
    """A body with its content type and status."""

    body: bytes = field(repr=False)
    content_type: str
    status: HTTPStatus = HTTPStatus.OK

    @cached_property
    def etag(self) -> str:
        """A digest of the body."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    def is_known(self, if_none_match: str | None) -> bool:
        """Whether the client has this body already, by the header `If-None-Match`."""
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        return self.status is HTTPStatus.OK and (self.etag in known or "*" in known)


def json_response(document: BaseModel, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Make a response in ASCII, so that foreign names cannot send control characters to a terminal."""
    body = json.dumps(document.model_dump(mode="json"), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(f"{body}\n".encode(), JSON, status)


def error_response(status: HTTPStatus, sentence: str) -> Response:
    """Make an error response."""
    return json_response(ErrorDocument(status=status.value, error=sentence), status)


_CONNECTION_SECONDS = 60.0
"""Limit of a connection. An answer to a slow client takes seconds; a client that sends byte by byte is cut off."""
_MAX_CONNECTIONS = 64
"""For one more, a connection of the address that has the most is closed: the oldest one that has sent no request, else
the oldest. So a client that keeps many open loses its own, a health check is always answered, and a scrape ends."""
_REQUEST_SECONDS = 1.0
"""A connection this young may not have sent its request yet."""
_BACKLOG = 128
_CHECK_SECONDS = 0.2
"""Interval of the check for connections that take too long."""


class HttpServer:
    """Serves until it is closed; use it as a context manager, or call `close`.

    Args:
        handler: answers requests, each on its own thread.
        host: the address to listen on; empty for all.
        port: 0 for any free port; the attribute `port` has its number.
        setting: the name of the port's setting, for the error.
        tls: None for no encryption. The handshake runs on the thread that answers.
        follow_files: called several times a second, so that `tls` follows its files.

    Raises:
        UserError: it cannot listen on this port.
    """

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        host: str,
        port: int,
        *,
        name: str,
        setting: str,
        tls: ssl.SSLContext | None = None,
        follow_files: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = _listen(handler, host, port, setting)
        self._server.follow_files = follow_files
        if tls is not None:
            listening = self._server.socket
            self._server.socket = tls.wrap_socket(listening, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CHECK_SECONDS,), name=name, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and return when the port is free. May be called twice."""
        with suppress(OSError):  # not every system supports it
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the server's thread
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def require_free_port(host: str, port: int, setting: str) -> None:
    """Raise UserError as `HttpServer` does, before anything is started that takes long to end."""
    _listen(BaseHTTPRequestHandler, host, port, setting).server_close()


def _listen(handler: type[BaseHTTPRequestHandler], host: str, port: int, setting: str) -> "_Server":
    try:
        return _server_class(host, port)((host, port), handler)
    except (OSError, OverflowError) as error:
        raise UserError(_why_not(error, host, port, setting)) from None


class _Connection(NamedTuple):
    address: str
    accepted_at: float
    """The instant on the monotonic clock, in seconds."""
    is_answered: bool = False
    """Whether its request has come, so that an answer is made or written."""


class _Server(ThreadingHTTPServer):
    """A server with a time limit for each connection, and a maximum number of connections."""

    daemon_threads = True
    request_queue_size = _BACKLOG
    follow_files: Callable[[], None]

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, _Connection] = {}
        """The connections in the order in which they were accepted."""
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its own thread; if there are too many, close another one."""
        with self._lock:
            given_up = self._pop_oldest() if len(self._open) >= _MAX_CONNECTIONS else None
            self._open[request] = _Connection(client_address[0], time.monotonic())
        if given_up is not None:
            _cut(given_up)
        super().process_request(request, client_address)

    def begin_answer(self, request: socket.socket) -> None:
        """Note that a connection's request has come; until it is answered, others are closed before it."""
        with self._lock:
            if request in self._open:
                self._open[request] = self._open[request]._replace(is_answered=True)

    def _pop_oldest(self) -> socket.socket:
        """Forget a connection of the address that has the most; its thread sees a broken connection."""
        counts = Counter(connection.address for connection in self._open.values())
        busiest, young_from = max(counts.values()), time.monotonic() - _REQUEST_SECONDS
        of_busiest = [(request, each) for request, each in self._open.items() if counts[each.address] == busiest]
        silent = (request for request, each in of_busiest if not each.is_answered and each.accepted_at < young_from)
        given_up = next(silent, of_busiest[0][0])
        del self._open[given_up]
        return given_up

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has been served."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; their threads see a broken connection."""
        self.follow_files()
        with self._lock:
            ended = time.monotonic() - _CONNECTION_SECONDS
            late = [request for request, each in self._open.items() if each.accepted_at < ended]
        for request in late:
            _cut(request)

    def server_bind(self) -> None:
        """Bind without a reverse lookup of our own name, which may take half a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """Log it at debug level only, because clients may hang up."""
        _log.debug("a request broke off", client=str(client_address), exc_info=True)


def begin_answer(server: Any, request: socket.socket) -> None:
    """Tell a handler's server that the request of a connection has come."""
    server.begin_answer(request)


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _server_class(host: str, port: int) -> type[_Server]:
    """A server for the kind of address the host has."""
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return type("Server", (_Server,), {"address_family": family})


def _why_not(error: OSError | OverflowError, host: str, port: int, setting: str) -> str:
    where = f"port {port} of {host}" if host else f"port {port}"
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"{setting}: {where} is in use: end what uses it, or set another port."
        case errno.EACCES:
            return f"{setting}: {where} needs rights this process has not: set a port above 1023."
        case _:
            return f"{setting}: cannot listen on {where}: {getattr(error, 'strerror', None) or error}."
