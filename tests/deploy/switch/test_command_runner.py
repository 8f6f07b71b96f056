"""How a switch is started: when a precheck is due, which report counts, and who must be asked."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.settings.application import Settings
from deploy.switch.command_runner import CommandRunner, find_report, is_under_way
from deploy.switch.loop_client import Received
from policies.observations import Outcome
from policies.switching.decisions import SwitchDecision, SwitchVerdict
from policies.switching.readings import CommandName
from policies.switching.state import ENDED, SwitchStage
from policies.units import UserError
from policies.wire import observation_event
from tests.cases import for_each
from tests.deploy.switch.decisions import NOW, Loop, command, record, register, report
from tests.deploy.switch.test_loop_client import SETTINGS, FakeKafka


def received(event: str, data: Any) -> Received:
    return Received(id=event, source="test", type="any", data=data)


def prechecked(loop: Loop, *answers: tuple[str, object]) -> tuple[list[Received], SwitchDecision]:
    """A loop of which a precheck is asked, and everything that is received once these reports have come."""
    loop.step(register("old", "1"))
    loop.step(register("new", "2"))
    (order,) = loop.step(command(CommandName.PRECHECK, "3", target="new"))
    assert order.verdict is SwitchVerdict.RUN_PRECHECK
    found = [received("e", order)]
    for event, reading in answers:
        decisions = loop.step(reading, event)  # type: ignore[arg-type]
        found += [received(d.decision_id, d) for d in decisions] + [received(event, reading)]
    return found, order


def test_the_report_is_the_one_that_the_policy_names_as_its_evidence() -> None:
    all_received, order = prechecked(Loop(), ("r1", report(digest="a")), ("r2", report(target="other")))
    assert find_report(all_received, order, "new") == (report(digest="a"), None)


def test_a_report_that_the_policy_has_not_taken_yet_is_awaited() -> None:
    before, order = prechecked(Loop())
    assert find_report(before, order, "new") is None
    assert find_report([*before, received("r1", report())], order, "new") is None
    before, order = prechecked(Loop(), ("r1", report()))
    assert find_report([r for r in before if r.id != "r1"], order, "new") is None, "and the other way round"


def test_what_was_decided_before_the_order_is_no_answer_to_it() -> None:
    loop = Loop()
    before, _ = prechecked(loop, ("r1", report(digest="a")))
    (order,) = loop.step(command(CommandName.PRECHECK, "4", target="new"))
    assert find_report([*before, received("e", order)], order, "new") is None


def test_a_precheck_that_could_not_be_made_is_told_by_its_reading() -> None:
    failed = report(outcome=Outcome.UNREACHABLE, detail="zk-1 is down", ready=False)
    all_received, order = prechecked(Loop(), ("r1", failed))
    assert find_report(all_received, order, "new") == (failed, None)


@for_each("stage", list(SwitchStage))
def test_only_a_switch_that_is_under_way_is_driven_on_without_a_precheck(stage: SwitchStage) -> None:
    began = record(verdict=stage, attempt=0 if stage is SwitchStage.NONE else 1)
    assert is_under_way(began) is (stage not in ENDED and stage is not SwitchStage.NONE)


def runner(settings: Settings | None = None, **options: Any) -> CommandRunner:
    return CommandRunner(settings=settings or Settings(), cluster="c1", console=Console(), **options)


class Executor(FakeKafka):
    """A loop whose executor answers a precheck with this report."""

    answer = report()

    def publish(self, topic: str, key: str, value: bytes) -> None:
        super().publish(topic, key, value)
        if self.sent[-1].command is CommandName.PRECHECK:
            event = observation_event(self.answer, id="r1", source="test", time=NOW)
            self.append_bytes(b"c1", event)
            self.append(*self.loop.step(self.answer, "r1"))


@for_each(
    ("ready", "options", "sent"),
    [
        (False, {"yes": True}, ["precheck"]),
        (True, {"yes": True}, ["precheck", "start"]),
        (True, {"dry_run": True}, ["precheck", "start"]),
    ],
    ids=["not ready", "ready", "a dry run asks nobody"],
)
def test_a_switch_starts_only_on_a_report_that_finds_the_target_ready(
    ready: bool, options: dict[str, bool], sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Executor(monkeypatch)
    for name in ("old", "new"):
        kafka.loop.step(register(name, name))
    kafka.answer = report(ready=ready)
    runner(SETTINGS, **options).start("new", None)
    assert [each.command.value for each in kafka.sent] == sent
    assert kafka.sent[0].dry_run is False
    assert kafka.sent[-1].precheck_digest == (kafka.answer.digest if ready else None)


@for_each("run", [lambda runner: runner.start("new", None), lambda runner: runner.clean_up(execute=True)])
def test_where_nobody_can_be_asked_nothing_is_done_without_yes(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    with pytest.raises(UserError, match="--yes: nobody can be asked here"):
        run(runner())
    with pytest.raises(UserError, match="bootstrap_servers is not set"):  # it went on to send
        run(runner(yes=True))


@for_each(
    ("options", "option"),
    [
        ({"key": "k" * 250}, "--idempotency-key"),
        ({"key": ""}, "--idempotency-key"),
        ({"reason": "r" * 2001}, "--reason"),
        ({"actor": "a" * 250}, "--actor"),
        ({"expected_epoch": 2**63}, "--expected-epoch"),
    ],
)
def test_options_that_the_wire_does_not_take_are_mistakes(options: dict[str, Any], option: str) -> None:
    with pytest.raises(UserError, match=option):
        runner(**options).make_command(CommandName.ROLLBACK)


def test_each_command_has_a_fresh_key_and_says_who_asks() -> None:
    asking = runner(reason="why", expected_epoch=3)
    one, other = (asking.make_command(CommandName.START, digest="d", target="new") for _ in range(2))
    assert one.idempotency_key != other.idempotency_key
    assert "@" in one.actor
    assert (one.reason, one.expected_epoch, one.precheck_digest, one.args.target) == ("why", 3, "d", "new")
    assert runner(key="k", actor="me").make_command(CommandName.ROLLBACK).actor == "me"
