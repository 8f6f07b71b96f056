"""The command itself: light to load, and quick to say what is wrong."""

import os
import re
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.cli import main
from tests.deploy.several import Command, Ended, run_several

ROOT = Path(__file__).parents[2]

HEAVY = ("pyspark", "confluent_kafka", "kafka", "kazoo", "httpx", "prometheus_client", "structlog", "yaml")
"""Each takes a good part of a second of processor time, and `--help` needs none."""


NO_KAFKA = "clusters: {a: {kafka: {bootstrap_servers: 'a:9092'}}}\n"
LIST_LOADED = "tests.deploy.loaded"
OWN = ("policies", "streaming", "connectors", "deploy")
NOT_WATCHED = "kafka: {bootstrap_servers: 'a:9092'}\nclusters: {a: {zookeeper: {servers: 'a:2181'}}}\n"


class Loaded(NamedTuple):
    """How some commands ended, and the modules that were loaded then."""

    ended: list[Ended]
    modules: set[str]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    """Each group of commands, one after the other in one process."""
    folder = tmp_path_factory.mktemp("settings")
    groups: dict[str, list[tuple[object, ...]]] = {
        "help": [("--help",), ("run", "--help"), ("demo", "--help"), ("switch", "--help"), ("--version",)]
    }
    without_kafka = ("run", "collect", "decide", "export", "act")
    for text, names in ((NO_KAFKA, without_kafka), (NOT_WATCHED, ("run", "collect"))):
        (file := folder / f"{len(groups)}.yaml").write_text(text)
        groups[text] = [(command, "-s", file) for command in names]
    groups |= {"explain": [("explain", "a", "-s", folder / "1.yaml")], "check": [("check", "-s", folder / "1.yaml")]}
    apart = {name: (folder / name,) for name in ("explain", "check")}  # another path: all is loaded again
    asked = []
    for name, commands in groups.items():
        packages = apart.get(name, ())
        asked.append([*(Command(each, packages) for each in commands), Command((), packages, LIST_LOADED)])
    ends = iter(run_several([*chain.from_iterable(asked)]))
    found = [[next(ends) for _ in commands] for commands in asked]
    return {name: Loaded(ended, set(last.out.split())) for name, (*ended, last) in zip(groups, found, strict=True)}


def test_help_loads_no_client_no_policy_and_no_settings(loaded: dict[str, Loaded]) -> None:
    ended, modules = loaded["help"]
    assert [(each.status, each.err) for each in ended] == [(0, "")] * 5
    assert "deploy.commands.root" in modules
    assert modules.isdisjoint(HEAVY)
    others = {name for name in modules if name.partition(".")[0] in ("policies", "connectors", "streaming")}
    assert others <= {"policies", "policies.units"}


def test_without_a_kafka_of_its_own_each_says_so_before_spark_is_loaded(loaded: dict[str, Loaded]) -> None:
    ended, modules = loaded[NO_KAFKA]
    start = "kafka.bootstrap_servers is not set: name the loop's own Kafka there"
    assert [(each.status, each.out, each.err[: len(start)]) for each in ended] == [(2, "", start)] * 5
    assert {each.err.count("\n") for each in ended} == {1}
    assert "pyspark.sql" not in modules


def test_where_nothing_is_watched_no_spark_is_loaded_to_find_that_out(loaded: dict[str, Loaded]) -> None:
    ended, modules = loaded[NOT_WATCHED]
    told = (2, "clusters: nothing is watched")
    assert [(each.status, each.err.partition(": name")[0]) for each in ended] == [told] * 2
    assert "pyspark.sql" not in modules


@pytest.mark.parametrize(("command", "most"), [("explain", 150), ("check", 200)])
def test_a_command_loads_nothing_that_it_does_not_run(loaded: dict[str, Loaded], command: str, most: int) -> None:
    """How many modules of Headgate they load, the four policies' settings, readings and decisions included."""
    _, modules = loaded[command]
    own = [name for name in modules if name.partition(".")[0] in OWN]
    assert not [name for name in own if re.fullmatch(r".*\.(io|collector|view)|policies\.\w+\.policy", name)]
    assert 100 < len(own) <= most


def test_a_demo_without_java_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"PATH": str(tmp_path), "JAVA_HOME": "", "TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(tempfile, "tempdir", None)  # what it was before
    monkeypatch.setattr(sys, "argv", ["headgate", "demo"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capfd.readouterr()
    assert (ended.value.code, shown.out, len(shown.err.splitlines())) == (2, "", 1)
    assert shown.err.startswith("Java is needed and none was found: install Java 17")
    assert list(tmp_path.iterdir()) == []


def test_a_shell_completes_commands() -> None:
    asked = {"_HEADGATE_COMPLETE": "complete_bash", "COMP_WORDS": "headgate de", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "import sys; sys.argv = ['headgate']; from deploy.cli import main; main()"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **asked})
    assert said.stdout.split() == ["demo", "decide", "decisions"]
