"""How a switch is started: when a precheck is due, which report counts, and who must be asked."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from deploy.settings import Settings
from deploy.switch.command_result import ExitStatus
from deploy.switch.command_runner import CommandConsole, CommandRunner, find_report, is_driven_on
from deploy.switch.loop_client import CommandOptions, Received
from deploy.switch.loop_kafka import embedded_servers, loop_connection
from deploy.switch.published_precheck_view import reading_lines
from policies.errors import UserError
from policies.observations import Outcome
from policies.switching import SwitchDecision
from policies.switching.decisions import SwitchVerdict
from policies.switching.precheck.findings import FindingReason
from policies.switching.readings import CommandName, FindingReading
from policies.switching.state import ENDED, SwitchStage
from tests.deploy.switch.decisions import Loop, command, record, register, report


def prechecked(loop: Loop, *answers: tuple[str, object]) -> tuple[list[Received], SwitchDecision]:
    """A loop of which a precheck is asked, and everything that is received once these reports have come."""
    loop.step(register("old", "1"))
    loop.step(register("new", "2"))
    (order,) = loop.step(command(CommandName.PRECHECK, "3", target="new"))
    assert order.verdict is SwitchVerdict.RUN_PRECHECK
    received = [Received("e", order)]
    for event, reading in answers:
        decisions = loop.step(reading, event)  # type: ignore[arg-type]
        received += [Received(d.decision_id, d) for d in decisions] + [Received(event, reading)]  # type: ignore[arg-type]
    return received, order


def test_the_report_is_the_one_that_the_policy_names_as_its_evidence() -> None:
    received, order = prechecked(Loop(), ("r1", report(digest="a")), ("r2", report(target="other")))
    found = find_report(received, order, "new")
    assert found is not None
    assert found[0] == report(digest="a")
    assert found[1] is not None
    assert found[1].args["digest"] == "a"


def test_a_report_that_the_policy_has_not_taken_yet_is_awaited() -> None:
    received, order = prechecked(Loop())
    assert find_report(received, order, "new") is None
    assert find_report([*received, Received("r1", report())], order, "new") is None
    received, order = prechecked(Loop(), ("r1", report()))
    assert find_report([r for r in received if r.id != "r1"], order, "new") is None, "and the other way round"


def test_what_was_decided_before_the_order_is_no_answer_to_it() -> None:
    loop = Loop()
    before, _ = prechecked(loop, ("r1", report(digest="a")))
    (order,) = loop.step(command(CommandName.PRECHECK, "4", target="new"))
    assert find_report([*before, Received("e", order)], order, "new") is None


def test_a_precheck_that_could_not_be_made_is_told_by_its_reading() -> None:
    failed = report(outcome=Outcome.UNREACHABLE, detail="zk-1 is down", ready=False)
    received, order = prechecked(Loop(), ("r1", failed))
    assert find_report(received, order, "new") == (failed, None)
    assert shown(failed) == ["The precheck of new could not be made: unreachable: zk-1 is down"]


def shown(reading: object) -> list[str]:
    out = StringIO()
    for line in reading_lines(reading):  # type: ignore[arg-type]
        Console(file=out, width=200).print(line, highlight=False)
    return [line.strip() for line in out.getvalue().splitlines() if line.strip()]


def test_the_report_shows_what_was_found_and_what_to_do() -> None:
    finding = FindingReading(reason=FindingReason.FOREIGN_ID, detail="ledger 5 is there", remedy="Take another.")
    lines = shown(report(ready=False, to_import=1, greatest_id=7, source_next_id=8, findings=(finding, finding)))
    assert lines[0] == "NOT READY: old to new: foreign_id"
    assert lines[1:3] == ["next ledger ids: 8 in old, unknown in new", "1 ledger to import; the greatest id is 7"]
    assert lines.count("foreign_id: ledger 5 is there") == 2
    assert lines.count("foreign_id: Take another.") == 1
    assert lines[-1] == f"digest {'d' * 64}, counts for 10 min"
    assert shown(report())[0] == "READY: old to new"


@pytest.mark.parametrize("stage", list(SwitchStage))
def test_only_a_switch_to_the_same_target_that_is_under_way_is_driven_on_without_a_precheck(stage: SwitchStage) -> None:
    began = record(verdict=stage, attempt=0 if stage is SwitchStage.NONE else 1)
    assert is_driven_on(began, "new") is (stage not in ENDED and stage is not SwitchStage.NONE)
    assert not is_driven_on(began, "other")


# Before anything is sent


def runner(*, yes: bool = False, key: str | None = None, cluster: str = "c1") -> CommandRunner:
    return CommandRunner(
        Settings(), CommandOptions(cluster=cluster, key=key), CommandConsole(Console(), as_json=False, yes=yes), 1.0
    )


@pytest.mark.parametrize("what", ["start", "cleanup"])
def test_where_nobody_can_be_asked_nothing_is_done_without_yes(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    ways: dict[str, Callable[[CommandRunner], ExitStatus]] = {
        "start": lambda d: d.start("new", None),
        "cleanup": lambda d: d.clean_up(execute=True),
    }
    run = ways[what]
    with pytest.raises(UserError, match="--yes: nobody can be asked here"):
        run(runner())
    with pytest.raises(UserError, match="bootstrap_servers is not set"):  # it went on to send
        run(runner(yes=True))


@pytest.mark.parametrize(
    ("asking", "option"),
    [
        (CommandOptions(cluster="c1", key="k" * 250), "--idempotency-key"),
        (CommandOptions(cluster="c1", key=""), "--idempotency-key"),
        (CommandOptions(cluster="c1", reason="r" * 2001), "--reason"),
        (CommandOptions(cluster="c1", actor="a" * 250), "--actor"),
        (CommandOptions(cluster="c1", expected_epoch=2**63), "--expected-epoch"),
    ],
    ids=["long key", "empty key", "reason", "actor", "epoch"],
)
def test_options_that_the_wire_does_not_take_are_mistakes(asking: CommandOptions, option: str) -> None:
    with pytest.raises(UserError, match=option):
        asking.command(CommandName.ROLLBACK)


def test_each_command_has_a_fresh_key_and_says_who_asks() -> None:
    asking = CommandOptions(cluster="c1", reason="why", expected_epoch=3)
    one, other = (asking.command(CommandName.START, digest="d", target="new") for _ in range(2))
    assert one.idempotency_key != other.idempotency_key
    assert "@" in one.actor
    assert (one.reason, one.expected_epoch, one.precheck_digest, one.args.target) == ("why", 3, "d", "new")
    assert CommandOptions(cluster="c1", key="k", actor="me").command(CommandName.ROLLBACK).actor == "me"


def test_a_status_tells_a_program_how_a_command_ended() -> None:
    assert (int(ExitStatus.ACCEPTED), int(ExitStatus.REJECTED), int(ExitStatus.NO_DECISION)) == (0, 1, 3)


# Which Kafka


def embedded(folder: Path, pid: int, content: str = '{"broker_ports": {"1": 20001, "2": 20002}}') -> Path:
    folder.mkdir(parents=True)
    (folder / "lock").write_text(f"{pid}\n")
    (folder / "cluster.json").write_text(content)
    return folder


def test_a_running_up_is_found_by_its_data_folder(tmp_path: Path) -> None:
    embedded(tmp_path / "kafka", os.getpid())
    connection = loop_connection(Settings(data_dir=tmp_path))
    assert connection.servers() == ["127.0.0.1:20001", "127.0.0.1:20002"]


def test_the_settings_win_over_a_running_up(tmp_path: Path) -> None:
    embedded(tmp_path / "kafka", os.getpid())
    settings = Settings.model_validate({"data_dir": tmp_path, "kafka": {"bootstrap_servers": "k:9092"}})
    assert loop_connection(settings).servers() == ["k:9092"]


def test_an_up_that_has_ended_or_never_was_is_not_found(tmp_path: Path) -> None:
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    assert embedded_servers(embedded(tmp_path / "ended", ended)) is None
    assert embedded_servers(tmp_path / "never") is None
    assert embedded_servers(embedded(tmp_path / "half", os.getpid(), "{")) is None
    with pytest.raises(UserError, match=f"no `headgate up` runs on the data folder {tmp_path}: name the loop's own"):
        loop_connection(Settings(data_dir=tmp_path))
