"""Commands are sent to the loop once; what is decided about them is received and printed, and nothing else."""

from io import StringIO
from typing import Any, Self

import pytest
from rich.console import Console

from connectors.kafka.publisher import PublisherMetrics
from connectors.kafka.tail import Record
from deploy.inspection import requests
from deploy.settings.application import Settings
from deploy.switch import loop_client
from deploy.switch.loop_client import (
    SHOWN,
    CommandResult,
    ExitStatus,
    LoopClient,
    NoDecisionError,
    event_id,
    find_result,
    result_lines,
)
from policies.decisions import Decision
from policies.switching.decisions import RejectCode, SwitchDecision, SwitchReason, SwitchVerdict
from policies.switching.readings import CommandName, SwitchCommand
from policies.units import UserError
from policies.wire import EventReader, decision_event
from tests.cases import for_each
from tests.deploy.switch.decisions import Loop, command, record, register

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
        monkeypatch.setattr(loop_client, "time", self)
        monkeypatch.setattr(loop_client, "Tail", lambda *_: self)
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
