"""What the docs show holds: commands, their options, settings, files, benchmarks, and first commands as they stand."""

import argparse
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from deploy import cli
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


PROPERTIES = """\
node.id=1
client.quota.callback.class=io.strimzi.kafka.quotas.StaticQuotaCallback
client.quota.callback.static.produce=1000000
client.quota.callback.static.storage.per.volume.limit.min.available.bytes=5000000000
client.quota.callback.static.storage.check-interval=10
"""


def first_of(page: str) -> Block:
    return next(block for block in blocks() if block.page == page and block.is_shell)


class Reader:
    """Somebody in a folder whose shell knows one program and `>`; starting it anew each time would take a second."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)

    def does(self, block: Block) -> None:
        """Run the commands, one after the other."""
        for command in block.commands():
            words, _, file = command.partition(" > ")
            self._monkeypatch.setattr(sys, "argv", shlex.split(words))
            assert sys.argv[0] == "headgate"
            with pytest.raises(SystemExit) as ended:
                cli.main()
            said = self._capsys.readouterr()
            assert ended.value.code == 0, f"{command}\n{said.out}{said.err}"
            if file:
                (self.folder / file).write_text(said.out)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    return Reader(tmp_path, monkeypatch, capsys)


def test_who_comes_from_strimzis_plugin_gets_settings_that_are_good(reader: Reader) -> None:
    (reader.folder / "server.properties").write_text(PROPERTIES)
    reader.does(first_of("docs/strimzi.md"))
    assert "preset: strimzi" in (reader.folder / "headgate.yaml").read_text()


def test_recorded_events_are_replayed(reader: Reader) -> None:
    shutil.copy(ROOT / "tests" / "data" / "replay" / "throttle.events.jsonl", reader.folder / "EVENTS.jsonl")
    (reader.folder / "headgate.yaml").write_text("policies: {throttle: {hard: {available_bytes_below: 1GB}}}\n")
    reader.does(first_of("docs/replay.md"))


def test_the_rights_of_a_part_are_told_without_a_broker(reader: Reader) -> None:
    rights = next(block for block in blocks() if "headgate topics acls" in block.text)
    reader.does(rights)
