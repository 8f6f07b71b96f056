"""The examples in each command's help can be typed, and names are completed."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.console.examples import EXAMPLES
from deploy.console.shell import complete_clusters, complete_policies
from tests.cases import for_each

GROUP = typer.main.get_command(app)


def list_commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command by its whole name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


COMMANDS = dict(list_commands(GROUP))


@for_each(("name", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_an_example_names_a_command_and_options_that_exist(name: str, line: str) -> None:
    words = [word for word in shlex.split(line) if not word.startswith("HEADGATE_SETTINGS=")]
    assert words[: 1 + len(name.split())] == ["headgate", *name.split()]
    command = COMMANDS[name]
    options = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= options


def test_each_command_has_an_example_in_its_help() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    assert [name for name, command in COMMANDS.items() if "Examples:" not in (command.epilog or "")] == []


@pytest.mark.parametrize("group", ["", "switch", "topics", "checkpoint"])
def test_no_line_of_a_list_of_commands_is_cut(group: str) -> None:
    _, commands = CliRunner().invoke(app, [*group.split(), "-h"]).output.split("Commands:")
    assert "..." not in commands


def test_help_is_plain_has_examples_and_shows_no_type_of_a_flag() -> None:
    shown = CliRunner().invoke(app, ["status", "-h"]).output
    assert "headgate status --cluster payments --watch" in shown
    assert "<bool>" not in shown
    assert "HEADGATE_SETTINGS" in shown


def test_clusters_are_completed_from_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hg.yaml"
    file.write_text("clusters: {payments: {}, orders: {}}\n")
    context = typer.Context(GROUP, info_name="status")
    context.params = {"settings": file}
    assert complete_clusters(context, "p") == ["payments"]
    context.params = {}
    assert complete_clusters(context, "") == []
    monkeypatch.setenv("HEADGATE_SETTINGS", str(file))
    assert complete_clusters(context, "") == ["orders", "payments"]
    file.write_text("clusters: [")
    assert complete_clusters(context, "") == []
    assert complete_policies("th") == ["throttle"]
