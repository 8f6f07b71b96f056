"""Commands are sent to the loop once, after who must be asked was; what is decided about them is printed."""

from io import StringIO
from typing import Any, Self

import pytest
from rich.console import Console

from connectors.kafka.publisher import PublisherMetrics
from connectors.kafka.tail import Record
from deploy.inspection import requests
from deploy.settings.application import Settings
from deploy.switch import loop_commands
from deploy.switch.loop_commands import (
    SHOWN,
    CommandResult,
    CommandRunner,
    ExitStatus,
    LoopClient,
    NoDecisionError,
    Received,
    event_id,
    find_report,
    find_result,
    is_under_way,
    result_lines,
)
from policies.decisions import Decision
from policies.observations import Outcome
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchReason, SwitchVerdict
from policies.switching.readings import CommandName, SwitchCommand
from policies.switching.state import ENDED, SwitchStage
from policies.units import UserError
from policies.wire import EventReader, decision_event, observation_event
from tests.cases import for_each
from tests.deploy.switch.decisions import NOW, Loop, command, record, register, report

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
COMMANDS: EventReader[Any] = EventReader((SwitchCommand,))


class FakeKafka:
    """The loop's Kafka with the policy behind it, which decides on each command at once, unless it is away.

    It is also what reads from it and writes to it, and the module `time`, which passes while nothing comes.
    """

    caught_up = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.sent: list[SwitchCommand] = []
        self.takes_records = True
        self.decides = True
        self.problem: str | None = None
        self.seconds = 0.0
        self._unread: list[Record] = []
        monkeypatch.setattr(loop_commands, "time", self)
        monkeypatch.setattr(loop_commands, "Tail", lambda *_: self)
        monkeypatch.setattr(requests, "Publisher", self._publisher)

    def _publisher(self, _settings: object, metrics: PublisherMetrics, **_: object) -> Self:
        self._metrics = metrics
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def publish(self, topic: str, _key: str, value: bytes) -> None:
        if not self.takes_records:
            self._metrics.unpublished.labels(topic, "_MSG_TIMED_OUT").inc()
            return
        self._metrics.published.labels(topic).inc()
        sent: SwitchCommand = COMMANDS.read(value).data
        self.sent.append(sent)
        if self.decides:
            self.append(*self.loop.step(sent))

    def flush(self, _timeout_seconds: float) -> int:
        return 0

    def append(self, *decisions: Decision) -> None:
        self._unread += [Record("decided", d.record_key().encode(), decision_event(d), 0) for d in decisions]

    def append_bytes(self, key: bytes, value: bytes | None) -> None:
        self._unread.append(Record("decided", key, value, 0))

    def poll(self, timeout_seconds: float) -> list[Record]:
        records, self._unread = self._unread, []
        self.seconds += 0.0 if records else timeout_seconds
        return records

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    return FakeKafka(monkeypatch)


def client(*, with_past: bool = False) -> LoopClient:
    return LoopClient(SETTINGS, "c1", 5.0, with_past=with_past)


def test_a_command_is_sent_and_what_is_decided_about_it_is_its_result(kafka: FakeKafka) -> None:
    with client() as loop:
        result = loop.execute(register("old"))
    assert [sent.idempotency_key for sent in kafka.sent] == ["k"]
    assert (result.refusal, result.earlier) == (None, False)
    assert {decision.verdict.value for decision in result.decisions} == {"write-registry"}


def test_a_command_that_was_decided_before_is_not_sent_again(kafka: FakeKafka) -> None:
    kafka.append(*kafka.loop.step(register("old")))
    with client(with_past=True) as loop:
        loop.poll(0)
        assert loop.execute(register("old")).earlier
    assert kafka.sent == []


def test_where_nothing_is_decided_in_time_it_says_how_to_ask_later_and_what_is_wrong(kafka: FakeKafka) -> None:
    kafka.decides, kafka.problem = False, "Kafka does not answer"
    expected = r"mine: that does not run it twice\. \(Kafka does not answer\)"
    with client() as loop, pytest.raises(NoDecisionError, match=expected) as raised:
        loop.execute(command(CommandName.ROLLBACK, "mine"))
    assert raised.value.command.idempotency_key == "mine"


