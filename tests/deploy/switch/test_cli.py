"""`headgate switch …`: which command each line becomes, with what, and with which status it ends."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.console import options
from deploy.switch import loop_commands
from deploy.switch.cli import switch_app
from policies.switching.readings import CommandName
from policies.units import UserError
from tests.cases import for_each

SETTINGS = """\
kafka: {bootstrap_servers: "loop:9092"}
clusters:
  c1:
    zookeeper: {servers: "zk:2181"}
    bookkeeper: {bootstrap: old, clusters: {old: {}, new: {}}}
"""
OK, REFUSED = 0, 1


class Runner:
    """In place of what speaks to the loop: notes what it is to do, and ends as it is told to."""

    said: list[tuple[Any, ...]]
    made: list[Any]
    status = OK

    def __init__(self, *, settings: Any, cluster: str, as_json: bool, yes: bool, **more: Any) -> None:
        self.settings, self.cluster, self.as_json, self.consent = settings, cluster, as_json, yes
        self.made.append({"cluster": cluster, **more})

    def run(self, name: CommandName, /, **args: Any) -> int:
        self.said.append((name, {key: value for key, value in args.items() if value is not None}))
        return self.status

    def confirm_and_run(self, question: str, name: CommandName, /, **args: Any) -> int:
        assert question.endswith(("?", "."))
        self.said.append((name, args, self.consent))
        return self.status

    def start(self, target: str, digest: str | None) -> int:
        self.said.append(("start", target, digest, self.consent))
        return self.status

    def clean_up(self, *, execute: bool) -> int:
        self.said.append(("clean up", execute, self.consent))
        return self.status


@pytest.fixture(autouse=True)
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands set levels for the whole process."""
    loggers = [logging.getLogger(), logging.getLogger("headgate.librdkafka")]
    levels = [logger.level for logger in loggers]
    monkeypatch.setattr(options, "set_up_logging", lambda **_: None)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Runner]:
    monkeypatch.setattr(Runner, "said", [], raising=False)
    monkeypatch.setattr(Runner, "made", [], raising=False)
    monkeypatch.setattr(loop_commands, "CommandRunner", Runner)
    (tmp_path / "headgate.yaml").write_text(SETTINGS)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Runner


def headgate(*line: str, cluster: str = "c1") -> Any:
    return CliRunner().invoke(switch_app, [*line, "--cluster", cluster, "--settings", "headgate.yaml"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("unregister --name old", (CommandName.UNREGISTER, {"name": "old"}, False)),
        ("unregister --name old --yes", (CommandName.UNREGISTER, {"name": "old"}, True)),
        ("start --target new", ("start", "new", None, False)),
        ("start --target new --digest abc -y", ("start", "new", "abc", True)),
        ("rollback", (CommandName.ROLLBACK, {"attribution_only": True}, False)),
        ("rollback --with-brokers --yes", (CommandName.ROLLBACK, {"attribution_only": False}, True)),
        ("abort", (CommandName.ABORT, {}, False)),
        ("pause -y", (CommandName.PAUSE, {}, True)),
        ("resume", (CommandName.RESUME, {}, False)),
        ("cleanup", ("clean up", False, False)),
        ("cleanup --execute --yes", ("clean up", True, True)),
        ("close-client --name old", (CommandName.CLOSE_CLIENT, {"name": "old"})),
    ],
)
def test_each_line_is_one_command_and_asks_for_consent(runner: type[Runner], line: str, said: tuple[Any, ...]) -> None:
    ended = headgate(*line.split())
    assert (ended.exit_code, runner.said) == (OK, [said]), ended.output


@for_each(
    ("line", "why"),
    [
        ("cleanup --list --execute --yes", "--list: it only lists, and --execute deletes; give one of the two"),
        ("status --failed --watch", "--failed: it is printed once; leave out --watch"),
    ],
)
def test_options_that_contradict_each_other_are_refused(runner: type[Runner], line: str, why: str) -> None:
    ended = headgate(*line.split())
    assert (str(ended.exception), runner.said) == (why, [])


@pytest.mark.parametrize(("status", "told"), [(None, {}), ("active", {"status": "active"})])
def test_a_cluster_is_registered_with_what_is_read_at_its_address(
    runner: type[Runner], monkeypatch: pytest.MonkeyPatch, status: str | None, told: dict[str, str]
) -> None:
    from deploy.switch import precheck

    read = {"name": "old", "uri": "zk://old", "instance_id": "i", "root": "/ledgers"}
    monkeypatch.setattr(precheck, "identify_cluster", lambda settings, cluster, name: read)
    ended = headgate("register", "--name", "old", *(["--status", status] if status else []))
    assert (ended.exit_code, runner.said) == (OK, [(CommandName.REGISTER, read | told)]), ended.output


@pytest.mark.usefixtures("runner")
def test_the_end_of_a_command_is_the_status_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runner, "status", REFUSED)
    assert headgate("abort").exit_code == REFUSED


def test_what_all_commands_have_in_common_reaches_the_loop(runner: type[Runner]) -> None:
    common = "--reason why --actor me --idempotency-key k --expected-epoch 3 --dry-run --timeout 5"
    assert headgate("pause", *common.split()).exit_code == OK
    (made,) = runner.made
    del made["console"]
    assert made == {
        "cluster": "c1", "reason": "why", "actor": "me", "key": "k", "expected_epoch": 3, "dry_run": True,
        "timeout_seconds": 5.0,
    }  # fmt: skip


OPTIONS = ["pause --expected-epoch -1", "pause --timeout 0", "register --name x --status y"]


@for_each("line", ["start", "register", "close-client", *OPTIONS])
def test_what_is_missing_or_wrong_is_a_mistake_in_the_line(runner: type[Runner], line: str) -> None:
    assert headgate(*line.split()).exit_code == 2
    assert runner.said == []


def test_a_cluster_that_the_settings_do_not_name_is_refused_before_anything(runner: type[Runner]) -> None:
    ended = headgate("pause", cluster="c2")
    assert isinstance(ended.exception, UserError)
    assert "c2" in str(ended.exception)
    assert runner.made == []


@pytest.mark.parametrize(("command", "function"), [("precheck", "run_precheck"), ("plan", "show_plan")])
@pytest.mark.parametrize(("answer", "status"), [(True, OK), (False, REFUSED)], ids=["ready", "not ready"])
def test_a_question_ends_with_its_answer(
    runner: type[Runner], monkeypatch: pytest.MonkeyPatch, command: str, function: str, answer: bool, status: int
) -> None:
    asked: list[str] = []

    def answers(settings: Any, cluster: str, *more: Any, **flags: Any) -> bool:
        asked.append(cluster)
        return answer

    monkeypatch.setattr(f"deploy.switch.precheck.{function}", answers)
    ended = headgate(command, "--target", "new")
    assert (ended.exit_code, asked) == (status, ["c1"]), ended.output


@pytest.mark.parametrize(
    ("line", "called"),
    [(each, "show_status") for each in ("status", "status --watch")]
    + [(each, "show_ledgers") for each in ("status --failed", "cleanup --list")],
)
def test_a_status_is_the_records_or_the_failed_ledgers_and_a_clean_up_lists_its_own(
    runner: type[Runner], monkeypatch: pytest.MonkeyPatch, line: str, called: str
) -> None:
    asked: list[str] = []
    for name in ("show_status", "show_ledgers"):
        monkeypatch.setattr(f"deploy.switch.status.{name}", lambda *_args, name=name, **_flags: asked.append(name))
    assert headgate(*line.split()).exit_code == OK
    assert asked == [called]
