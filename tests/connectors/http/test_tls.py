"""What an encrypted connection trusts, and who it says the client is."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.http import tls as tls_settings
from connectors.http.tls import _CERTIFICATES, EXPIRES, Certificates, Tls, find_files, ssl_context_for
from deploy.settings.application import Settings
from policies.units import UserError
from tests.certificates import self_sign

SECRET = "hunter2-never-shown"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with its key, plain and encrypted, and the certificate of another."""
    made = tmp_path_factory.mktemp("tls")
    for name in ("own", "other"):
        self_sign(made / f"{name}.key", made / f"{name}.pem", name=name)
    lock = ["openssl", "pkcs8", "-topk8", "-in", str(made / "own.key"), "-passout", f"pass:{SECRET}"]
    subprocess.run([*lock, "-out", str(made / "locked.key")], check=True, capture_output=True)
    (made / "password").write_text(f"{SECRET}\n")
    (made / "wrong").write_text("wrong\n")
    (made / "text").write_text("no certificate\n")
    return made


def tls(folder: Path, **fields: Any) -> Tls:
    return Tls(**{name: folder / value if name.endswith("file") else value for name, value in fields.items()})


PROBLEMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a certificate without its key": ({"cert_file": "own.pem"}, "key_file", "is needed with cert_file"),
    "a key without its certificate": ({"key_file": "own.key"}, "cert_file", "is needed with key_file"),
    "two passwords": (
        {"cert_file": "own.pem", "key_file": "own.key", "key_password": SECRET, "key_password_file": "password"},
        "key_password",
        "not both",
    ),
    "a password of nothing": ({"key_password": SECRET}, "key_file", "is needed with a key password"),
    "a file that is not there": ({"ca_file": "missing"}, "ca_file", "cannot be read: No such file"),
}


@pytest.mark.parametrize(("fields", "place", "says"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_does_not_belong_together_is_refused(folder: Path, fields: dict[str, Any], place: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        tls(folder, **fields)
    (error,) = caught.value.errors()
    assert (error["loc"], says in error["msg"]) == ((place,), True)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("fields", [{}, {"ca_file": "own.pem"}, {"ca_file": "own.pem", "verify_hostname": False}])
def test_only_the_given_authorities_are_trusted_and_only_the_host_may_go_unchecked(
    folder: Path, fields: dict[str, Any]
) -> None:
    context = tls(folder, **fields).ssl_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, fields.get("verify_hostname", True))
    if fields:
        assert [ca["subject"] for ca in context.get_ca_certs()] == [((("commonName", "own"),),)]


@pytest.mark.parametrize(
    "key",
    [{"key_file": "own.key"}, {"key_file": "locked.key", "key_password_file": "password"}],
    ids=["plain", "locked"],
)
def test_a_certificate_with_its_key_is_taken(folder: Path, key: dict[str, str]) -> None:
    tls(folder, cert_file="own.pem", **key).ssl_context()


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no authorities": ({"ca_file": "text"}, r"tls\.ca_file: .*text holds no certificates"),
    "another's key": ({"cert_file": "own.pem", "key_file": "other.key"}, "are no certificate with its key"),
    "no key": ({"cert_file": "own.pem", "key_file": "text"}, "are no certificate with its key"),
    "a wrong password": (
        {"cert_file": "own.pem", "key_file": "locked.key", "key_password_file": "wrong"},
        "key_password is not the key's",
    ),
    "no password, and nobody is asked for it": (
        {"cert_file": "own.pem", "key_file": "locked.key"},
        "key_password is not the key's",
    ),
}


@pytest.mark.parametrize(("fields", "says"), UNUSABLE.values(), ids=UNUSABLE)
def test_files_that_do_not_hold_what_they_should_are_the_users_error(
    folder: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says) as caught:
        tls(folder, **fields).ssl_context()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "given", "is_loaded"),
    [
        ("http://pulsar:8080", None, False),
        ("http://pulsar:8080", "own.pem", True),
        ("https://pulsar:8443", "own.pem", True),
        ("HTTPS://pulsar:8443", None, True),
        ("", None, True),
    ],
)
def test_only_where_nothing_is_encrypted_and_nothing_set_is_nobody_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, given: str | None, *, is_loaded: bool
) -> None:
    def as_the_system(context: ssl.SSLContext) -> None:
        context.load_verify_locations(folder / "other.pem")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", as_the_system)
    monkeypatch.setattr(tls_settings, "_system_context", tls_settings._system_context.__wrapped__)
    context = ssl_context_for(url, tls(folder, ca_file=given) if given else None)
    assert bool(context.get_ca_certs()) is is_loaded
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


# The days until the certificates that the settings name expire.


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    for days in (9, 20, 20_000):  # the last one ends in 2081, which DER writes with four digits
        self_sign(made / "key", made / f"{days}.pem", "-days", str(days))
    (made / "both.pem").write_text((made / "20.pem").read_text() + (made / "9.pem").read_text())
    (made / "none.pem").write_text("no certificate\n")
    (made / "cut.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    return made


def days(expiring: Path, **tls: str) -> dict[str, float]:
    """What a scrape shows of a loop whose Kafka has these files."""
    kafka: dict[str, Any] = {"bootstrap_servers": "k:9092", "tls": {name: str(expiring / f) for name, f in tls.items()}}
    certificates = Certificates(Settings.model_validate({"kafka": kafka}))
    (family,) = certificates.collect()
    assert family.name == EXPIRES
    return {sample.labels["setting"]: sample.value for sample in family.samples}


@pytest.mark.parametrize(("file", "expected"), [("9.pem", 9), ("20.pem", 20), ("20000.pem", 20_000), ("both.pem", 9)])
def test_the_first_certificate_of_a_file_that_expires_counts(expiring: Path, file: str, expected: int) -> None:
    shown = days(expiring, ca_file=file)
    assert list(shown) == ["kafka.tls.ca_file"]
    assert expected - 0.1 < shown["kafka.tls.ca_file"] <= expected


@pytest.mark.parametrize("file", ["none.pem", "cut.pem"])
def test_a_file_without_a_certificate_has_no_sample(expiring: Path, file: str) -> None:
    assert days(expiring, ca_file=file) == {}


def test_the_files_of_every_block_are_found(expiring: Path) -> None:
    tls = {"cert_file": str(expiring / "9.pem"), "key_file": str(expiring / "key")}
    kafka = {"bootstrap_servers": "k:9092", "tls": tls}
    settings = Settings.model_validate({"kafka": kafka, "clusters": {"c": {"kafka": kafka}}, "http": {"access": tls}})
    found = {place for place, _ in find_files(settings, _CERTIFICATES)}
    assert found == {"kafka.tls.cert_file", "clusters.c.kafka.tls.cert_file", "http.access.cert_file"}
