"""The days until certificates expire, as a metric: those that the settings name, in the files as they are now."""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel

EXPIRES = "headgate_certificate_expires_days"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.S)
_FIELDS = ("cert_file", "ca_file")
_VERSION, _UTC_TIME = 0xA0, 0x17
"""Tags of DER."""
_SECONDS_A_DAY = 86_400


class Certificates(Collector):
    """Reads the files at each scrape, because they are renewed while the process runs."""

    _labelnames = ("setting", "file")

    def __init__(self, settings: BaseModel) -> None:
        self._files = dict(find_files(settings))

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the family without samples."""
        return [_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the days of each file; a file that cannot be read has no sample, and stops its client anyway."""
        family = _family()
        for setting, file in self._files.items():
            try:
                at = expires_at(file.read_text())
            except (OSError, ValueError, IndexError):
                continue
            if at is not None:
                family.add_metric((setting, str(file)), (at.timestamp() - time.time()) / _SECONDS_A_DAY)
        yield family


def _family() -> GaugeMetricFamily:
    said = "Days until the first certificate in a file expires; negative afterwards."
    return GaugeMetricFamily(EXPIRES, said, labels=Certificates._labelnames)


def find_files(value: Any, place: str = "") -> Iterator[tuple[str, Path]]:
    """Yield each file of certificates that the settings name, with its setting."""
    if isinstance(value, BaseModel):
        value = dict(value)
    for name, each in value.items() if isinstance(value, Mapping) else ():
        inner = f"{place}.{name}" if place else str(name)
        if name in _FIELDS and isinstance(each, Path):
            yield inner, each
        else:
            yield from find_files(each, inner)


def expires_at(pem: str) -> datetime | None:
    """Return when the first of the certificates in a text expires; None without one.

    Raises:
        ValueError: one is no certificate. IndexError: it is cut.
    """
    return min((_read_end(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem)), default=None)


def _read_end(der: bytes) -> datetime:
    """Return `notAfter` (RFC 5280): the standard library shows it of a peer's certificate only."""
    _, at, _ = _read_element(der, 0)
    _, at, _ = _read_element(der, at)
    tag, _, end = _read_element(der, at)
    at = end if tag == _VERSION else at
    for _ in ("serial number", "signature algorithm", "issuer"):
        at = _read_element(der, at)[2]
    _, at, _ = _read_element(der, at)
    at = _read_element(der, at)[2]  # notBefore
    tag, start, end = _read_element(der, at)
    text = der[start:end].decode()
    return datetime.strptime(text, "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _read_element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, start and end of the element at a place."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count], "big"), start + count
    return der[at], start, start + length
