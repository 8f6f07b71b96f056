"""What commands share: examples that can be typed, names that are completed, and the times that people type."""

import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.console.options import complete_clusters, complete_policies, read_instant
from policies.units import UserError
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


@for_each(("name", "command"), COMMANDS.items())
def test_each_command_has_examples_with_options_that_exist(name: str, command: Any) -> None:
    _, examples = command.epilog.split("Examples:\n")
    options = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
    for line in examples.splitlines():
        words = [word for word in shlex.split(line) if not word.startswith("HEADGATE_SETTINGS=")]
        assert words[: 1 + len(name.split())] == ["headgate", *name.split()]
        assert {word for word in words if word.startswith("-")} <= options


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


NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # an hour ahead of UTC
    time.tzset()


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("12:30", "2026-11-23T11:30:00+00:00"),
        ("14:45", "2026-11-22T13:45:00+00:00"),
        ("9:05:07", "2026-11-23T08:05:07+00:00"),
        ("now", "2026-11-23T12:00:00+00:00"),
        ("10m ago", "2026-11-23T11:50:00+00:00"),
        ("1h30m ago", "2026-11-23T10:30:00+00:00"),
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21 08:00", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21T08:00+02:00", "2026-11-21T06:00:00+00:00"),
    ],
)
def test_a_time_is_read_as_it_is_meant(text: str, instant: str) -> None:
    assert read_instant("--at", text, NOON) == datetime.fromisoformat(instant)
    assert read_instant("--at", None) is None


@pytest.mark.parametrize("text", ["", "25:00", "yesterday", "ago", "10 ago", "99999999d ago", "14:45 Uhr"])
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UserError, match=r"--at: .* is not a time: write 14:45 \(local time\), '10m ago', or 2026-11"):
        read_instant("--at", text, NOON)
