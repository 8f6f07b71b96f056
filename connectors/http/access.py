"""Access to our own HTTP servers: the address to listen on, bearer token, TLS, and the names in `Host`.

It loads no web server, because the settings need it.
"""

import errno
import hmac
import ipaddress
import socket
import ssl
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar

import structlog
from pydantic import Field, SecretStr

from connectors.redaction import RedactedBlock, secret
from policies.units import UserError

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

        Raises UserError if the certificate cannot be used.
        """
        if self.cert_file is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # Without this function, OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"{self.place}.cert_file: cannot be used ({why})") from None
        return context


def is_own_host(header: str | None, names: Collection[str]) -> bool:
    """Whether a request's `Host` can be this server's, and not a name that somebody else has pointed at its address.

    A page of `evil.example` may let its name resolve to our address: the browser then takes our answers for its own.
    Addresses, the machine's name, and names without a public domain cannot be used for that. A browser sends a header.
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


_BACKLOG = 128


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Listen on an address of the kind that the host has: an empty one means all addresses, port 0 any free port.

    Raises UserError with the name of the port's setting if it cannot.
    """
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` is every address of both kinds
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise UserError(_why_not(error, host, port, setting)) from None


def require_free_port(host: str, port: int, setting: str) -> None:
    """Raise UserError as `listen` does, before anything is started that takes long to end."""
    listen(host, port, setting).close()


def _why_not(error: OSError, host: str, port: int, setting: str) -> str:
    where = f"port {port} of {host}" if host else f"port {port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{setting}: {where} is in use: end what uses it, or set another port."
        case errno.EACCES:
            return f"{setting}: {where} needs rights this process has not: set a port above 1023."
        case _:
            return f"{setting}: cannot listen on {where}: {error.strerror}."
