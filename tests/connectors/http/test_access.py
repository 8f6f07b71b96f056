"""Who is let in: whoever brings the token, in either of two ways, and nobody else."""

from base64 import b64encode
from pathlib import Path

import pytest
from pydantic import ValidationError

from connectors.http.access import HttpAccess, has_access, is_own_host
from policies.units import UserError
from tests.cases import for_each

TOKEN = "a-long-t0ken"


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@for_each("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f"anybody:{TOKEN}"), basic(f":{TOKEN}")])
def test_the_token_lets_in_as_a_bearer_token_or_a_browsers_password(header: str) -> None:
    assert has_access(header, TOKEN)


@for_each(
    "header",
    [
        None, "", TOKEN, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Digest {TOKEN}",
        "Basic", "Basic !!", basic(TOKEN), basic(f"{TOKEN}:"), basic("a:b"), "Bearer \u00e9",
    ],
)  # fmt: skip
def test_nothing_else_does(header: str | None) -> None:
    assert not has_access(header, TOKEN)


def test_a_token_comes_from_the_settings_or_from_a_file_that_may_change(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    access = HttpAccess(token_file=file)
    assert access.bearer_token() == TOKEN
    file.write_text("another-one")
    assert access.bearer_token() == "another-one"
    file.unlink()
    with pytest.raises(UserError, match=r"http\.access\.token_file: .* cannot be read"):
        access.bearer_token()
    assert HttpAccess().bearer_token() is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token": "abcdef", "token_file": __file__}, "either token or token_file"),
        ({"cert_file": __file__}, "is needed with cert_file"),
        ({"key_file": __file__}, "is needed with key_file"),
        ({"token_file": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"tokens": "abcdef"}, "Extra inputs"),
    ],
)
def test_what_does_not_go_together_is_refused_without_the_secret(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        HttpAccess.model_validate(given)
    assert "abcdef" not in str(refused.value)


def test_a_certificate_that_is_none_is_said_at_the_start() -> None:
    with pytest.raises(UserError, match=r"http\.access\.cert_file: cannot be used"):
        HttpAccess(cert_file=Path(__file__), key_file=Path(__file__)).tls()


@for_each(
    ("header", "is_own"),
    [
        (None, True),
        ("127.0.0.1:9408", True),
        ("[::1]:9408", True),
        ("10.1.2.3", True),
        ("localhost:9408", True),
        ("headgate-exporter:9408", True),
        ("headgate.ops.svc.cluster.local", True),
        ("Status.Example.com:443", True),
        ("status.example.com.", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:9408", False),
        ("localhost.evil.example", False),
        ("", True),
    ],
)
def test_a_name_that_somebody_else_points_at_us_is_not_ours(header: str | None, is_own: bool) -> None:
    assert is_own_host(header, ["status.example.com"]) is is_own
