"""Access to our own HTTP servers: bearer token and TLS."""

import hmac
import ssl
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from connectors.redaction import RedactedBlock, secret, unreadable_files
from policies.errors import UserError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


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
        if self.token is not None and self.token_file is not None:
            yield "token", "give either token or token_file, not both"
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.key_file is None else ("key_file", "cert_file")
            yield other, f"is needed with {given}"
        yield from unreadable_files(
            {"token_file": self.token_file, "cert_file": self.cert_file, "key_file": self.key_file}
        )

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
        try:
            # Without this function, OpenSSL would ask for the password of an encrypted key on the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"{self.place}.cert_file: cannot be used ({why})") from None
        return context


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
