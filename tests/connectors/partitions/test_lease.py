"""What a process holds and until when; and that no two ever hold the same, whatever is frozen, delayed or lost.

The last part is a model of Kafka's group: who is a member and until when it counts as alive, which shares each is
assigned, and that a share is given to another only once its holder has given it up or has been taken for dead.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.partitions.membership import CLOCK, PartitionLease
from tests.examples import examples

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


def test_what_is_assigned_is_held_once_it_is_confirmed(lease: PartitionLease, time: Time) -> None:
    lease.add([1, 2])
    assert not lease.holds(1)
    lease.renew(time.now)
    assert [lease.holds(share) for share in (1, 2, 3)] == [True, True, False]


def test_it_ends_before_kafka_would_give_the_share_to_another(lease: PartitionLease, time: Time) -> None:
    assert VALID < SESSION
    lease.add([1])
    lease.renew(time.now)
    time.now += VALID - 0.01
    assert lease.holds(1)
    time.now += 0.01
    assert not lease.holds(1)
    assert not lease.is_valid


def test_it_counts_from_when_was_asked_not_from_when_the_answer_came(lease: PartitionLease, time: Time) -> None:
    lease.add([1])
    asked_at = time.now
    time.now += 60  # frozen, with the answer waiting
    lease.renew(asked_at)
    assert not lease.holds(1)


def test_a_late_answer_takes_nothing_back(lease: PartitionLease, time: Time) -> None:
    lease.add([1])
    lease.renew(time.now)
    lease.renew(time.now - 50)
    assert lease.holds(1)


def test_what_is_given_up_is_not_held_from_now_on_and_the_rest_is(lease: PartitionLease, time: Time) -> None:
    lease.add([1, 2])
    lease.renew(time.now)
    lease.remove([1])
    assert [lease.holds(share) for share in (1, 2)] == [False, True]


def test_who_was_taken_for_dead_holds_nothing_and_what_it_is_assigned_then_must_be_confirmed(
    lease: PartitionLease, time: Time
) -> None:
    lease.add([1])
    lease.renew(time.now)
    lease.lose()
    assert lease.held == frozenset()
    lease.add([1])
    assert not lease.holds(1)


def test_who_holds_nothing_has_nothing_to_confirm(lease: PartitionLease) -> None:
    assert lease.is_valid


def test_the_clock_goes_on() -> None:
    assert CLOCK() <= CLOCK()


# --- a model of the group


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


class Group:
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
    group = Group(time, members=3, shares=4, random=Random(seed))
    for kind, index, seconds in steps:
        group.freeze(index, seconds) if kind == "freeze" else group.step(seconds)
        for share in group.shares:
            assert sum(member.lease.holds(share) for member in group.members) <= 1, (share, time.now)


def test_in_the_model_shares_are_held_most_of_the_time_and_all_change_hands() -> None:
    """So the test above is one of something."""
    time = Time()
    group = Group(time, members=3, shares=4, random=Random(7))
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
