"""Whatever is wrong with a block that may hold secrets, no message quotes what was given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from connectors.redaction import RedactedBlock, secret
from policies.units import UserError

SECRET = "hunter2-never-shown"


class Login(RedactedBlock):
    """A block as connectors have them."""

    user: str = "u"
    password: SecretStr | None = None
    password_file: Path | None = None
    attempts: int = 1

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.user == "nobody":
            yield "user", "is nobody {0} {braces}"


class Settings(BaseModel):
    """The outermost model is not ours."""

    login: Login


@pytest.mark.parametrize(
    ("given", "place", "says"),
    [
        ({"password": {"hidden": SECRET}}, ("login", "password"), "valid string"),
        ({"passwort": SECRET}, ("login", "passwort"), "Extra inputs"),
        ({"attempts": SECRET}, ("login", "attempts"), "valid integer"),
        ({"user": "nobody", "password": SECRET}, ("login", "user"), "is nobody {0} {braces}"),
        (SECRET, ("login",), "valid dictionary"),
    ],
    ids=["another type", "a mistyped key", "an unquoted value", "a problem across fields", "no block at all"],
)
def test_an_error_has_its_place_and_quotes_nothing(given: Any, place: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"login": given})
    (error,) = caught.value.errors()
    assert (error["loc"], says in error["msg"]) == (place, True)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.errors())


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"login": {"attempts": SECRET, "more": SECRET}})
    assert len(caught.value.errors()) == 2


def test_a_good_block_is_frozen_and_shows_no_secret() -> None:
    login = Login(password=SecretStr(SECRET))
    assert SECRET not in repr(login)
    with pytest.raises(ValidationError):
        login.user = "other"  # type: ignore[misc]


@pytest.mark.parametrize(("name", "why"), [("missing", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named_with_its_field(tmp_path: Path, name: str, why: str) -> None:
    file = tmp_path / name
    with pytest.raises(ValidationError, match=f"password_file\\n  {file} cannot be read: {why}"):
        Login(password_file=file)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"word\n", "word"), (b"word\r\n", "word"), (b"word", "word"), (b" word \n\n", " word \n")],
    ids=["a line", "a line of Windows", "no line end", "only the last line end is taken away"],
)
def test_a_secret_in_a_file_is_its_text_without_the_last_line_end(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert secret(None, file, "password_file") == expected


def test_a_secret_in_the_settings_is_taken_as_it_is() -> None:
    assert secret(SecretStr("word\n"), None, "password") == "word\n"
    assert secret(None, None, "password") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), (b"\n", "is empty"), (b"\xff\xfe", "is not a text file")],
    ids=["gone", "empty", "binary"],
)
def test_a_file_without_a_secret_is_the_users_error(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=f"^password_file: {file} {says}"):
        secret(None, file, "password_file")
