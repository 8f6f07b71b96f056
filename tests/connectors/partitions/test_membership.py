"""A member of a group, beside a stand-in for Kafka's client: what it asks, believes and gives up, and in what order."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from connectors.kafka.connection import KafkaConnection
from connectors.partitions import membership
from connectors.partitions.membership import Group, Membership
from connectors.partitions.settings import PartitionSettings
from policies.units import UserError

TOPIC = "headgate.shares"


class Client:
    """What the test has Kafka say, and what was asked of it."""

    made: "Client"

    def __init__(self, options: dict[str, Any], **_: Any) -> None:
        Client.made = self
        self.options = options
        self.said: list[str] = []
        self.commits: list[list[TopicPartition]] = []
        self.callbacks: dict[str, Callable[..., None]] = {}

    def subscribe(self, topics: Sequence[str], **callbacks: Callable[..., None]) -> None:
        assert topics == [TOPIC]
        self.callbacks = callbacks

    def poll(self, _seconds: float) -> None:
        return None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "it must not wait for Kafka"
        self.commits.append(offsets)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.said.append(f"assigned {[each.partition for each in partitions]}")

    def pause(self, _partitions: Sequence[TopicPartition]) -> None:
        self.said.append("paused")

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        self.said.append(f"unassigned {[each.partition for each in partitions]}")

    def close(self) -> None:
        self.said.append("left")

    def tell(self, event: str, *shares: int) -> None:
        self.callbacks[event](self, [TopicPartition(TOPIC, share) for share in shares])

    def answer(self, code: int | None = None) -> None:
        self.options["on_commit"](None if code is None else KafkaError(code), [])


class Bench:
    """A member, its clock and its client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        monkeypatch.setattr(membership, "Consumer", Client)
        self.now = 100.0
        connection = KafkaConnection(bootstrap_servers="127.0.0.1:1")
        self.member = Membership(
            connection, Group("headgate.act", TOPIC), PartitionSettings(**settings), self._changed, lambda: self.now
        )
        self.client = Client.made

    def _changed(self, assigned: frozenset[int] | None) -> None:
        if assigned is None:
            assert self.member.lease.held == frozenset()
            self.client.said.append("is no member")
            return
        may = [share for share in assigned if self.member.lease.holds(share)]
        self.client.said.append(f"holds {sorted(assigned)}, may act on {may}")

    def step(self, after: float = 0.0) -> None:
        self.now += after
        self.member.step()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_until_it_is_told_what_is_its_share_it_says_so_and_nothing_is_its_share_too(bench: Bench) -> None:
    bench.step()
    assert bench.member.problem == "waits for Kafka to assign its share"
    assert bench.client.commits == [], "there is nothing to confirm"
    bench.client.tell("on_assign")
    assert bench.member.problem is None


def test_it_is_no_member_before_what_it_holds_was_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str | None] = []
    monkeypatch.setattr(bench.member, "_on_change", lambda _: problems.append(bench.member.problem))
    for _ in range(2):
        bench.client.tell("on_assign", 1)
    assert problems == ["waits for Kafka to assign its share", None]


def test_what_is_assigned_is_confirmed_at_once_and_counts_from_when_that_was_asked(bench: Bench) -> None:
    bench.client.tell("on_assign", 3, 1)
    assert bench.client.said == ["assigned [3, 1]", "paused", "holds [1, 3], may act on []"]
    assert [each.partition for (each,) in bench.client.commits] == [1]
    bench.now += 4.5
    bench.client.answer()
    assert bench.member.lease.holds(3)
    bench.now += 0.5
    assert not bench.member.lease.holds(3), "five seconds after it was asked"


def test_it_asks_each_second_and_not_again_before_it_has_an_answer(bench: Bench) -> None:
    bench.client.tell("on_assign", 1)
    bench.step(after=3.0)
    assert len(bench.client.commits) == 1
    bench.client.answer()
    bench.step()
    bench.step(after=0.5)
    assert len(bench.client.commits) == 2, "at once, and then not for a second"
    bench.client.answer()
    bench.step(after=0.5)
    assert len(bench.client.commits) == 3


def test_who_is_refused_does_not_hold_on_and_asks_again(bench: Bench) -> None:
    bench.client.tell("on_assign", 1)
    bench.client.answer(KafkaError.ILLEGAL_GENERATION)
    assert not bench.member.lease.holds(1)
    bench.step(after=1.0)
    bench.client.answer()
    assert bench.member.lease.holds(1)


@pytest.mark.parametrize(
    ("event", "told"), [("on_revoke", "holds [], may act on []"), ("on_lost", "is no member")], ids=["revoked", "lost"]
)
def test_what_goes_may_not_be_acted_on_before_it_is_stopped_and_is_stopped_before_another_has_it(
    bench: Bench, event: str, told: str
) -> None:
    bench.client.tell("on_assign", 1, 2)
    bench.client.answer()
    bench.client.said.clear()
    bench.client.tell(event, 1, 2)
    assert bench.client.said == [told, "unassigned [1, 2]"]
    assert not bench.member.lease.holds(1)


def test_what_stays_when_something_is_revoked_may_be_acted_on_all_the_time(bench: Bench) -> None:
    bench.client.tell("on_assign", 1, 2)
    bench.client.answer()
    bench.client.tell("on_revoke", 1)
    assert bench.client.said[-2:] == ["holds [2], may act on [2]", "unassigned [1]"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, r"the group headgate\.act: grant its user Read on this group"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"grant its user Read on headgate\.shares"),
        (KafkaError.INVALID_SESSION_TIMEOUT, r"set shares\.session_timeout to a value between"),
        (KafkaError.FENCED_INSTANCE_ID, r"another process has the same shares\.instance"),
    ],
)
def test_who_is_not_let_in_says_what_to_mend(bench: Bench, code: int, says: str) -> None:
    bench.client.options["error_cb"](KafkaError(code))
    with pytest.raises(UserError, match=says):
        bench.step()


def test_settings_reach_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Bench(monkeypatch, session_timeout="30s", instance="act-0").client.options
    found = {name: options[name] for name in ("session.timeout.ms", "heartbeat.interval.ms", "group.instance.id")}
    assert found == {
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 5_000,
        "group.instance.id": "headgate.act.act-0",
    }
    assert "group.instance.id" not in Bench(monkeypatch).client.options


def test_who_leaves_holds_nothing(bench: Bench) -> None:
    bench.client.tell("on_assign", 1)
    bench.client.answer()
    bench.member.close()
    assert bench.client.said[-1] == "left"
    assert not bench.member.lease.holds(1)


def test_who_leaves_waits_for_kafkas_answer_no_longer_than_the_session_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, answered = Bench(monkeypatch, session_timeout="50ms"), threading.Event()
    monkeypatch.setattr(Client, "close", lambda _self: answered.wait())
    bench.member.close()
    assert not answered.is_set(), "librdkafka waits still, and nobody for it"
    answered.set()
