"""TLS settings of any connection: certificate authorities, and the client certificate."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field, SecretStr

from connectors.redaction import RedactedBlock, secret
from policies.units import UserError


class Tls(RedactedBlock):
    """Encryption, with a client certificate if the cluster requires one. An empty block is enough."""

    ca_file: Path | None = Field(default=None, description="PEM; the trusted authorities. Default: the system's.")
    cert_file: Path | None = Field(default=None, description="PEM; the client's certificate and its chain.")
    key_file: Path | None = Field(default=None, description="PEM; the certificate's key (for Kafka in PKCS#8).")
    key_password: SecretStr | None = Field(default=None, min_length=1, description="The password of an encrypted key.")
    key_password_file: Path | None = Field(default=None, description="The key's password in a file.")
    verify_hostname: bool = Field(default=True, description="The server's certificate must name its host.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield settings that need another one."""
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.key_file is None else ("key_file", "cert_file")
            yield other, f"is needed with {given} (one file that holds both may be named twice)"
        if self.key_file is None and (self.key_password or self.key_password_file):
            yield "key_file", "is needed with a key password"

    def password(self) -> str | None:
        """Return the key's password, or None."""
        return secret(self.key_password, self.key_password_file, "tls.key_password_file")

    def ssl_context(self) -> ssl.SSLContext:
        """Make a client context. Raises UserError if a file has the wrong content, or the key's password is wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verify_hostname
        try:
            if self.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca_file)
        except OSError:
            raise UserError(f"tls.ca_file: {self.ca_file} holds no certificates in PEM form.") from None
        if self.cert_file is not None:
            password = self.password() or ""
            try:
                # Without this function, OpenSSL would ask for the password of an encrypted key on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password=lambda: password)
            except (OSError, ValueError):
                raise UserError(
                    f"tls: {self.cert_file} and {self.key_file} are no certificate with its key in PEM form, "
                    "or key_password is not the key's."
                ) from None
        return context


def ssl_context_for(url: str, tls: Tls | None) -> ssl.SSLContext:
    """Make a client context for an HTTP address. Raises as `Tls.ssl_context` does.

    To read the system's authorities takes 30 ms: clients without encryption load none, and all others share them.
    """
    if tls is not None:
        return tls.ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else _system_context()


@cache
def _system_context() -> ssl.SSLContext:
    return Tls().ssl_context()


# The days until certificates expire, as a metric: those that the settings name, in the files as they are now.

EXPIRES = "headgate_certificate_expires_days"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
_CERTIFICATES = re.compile(r"(?:^|\.)(?:cert|ca)_file$")
_VALIDITY = re.compile(rb"\x30.(?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d|\x18\x0f)(\d{12,14}Z)", re.S)
"""A sequence of two times in DER, of two or four digits for the year: no other one is in a certificate (RFC 5280)."""
_SHORT = 13
_SECONDS_A_DAY = 86_400


class Certificates(Collector):
    """Reads the files at each scrape, because they are renewed while the process runs."""

    _labelnames = ("setting", "file")

    def __init__(self, settings: BaseModel) -> None:
        self._files = dict(find_files(settings, _CERTIFICATES))

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the family without samples."""
        return [_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the days of each file; a file that cannot be read has no sample, and stops its client anyway."""
        family = _family()
        for setting, file in self._files.items():
            try:
                at = expires_at(file.read_text())
            except (OSError, ValueError):
                continue
            if at is not None:
                family.add_metric((setting, str(file)), (at.timestamp() - time.time()) / _SECONDS_A_DAY)
        yield family


def _family() -> GaugeMetricFamily:
    said = "Days until the first certificate in a file expires; negative afterwards."
    return GaugeMetricFamily(EXPIRES, said, labels=Certificates._labelnames)


def find_files(settings: BaseModel, names: re.Pattern[str]) -> Iterator[tuple[str, Path]]:
    """Yield each file that a setting with a matching path names, with that path."""
    return ((place, each) for place, each in walk(settings) if isinstance(each, Path) and names.search(place))


def walk(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting below a block, outer ones first, with its path."""
    if isinstance(value, BaseModel):
        value = dict(value)
    for name, each in value.items() if isinstance(value, Mapping) else ():
        inner = f"{place}.{name}" if place else str(name)
        yield inner, each
        yield from walk(each, inner)


def expires_at(pem: str) -> datetime | None:
    """Return when the first of the certificates in a text expires; None without one.

    Raises ValueError if one is no certificate. The standard library shows `notAfter` of a peer's certificate only.
    """
    return min((_read_end(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem)), default=None)


def _read_end(der: bytes) -> datetime:
    if (validity := _VALIDITY.search(der)) is None:
        raise ValueError("no validity")
    text = validity[1].decode()
    return datetime.strptime(text, "%y%m%d%H%M%SZ" if len(text) == _SHORT else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
