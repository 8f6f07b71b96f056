"""Key files: what they must be, that they are read anew, and that nothing shows what is in them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from connectors.kafka.headers import record_headers
from connectors.kafka.signing import LoopKafka
from policies.errors import UserError
from policies.signatures import HEADER, Author, key_id

KEY = "0123456789abcdef" * 4


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "observed.key"
    file.write_text(f"{KEY}\n")
    return file


def loop(**signing: object) -> LoopKafka:
    return LoopKafka.model_validate({"bootstrap_servers": "loop:9092", "signing": signing})


def test_the_first_key_signs_and_all_are_believed(key_file: Path, tmp_path: Path) -> None:
    second = tmp_path / "old.key"
    second.write_text(KEY[::-1])
    signatures = loop(observed_keys=[key_file, second]).signatures()
    assert signatures is not None
    assert signatures.keys[Author.OBSERVER] == (KEY.encode(), KEY[::-1].encode())
    header = record_headers(signatures, "headgate.observed.log-dirs", "payments", b"{}")[HEADER]
    assert str(header).split(";")[:2] == ["v1", key_id(KEY.encode())]
    assert HEADER not in record_headers(signatures, "headgate.commands", "payments", b"{}")


def test_without_signing_there_is_no_header() -> None:
    plain = LoopKafka(bootstrap_servers="loop:9092")
    assert plain.signatures() is None
    assert set(record_headers(None, "headgate.observed.log-dirs", "payments", b"{}")) == {"content-type"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("short-but-secret", "has 16 characters, and a key has 32 at the least: make one with 'openssl rand -hex 32"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_a_key_is_refused_by_name_and_without_its_content(
    content: str | None, message: str, key_file: Path
) -> None:
    key_file.unlink() if content is None else key_file.write_text(content)
    with pytest.raises(ValidationError, match=message) as error:
        loop(observed_keys=[key_file])
    assert str(key_file) in str(error.value)
    assert "short-but-secret" not in str(error.value)


def test_signing_without_keys_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="name a key file here"):
        loop()


def test_a_changed_key_file_is_a_change_of_the_connection(key_file: Path) -> None:
    connection = loop(observed_keys=[key_file])
    before = connection.fingerprint()
    assert connection.fingerprint() == before
    key_file.write_text(KEY + KEY)
    assert connection.fingerprint() != before
    assert connection.signatures() != loop(decided_keys=[key_file]).signatures()


def test_a_key_that_became_unusable_is_said_by_place(key_file: Path) -> None:
    connection = loop(observed_keys=[key_file])
    key_file.write_text("cut")
    with pytest.raises(UserError, match=r"kafka\.signing\.observed_keys: .* has 3 characters"):
        connection.signatures()
