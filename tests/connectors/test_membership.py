"""A member of a group: what it asks, believes and gives up; and that no two ever hold the same share."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from connectors import membership
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import PartitionSettings
from connectors.membership import Group, Membership, PartitionLease
from policies.units import UserError
from tests.examples import examples

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
        "session.timeout.ms": 30_000, "heartbeat.interval.ms": 5_000, "group.instance.id": "headgate.act.act-0",
    }  # fmt: skip
    assert "group.instance.id" not in Bench(monkeypatch).client.options


def test_who_leaves_holds_nothing_and_waits_no_longer_than_the_session_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, answered = Bench(monkeypatch, session_timeout="50ms"), threading.Event()
    bench.client.tell("on_assign", 1)
    bench.client.answer()
    monkeypatch.setattr(Client, "close", lambda _self: answered.wait())
    bench.member.close()
    assert not answered.is_set(), "librdkafka waits still, and nobody for it"
    assert not bench.member.lease.holds(1)
    answered.set()


# The lease, and a model of Kafka's group: who is a member, and until when it counts as alive.


SESSION = 6.0
VALID = SESSION * 5 / 6


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lease(time: Time) -> PartitionLease:
    return PartitionLease(SESSION, time)


def test_it_ends_before_kafka_would_give_the_share_to_another(lease: PartitionLease, time: Time) -> None:
    assert VALID < SESSION
    assert lease.is_valid, "without a share there is nothing to confirm"
    lease.add([1])
    lease.renew(time.now)
    lease.renew(time.now - 50)
    time.now += VALID - 0.01
    assert lease.holds(1), "a late answer takes nothing back"
    time.now += 0.01
    assert not lease.holds(1)
    assert not lease.is_valid


def test_who_was_taken_for_dead_holds_nothing_and_what_it_is_assigned_then_must_be_confirmed(
    lease: PartitionLease, time: Time
) -> None:
    lease.add([1])
    lease.renew(time.now)
    lease.lose()
    assert lease.held == frozenset()
    lease.add([1])
    assert not lease.holds(1)


@dataclass
class Member:
    """A process: its lease, and what is on its way to it."""

    lease: PartitionLease
    frozen_until: float = 0.0
    is_member: bool = False
    heard_at: float = float("-inf")
    """When the group last heard of it."""
    owned: set[int] = field(default_factory=set)
    """What the group counts as its own: assigned to it and not given up."""
    inbox: list[tuple[float, str, float | frozenset[int]]] = field(default_factory=list)
    """When it comes, what it is, and what it says."""


class KafkaGroup:
    """Kafka's side, and the network; virtual time."""

    def __init__(self, time: Time, members: int, shares: int, random: Random) -> None:
        self.time = time
        self.random = random
        self.shares = set(range(shares))
        self.members = [Member(PartitionLease(SESSION, time)) for _ in range(members)]

    def step(self, seconds: float) -> None:
        """Let time pass; members that are awake take what has come, give up what they must, and ask again."""
        self.time.now += seconds
        self._expire()
        for member in self.members:
            if member.frozen_until <= self.time.now:
                self._live(member)
        self._assign()

    def freeze(self, index: int, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so much later."""
        self.members[index].frozen_until = self.time.now + seconds

    def _expire(self) -> None:
        for member in self.members:
            if member.is_member and self.time.now > member.heard_at + SESSION:
                member.is_member = False
                member.owned.clear()

    def _live(self, member: Member) -> None:
        due = [each for each in member.inbox if each[0] <= self.time.now]
        member.inbox = [each for each in member.inbox if each[0] > self.time.now]
        for _, kind, value in due:
            self._receive(member, kind, value)
        if self.random.random() < 0.3:
            return  # this request is lost
        if not member.is_member:
            member.lease.lose()
            member.is_member, member.heard_at, member.inbox = True, self.time.now, []
        elif member.lease.held:
            member.heard_at = self.time.now
            self._send(member, "renewed", self.time.now)

    def _receive(self, member: Member, kind: str, value: float | frozenset[int]) -> None:
        if kind == "renewed" and isinstance(value, float):
            member.lease.renew(value)
        elif kind == "assigned" and isinstance(value, frozenset):
            member.lease.add(value)
        elif kind == "revoked" and isinstance(value, frozenset):
            member.lease.remove(value)
            if member.is_member:
                member.owned -= value  # only now may it become another's

    def _assign(self) -> None:
        living = [member for member in self.members if member.is_member]
        if not living:
            return
        free = self.shares.difference(*(member.owned for member in living))
        for share in free:
            member = self.random.choice(living)
            member.owned.add(share)
            self._send(member, "assigned", frozenset({share}))
        if self.random.random() < 0.2:
            member = self.random.choice(living)
            # Once each: a second one would come when the share may be its own anew, and take that from it.
            if kept := sorted(member.owned.difference(*_revoked(member))):
                self._send(member, "revoked", frozenset({self.random.choice(kept)}))

    def _send(self, member: Member, kind: str, value: float | frozenset[int]) -> None:
        at = max([self.time.now + self.random.uniform(0, 3), *(each[0] for each in member.inbox)])  # in order
        member.inbox.append((at, kind, value))


def _revoked(member: Member) -> list[frozenset[int]]:
    """What it has been told to give up, and has not heard yet."""
    return [value for _, kind, value in member.inbox if kind == "revoked" and isinstance(value, frozenset)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 2), st.floats(0.05, 3.0)),
        st.tuples(st.just("freeze"), st.integers(0, 2), st.floats(0.1, 30.0)),
    ),
    min_size=20,
    max_size=80,
)


@examples(3)
@given(seed=st.integers(0, 2**32), steps=STEPS)
@example(seed=1, steps=[("pass", 0, 0.5)] * 30 + [("freeze", 0, 10.0)] + [("pass", 0, 0.5)] * 40)
def test_a_share_is_never_held_by_two_at_once(seed: int, steps: list[tuple[str, int, float]]) -> None:
    time = Time()
    group = KafkaGroup(time, members=3, shares=4, random=Random(seed))
    for kind, index, seconds in steps:
        group.freeze(index, seconds) if kind == "freeze" else group.step(seconds)
        for share in group.shares:
            assert sum(member.lease.holds(share) for member in group.members) <= 1, (share, time.now)


def test_in_the_model_shares_are_held_most_of_the_time_and_all_change_hands() -> None:
    """So the test above is one of something."""
    time = Time()
    group = KafkaGroup(time, members=3, shares=4, random=Random(7))
    held, by = 0, set()
    for step in range(2000):
        if step % 100 == 0:
            group.freeze(step // 100 % 3, 12.0)
        group.step(0.5)
        holders = [[i for i, m in enumerate(group.members) if m.lease.holds(share)] for share in group.shares]
        held += sum(map(len, holders))
        by |= {(share, i) for share, found in enumerate(holders) for i in found}
    assert held > 0.4 * 2000 * 4
    assert len(by) == 12
