"""What the docs show holds: commands exist with their options, settings are good, files and benchmarks are there."""

import argparse
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from deploy.commands.root import app
from deploy.settings.application import Settings
from deploy.settings.file import load_settings
from policies.policy import HOST_ALERT_KINDS, AlertKind
from policies.registry import POLICIES
from policies.units import UserError
from tests.docs.blocks import ROOT, Block, blocks
from tests.system.test_try_it import PLAYS

SHELL = [block for block in blocks() if block.is_shell]
NOT_HERE = ("cannot be read: No such file or directory", "No module named", "recompile librdkafka")
"""Of a certificate, a module or a build that a reader has, and this machine has not."""


def commands(name: str) -> list[Any]:
    """Each command of the docs that calls a program, with where it stands."""
    calls = [(block, part.strip()) for block in SHELL for line in block.commands() for part in line.split("|")]
    return [
        pytest.param(part, id=f"{block} {part}"[:90].replace("/", "|"))
        for block, part in calls
        if (program := next(word for word in part.split(" ") if "=" not in word)) == name
        or program.endswith(f"/{name}")
    ]


@cache
def parser() -> Any:
    """The whole command; to build it takes 10 ms."""
    return typer.main.get_command(app)


VERIFYING = [
    pytest.param(command, id=f"{kind.name} {alert.name}")
    for kind in POLICIES.values()
    for alert in kind.alerts
    if (command := alert.command("messaging", "messaging/a b")).startswith("headgate ")
]
"""The commands that alerts name, to be pasted by whoever is on call."""
RUNBOOKS = [each for kind in POLICIES.values() for each in kind.alerts] + list(HOST_ALERT_KINDS)
CARRIED_OUT = [
    pytest.param(line, id=f"{alert.name} {line}"[:90].replace("/", "|"))
    for alert in RUNBOOKS
    for line in alert.lines({"cluster": "a b", "subject": "a b/1", "broker": "1", "log_dir": "/d e"})
    if line.startswith("headgate ")
]
"""The commands of runbooks, too."""


@pytest.mark.parametrize("alert", RUNBOOKS, ids=lambda alert: alert.name)
def test_the_commands_of_a_runbook_can_be_pasted(alert: AlertKind) -> None:
    lines = "\n".join(alert.lines({"cluster": "a'b", "log_dir": "/d e; rm"}))
    subprocess.run(["sh", "-n", "-c", lines], check=True, capture_output=True)
    assert "…" not in f"{alert.remedy}{lines}", "whoever pastes it must not guess what is missing"
    assert max(map(len, lines.splitlines()), default=0) <= 100, "a terminal would wrap it"


@pytest.mark.parametrize("line", [*commands("headgate"), *VERIFYING, *CARRIED_OUT])
def test_a_command_of_headgate_is_one_with_these_options(line: str) -> None:
    words = shlex.split(line.split(" > ")[0].rstrip("&"))
    words = words[next(i for i, word in enumerate(words) if word.endswith("headgate")) + 1 :]
    command: Any = parser()
    context = None
    while True:
        # Parses options and arguments, and runs nothing.
        try:
            context = command.make_context(command.name, list(words), parent=context)
        except typer.Exit:  # --version
            return
        if not hasattr(command, "resolve_command"):
            return
        rest = [*context._protected_args, *context.args]
        _, command, words = command.resolve_command(context, rest)


@pytest.mark.parametrize("line", [*commands("python"), *commands("pytest")])
def test_what_is_run_by_python_is_there(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *words = shlex.split(line)
    missing = [word for word in words if word.endswith(".py") and not (ROOT / word).exists()]
    assert missing == []
    if words[0].startswith("bench/"):
        # Should it not look at its options as it is thought to, it says what they are, and measures nothing.
        monkeypatch.setattr(sys, "argv", [*words, "--help"])
        parse = argparse.ArgumentParser.parse_args
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda parser: _are_good(parse(parser, words[1:])))
        with pytest.raises(_AreGoodError):
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")


class _AreGoodError(Exception):
    """The script would begin now."""


def _are_good(_: argparse.Namespace) -> None:
    raise _AreGoodError


def settings_blocks() -> list[Any]:
    known = set(Settings.model_fields)
    found = []
    for block in blocks():
        if block.language == "yaml" and not block.text.startswith((" ", "#!")):
            content = yaml.safe_load(block.text)
            if isinstance(content, dict) and set(content) <= known:
                found.append(pytest.param(block, id=str(block)))
    return found


@pytest.mark.parametrize("block", settings_blocks())
def test_settings_are_good(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(block.text)
    mistakes = []
    try:
        load_settings(file)
    except UserError as error:
        mistakes = [each for each in str(error).splitlines() if not any(part in each for part in NOT_HERE)]
    assert mistakes == []


def test_every_page_with_something_to_try_has_a_reader_who_does() -> None:
    assert {block.page for block in blocks() if block.is_tried} == set(PLAYS)
