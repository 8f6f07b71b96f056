"""The days until the certificates that the settings name expire."""

from pathlib import Path
from typing import Any

import pytest

from connectors.http.tls import _CERTIFICATES, EXPIRES, Certificates, expires_at, find_files
from deploy.settings.application import Settings
from tests.certificates import self_sign


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    for days in (9, 20, 20_000):  # the last one ends in 2081, which DER writes with four digits
        self_sign(made / "key", made / f"{days}.pem", "-days", str(days))
    (made / "both.pem").write_text((made / "20.pem").read_text() + (made / "9.pem").read_text())
    (made / "none.pem").write_text("no certificate\n")
    (made / "cut.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    return made


def days(folder: Path, **tls: str) -> dict[str, float]:
    """What a scrape shows of a loop whose Kafka has these files."""
    kafka: dict[str, Any] = {"bootstrap_servers": "k:9092", "tls": {name: str(folder / f) for name, f in tls.items()}}
    certificates = Certificates(Settings.model_validate({"kafka": kafka}))
    (family,) = certificates.collect()
    assert family.name == EXPIRES
    return {sample.labels["setting"]: sample.value for sample in family.samples}


@pytest.mark.parametrize(("file", "expected"), [("9.pem", 9), ("20.pem", 20), ("20000.pem", 20_000), ("both.pem", 9)])
def test_the_first_certificate_of_a_file_that_expires_counts(folder: Path, file: str, expected: int) -> None:
    shown = days(folder, ca_file=file)
    assert list(shown) == ["kafka.tls.ca_file"]
    assert expected - 0.1 < shown["kafka.tls.ca_file"] <= expected


@pytest.mark.parametrize("file", ["none.pem", "cut.pem"])
def test_a_file_without_a_certificate_has_no_sample(folder: Path, file: str) -> None:
    assert days(folder, ca_file=file) == {}


def test_the_files_of_every_block_are_found(folder: Path) -> None:
    tls = {"cert_file": str(folder / "9.pem"), "key_file": str(folder / "key")}
    kafka = {"bootstrap_servers": "k:9092", "tls": tls}
    settings = Settings.model_validate({"kafka": kafka, "clusters": {"c": {"kafka": kafka}}, "http": {"access": tls}})
    found = {place for place, _ in find_files(settings, _CERTIFICATES)}
    assert found == {"kafka.tls.cert_file", "clusters.c.kafka.tls.cert_file", "http.access.cert_file"}


def test_a_text_without_certificates_expires_never() -> None:
    assert expires_at("") is None
