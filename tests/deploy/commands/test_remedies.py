"""Commands that messages print can be pasted as they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.console.shell import complete_commands, note_settings_file
from deploy.console.terminal import shown_error


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    note_settings_file(None)
    yield
    note_settings_file(None)


@pytest.mark.parametrize(
    ("text", "pasted"),
    [
        ("headgate topics create", "headgate topics create -s 'my file.yaml'"),
        ("Create them with `headgate topics create`.", "Create them with `headgate topics create -s 'my file.yaml'`."),
        ("or use `headgate up`, which starts one", "or use `headgate up`, which starts one"),
        ("`headgate check FILE` lists them", "`headgate check FILE` lists them"),
        ("headgate status -s other.yaml", "headgate status -s other.yaml"),
        ("headgate is at the floor, see `kafka-configs.sh`", "headgate is at the floor, see `kafka-configs.sh`"),
        (
            "headgate act --release --forget 'user=a'\nkafka-acls.sh --add",
            "headgate act --release --forget 'user=a' -s 'my file.yaml'\nkafka-acls.sh --add",
        ),
    ],
)
def test_a_command_names_the_settings_file_of_this_call(text: str, pasted: str) -> None:
    assert complete_commands(text) == text
    note_settings_file(Path("my file.yaml"))
    assert complete_commands(text) == pasted
    assert shown_error(text) == pasted


def test_a_file_that_the_environment_names_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SETTINGS", "a.yaml")
    note_settings_file(Path("a.yaml"))
    assert complete_commands("headgate topics create") == "headgate topics create"