def test_a_command_that_kafka_does_not_take_is_a_mistake_to_mend(kafka: FakeKafka) -> None:
    kafka.takes_records = False
    refused = r"could not be sent to headgate\.commands \(_MSG_TIMED_OUT\)"
    with client() as loop, pytest.raises(UserError, match=refused):
        loop.execute(register("old"))


def test_where_the_switch_stands_is_the_latest_record(kafka: FakeKafka) -> None:
    for name in ("old", "new"):
        kafka.loop.step(register(name, name))
    kafka.append(*kafka.loop.decisions)
    with client(with_past=True) as loop:
        assert loop.record() is None
        loop.poll(0)
        record = loop.record()
    assert record is not None
    assert record.sequence == max(d.sequence for d in kafka.loop.decisions if type(d) is type(record))


def test_other_clusters_and_what_cannot_be_read_are_left_out(kafka: FakeKafka) -> None:
    (decision, *_) = kafka.loop.step(register("old"))
    others = decision.model_copy(update={"cluster": "c10", "subject": "c10/commands/k"})
    about_ledger = decision.model_copy(update={"subject": "c1/ledgers/7", "decision_id": "d7"})
    kafka.append(others, about_ledger)  # of ledgers there may be very many
    kafka.append_bytes(b"c1/switch", b"no event")
    kafka.append_bytes(b"c1/switch", None)
    kafka.append(decision)
    with client() as loop:
        loop.poll(0)
        assert [received.data for received in loop.received] == [decision]


def test_once_a_command_is_sent_only_decisions_about_ledgers_that_follow_from_it_are_read(kafka: FakeKafka) -> None:
    with client() as loop:
        (first, *_) = loop.execute(register("old")).decisions
        about_ledger = first.model_copy(update={"subject": "c1/ledgers/7", "decision_id": "d7"})
        kafka.append(about_ledger, about_ledger.model_copy(update={"subject": "c1/ledgers/8", "evidence": ()}))
        loop.poll(0)
        assert loop.received[-1].data == about_ledger


# --- which decisions count, what is printed, and the exit status


def printed(result: CommandResult) -> str:
    out = StringIO()
    console = Console(file=out, width=200)
    for line in result_lines(result):
        console.print(line, highlight=False)
    return out.getvalue()


def asked(loop: Loop, given: SwitchCommand) -> CommandResult:
    loop.step(given)
    result = find_result(given, [d for d in loop.decisions if isinstance(d, SwitchDecision)])
    assert result is not None
    return result


def with_old_and_new(**settings: Any) -> Loop:
    loop = Loop(**settings)
    loop.step(register("old", "1"))
    loop.step(register("new", "2"))
    return loop


def test_a_command_that_leads_to_an_order_was_accepted() -> None:
    result = asked(Loop(), register("old"))
    assert (result.exit_status, result.refusal) == (ExitStatus.ACCEPTED, None)
    text = printed(result)
    assert text.startswith("write-registry: old (zk+hierarchical://old:2181/ledgers) is registered as active\n")
    assert "register k, epoch 0" in text


def test_a_command_that_is_rejected_says_its_code_and_why() -> None:
    result = asked(with_old_and_new(), register("third", "3", instance="id-old"))
    assert (result.exit_status, result.plain()["code"]) == (ExitStatus.REJECTED, "URI_DUPLICATE")
    assert printed(result).startswith("REJECTED URI_DUPLICATE: id-old/ledgers is already registered as old\n")


@for_each(
    ("given", "ended", "begins"),
    [
        (register("third", "3", dry_run=True), ExitStatus.ACCEPTED, "preview: would: third ("),
        (register("old", "3", "id-x", dry_run=True), ExitStatus.REJECTED, "preview NAME_CONFLICT: would be rejected"),
    ],
)
def test_a_preview_ends_as_the_command_itself_would(given: SwitchCommand, ended: ExitStatus, begins: str) -> None:
    result = asked(with_old_and_new(), given)
    assert result.exit_status is ended
    assert printed(result).startswith(begins)


