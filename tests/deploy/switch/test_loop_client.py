"""Commands are sent to the loop once, and what is decided about them is received, and nothing else."""

from typing import Any, Self

import pytest

from connectors.kafka.publisher import PublisherMetrics
from connectors.kafka.tail import Record
from deploy.inspection import pausing
from deploy.settings.application import Settings
from deploy.switch import loop_client
from deploy.switch.loop_client import LoopClient, NoDecisionError
from policies.decisions import Decision
from policies.switching.readings import CommandName, SwitchCommand
from policies.units import UserError
from policies.wire import EventReader, decision_event
from tests.deploy.switch.decisions import Loop, command, register

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
COMMANDS: EventReader[Any] = EventReader((SwitchCommand,))


class FakeKafka:
    """The loop's Kafka with the policy behind it, which decides on each command at once, unless it is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.sent: list[SwitchCommand] = []
        self.takes_records = True
        self.decides = True
        self.problem: str | None = None
        self.seconds = 0.0
        self._unread: list[Record] = []
        monkeypatch.setattr(loop_client, "time", self)
        monkeypatch.setattr(loop_client, "Tail", lambda *_: FakeTail(self))
        monkeypatch.setattr(pausing, "Publisher", lambda _, metrics, **__: FakePublisher(self, metrics))

    def take(self, event: bytes) -> None:
        sent: SwitchCommand = COMMANDS.read(event).data
        self.sent.append(sent)
        if self.decides:
            self.append(*self.loop.step(sent))

    def append(self, *decisions: Decision) -> None:
        self._unread += [Record("decided", d.record_key().encode(), decision_event(d), 0) for d in decisions]

    def append_bytes(self, key: bytes, value: bytes | None) -> None:
        self._unread.append(Record("decided", key, value, 0))

    def poll(self, timeout_seconds: float) -> list[Record]:
        records, self._unread = self._unread, []
        self.seconds += 0.0 if records else timeout_seconds
        return records

    def monotonic(self) -> float:
        """In place of the module `time`: it passes while nothing comes."""
        return self.seconds


class FakeTail:
    """Gives what was appended since the last poll."""

    caught_up = True

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    @property
    def problem(self) -> str | None:
        return self._kafka.problem

    def poll(self, timeout_seconds: float) -> list[Record]:
        return self._kafka.poll(timeout_seconds)


class FakePublisher:
    """Hands records over at once, or gives them up."""

    def __init__(self, kafka: FakeKafka, metrics: PublisherMetrics) -> None:
        self._kafka = kafka
        self._metrics = metrics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def publish(self, topic: str, _key: str, value: bytes) -> None:
        if self._kafka.takes_records:
            self._metrics.published.labels(topic).inc()
            self._kafka.take(value)
        else:
            self._metrics.unpublished.labels(topic, "_MSG_TIMED_OUT").inc()

    def flush(self, _timeout_seconds: float) -> int:
        return 0


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


def test_where_nothing_is_decided_in_time_it_says_how_to_ask_later(kafka: FakeKafka) -> None:
    kafka.decides = False
    with client() as loop, pytest.raises(NoDecisionError, match="mine: that does not run it twice") as raised:
        loop.execute(command(CommandName.ROLLBACK, "mine"))
    assert raised.value.command.idempotency_key == "mine"


def test_what_is_wrong_with_kafka_is_said_when_nothing_is_decided(kafka: FakeKafka) -> None:
    kafka.decides, kafka.problem = False, "Kafka does not answer"
    with client() as loop, pytest.raises(NoDecisionError, match=r"\(Kafka does not answer\)"):
        loop.execute(register("old"))


def test_a_command_that_kafka_does_not_take_is_a_mistake_to_mend(kafka: FakeKafka) -> None:
    kafka.takes_records = False
    with (
        client() as loop,
        pytest.raises(UserError, match=r"could not be sent to headgate\.commands \(_MSG_TIMED_OUT\)"),
    ):
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
    kafka.append(others)
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
