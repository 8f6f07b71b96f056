"""The command itself: light to load, and quick to say what is wrong."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.cli import main

ROOT = Path(__file__).parents[2]

HEAVY = ("pyspark", "confluent_kafka", "kafka", "kazoo", "httpx", "prometheus_client", "structlog", "yaml")
"""Each takes a good part of a second of processor time, and `--help` needs none."""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("HEADGATE_")}
    command = [sys.executable, "-X", "importtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=own)


def loaded(result: subprocess.CompletedProcess[str]) -> set[str]:
    """All modules that were imported."""
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", result.stderr, re.MULTILINE))


EACH = """
import sys
from deploy.cli import main
for command in {commands!r}:
    sys.argv = ["headgate", *command]
    try:
        main()
    except SystemExit as end:
        print(*command, end.code, flush=True, file=sys.stderr)
"""


def each(*commands: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """One after the other in one process, which says on standard error how each ends."""
    return python("-c", EACH.format(commands=commands))


def said(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What stands on standard error, but for imports."""
    return [line for line in result.stderr.splitlines() if not line.startswith("import time:")]


def test_help_loads_no_client_no_policy_and_no_settings() -> None:
    helps = [("--help",), ("run", "--help"), ("demo", "--help"), ("switch", "--help"), ("--version",)]
    result = each(*helps)
    modules = loaded(result)
    assert said(result) == [f"{' '.join(words)} 0" for words in helps]
    assert "deploy.commands.root" in modules
    assert modules.isdisjoint(HEAVY)
    assert {name for name in modules if name.partition(".")[0] in ("policies", "connectors", "streaming")} <= {
        "policies",
        "policies.errors",
    }


def test_without_a_kafka_of_its_own_each_says_so_before_spark_is_loaded(tmp_path: Path) -> None:
    settings = tmp_path / "headgate.yaml"
    settings.write_text("clusters: {a: {kafka: {bootstrap_servers: 'a:9092'}}}\n")
    commands = [(command, "-s", str(settings)) for command in ("run", "collect", "decide", "export", "act")]
    result = each(*commands)
    sentences, ends = said(result)[::2], said(result)[1::2]
    start = "kafka.bootstrap_servers is not set: name the loop's own Kafka there"
    assert [line for line in sentences if not line.startswith(start)] == []
    assert ends == [f"{' '.join(words)} 2" for words in commands]
    assert result.stdout == ""
    assert "pyspark.sql" not in loaded(result)


def test_where_nothing_is_watched_no_spark_is_loaded_to_find_that_out(tmp_path: Path) -> None:
    settings = tmp_path / "headgate.yaml"
    settings.write_text("kafka: {bootstrap_servers: 'a:9092'}\nclusters: {a: {zookeeper: {servers: 'a:2181'}}}\n")
    commands = [(command, "-s", str(settings)) for command in ("run", "collect")]
    result = each(*commands)
    assert [line.partition(": name")[0] for line in said(result)[::2]] == ["clusters: nothing is watched"] * 2
    assert said(result)[1::2] == [f"{' '.join(words)} 2" for words in commands]
    assert "pyspark.sql" not in loaded(result)


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