def test_other_commands_decisions_are_no_result() -> None:
    loop, mine = with_old_and_new(), command(CommandName.ROLLBACK, "mine")
    loop.step(command(CommandName.ROLLBACK, "theirs"))
    decisions = [d for d in loop.decisions if isinstance(d, SwitchDecision)]
    assert find_result(mine, decisions) is None
    assert find_result(mine.model_copy(update={"cluster": "c2"}), decisions) is None
    loop.step(mine)
    result = find_result(mine, [d for d in loop.decisions if isinstance(d, SwitchDecision)])
    assert result is not None
    assert [d.subject for d in result.decisions] == ["c1/commands/mine"]


def decision(verdict: SwitchVerdict, subject: str, sequence: int = 1, **more: Any) -> SwitchDecision:
    about = record(subject=subject, sequence=sequence, decision_id=f"{subject}{sequence}", evidence=(event_id(START),))
    kept = {k: v for k, v in about.model_dump().items() if k in SwitchDecision.model_fields and k != "ledgers"}
    fields = {"stage": "build", "lease_token": 1, "op": 0, "valid_until": None, "reason": SwitchReason.COMMANDED}
    return SwitchDecision.model_validate({**kept, "verdict": verdict, **fields, **more})


START = command(CommandName.START, "s", target="new")


@for_each(
    ("last", "ends"),
    [
        (decision(SwitchVerdict.HALT, "c1/switch", 2), ExitStatus.REJECTED),
        (decision(SwitchVerdict.REJECT, "c1/ledgers/5", 2, code=RejectCode.COLLISION), ExitStatus.ACCEPTED),
    ],
    ids=["a halt is no success", "another rejection on the way"],
)
def test_what_else_a_command_leads_to_decides_how_it_ends(last: SwitchDecision, ends: ExitStatus) -> None:
    result = CommandResult(START, (decision(SwitchVerdict.ADVANCE, "c1/switch"), last))
    assert result.exit_status is ends
    assert printed(result).startswith("halt: ") is (result.refusal is not None)


def test_repeated_decisions_are_told_once_and_in_their_order() -> None:
    first = decision(SwitchVerdict.ADVANCE, "c1/switch", 1)
    second = decision(SwitchVerdict.WRITE_DIRECTIVE, "c1/directive", 2)
    result = find_result(START, [second, first, second])
    assert result is not None
    assert result.decisions == (first, second)


def test_of_very_many_decisions_the_others_are_counted() -> None:
    many = tuple(decision(SwitchVerdict.LEDGER, f"c1/ledgers/{i}", i) for i in range(1, SHOWN + 4))
    lines = printed(CommandResult(START, many)).splitlines()
    assert len(lines) == SHOWN + 2
    assert lines[SHOWN] == "and 3 more decisions"


def test_orders_of_a_shadow_policy_are_said_to_go_nowhere() -> None:
    for mode, is_said in (("shadow", True), ("active", False)):
        assert ("no executor carries out these orders" in printed(asked(Loop(mode=mode), register("old")))) is is_said


def test_a_program_gets_everything() -> None:
    plain = asked(with_old_and_new(), register("third", "3", instance="id-old")).plain()
    assert plain["decisions"][0]["code"] == "URI_DUPLICATE"
    del plain["decisions"]
    assert plain == {
        "cluster": "c1", "command": "register", "idempotency_key": "3", "dry_run": False, "accepted": False,
        "code": "URI_DUPLICATE", "earlier": False,
    }  # fmt: skip


def test_the_same_key_is_the_same_event_in_a_cluster_and_in_no_other() -> None:
    one, again = register("old"), command(CommandName.ROLLBACK)
    assert event_id(one) == event_id(again)
    assert event_id(one) != event_id(one.model_copy(update={"cluster": "c2"}))
    assert event_id(one) != event_id(one.model_copy(update={"idempotency_key": "other"}))


# --- how a switch is started: when a precheck is due, which report counts, and who must be asked


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
