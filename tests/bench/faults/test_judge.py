"""The judge itself: what is missing, foreign, changed or out of order is seen; what is repeated is no fault."""

from collections import defaultdict
from dataclasses import replace

import pytest

from bench.faults.__main__ import plan
from bench.faults.judge import Judge, out_of_order
from bench.faults.kinds import KINDS
from bench.faults.records import StoredRecord
from policies.units import to_millis
from policies.wire import ObservedRecord
from streaming.host import PolicyHost
from tests.policies.scenario import GB, SOFT_AND_HARD, at, log_dirs, throttle
from tests.streaming.records import event
from tests.system.undisturbed import Batch, Taken, Undisturbed

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)})
LOG_DIRS = "observed.log-dirs"
START_MS = 1_795_248_000_000
OBSERVED = [
    StoredRecord(LOG_DIRS, n, START_MS + 1000 * n, "payments", event(log_dirs(n, 3, free * GB)))
    for n, free in enumerate((50, 4, 3, 20))
]


class Topics:
    """What lies in the topics; nothing comes after it."""

    def __init__(self) -> None:
        self.of: defaultdict[str, list[StoredRecord]] = defaultdict(list)
        self.of[LOG_DIRS] = list(OBSERVED)
        self.batches: list[Batch] = []
        run = Undisturbed(HOST, "h")
        records = [ObservedRecord(f"h.{LOG_DIRS}", 0, k.offset, k.appended_ms, k.value) for k in OBSERVED]
        for number, (start, end) in enumerate(((0, 2), (2, 4))):
            self.batches.append(Batch(number, START_MS + 1000 * end + 100, (Taken(LOG_DIRS, 0, start, end),)))
            for turn in run.step(self.batches[-1], records[start:end], begins=number == 0):
                for topic, key, value in turn.outputs:
                    self._add(topic, value, key)

    def _add(self, topic: str, value: bytes, key: str = "") -> None:
        self.of[topic].append(StoredRecord(topic, len(self.of[topic]), START_MS, key, value))

    def read(self) -> None:
        """Nothing more."""


@pytest.fixture
def topics() -> Topics:
    return Topics()


def judge(topics: Topics) -> Judge:
    return Judge(topics, "h", HOST)  # type: ignore[arg-type]  # a stand-in


def test_what_an_undisturbed_run_writes_is_faultless_also_when_it_is_repeated(topics: Topics) -> None:
    assert len(topics.of["decided.throttle"]) > 1
    for records in topics.of.values():
        if records is not topics.of[LOG_DIRS]:
            records += records
    assert judge(topics).look() == ((), ())


@pytest.mark.parametrize("topic", ["decided.throttle", "audit", "decided.standing"])
def test_what_is_missing_is_lost(topics: Topics, topic: str) -> None:
    del topics.of[topic][-1]
    found = judge(topics).look()
    assert len(found.lost) == 1
    assert topic in found.lost[0]
    assert found.wrong == ()


def test_what_nobody_decided_a_changed_decision_and_an_id_with_two_contents_are_wrong(topics: Topics) -> None:
    decided = topics.of["decided.throttle"]
    first, value = decided[0], decided[0].value or b""
    for changed, said in (
        ([*decided, replace(first, value=value.replace(b'"id":"', b'"id":"x'))], "none of the undisturbed run"),
        ([*decided, replace(first, value=value + b" ")], "came back with another content"),
        ([replace(first, value=value + b" "), *decided[1:]], "another content than in the undisturbed run"),
    ):
        topics.of["decided.throttle"] = changed
        (wrong,) = judge(topics).look().wrong
        assert said in wrong


def test_what_was_told_once_is_not_told_again(topics: Topics) -> None:
    del topics.of["decided.throttle"][-1]
    topics._add("decided.throttle", b'{"id":"x","type":"y"}')
    looking = judge(topics)
    faulty = looking.look()
    assert faulty.lost
    assert faulty.wrong
    looking.forgive(faulty)
    assert looking.look() == ((), ())


def test_a_batch_that_nobody_told_of_is_wrong(topics: Topics) -> None:
    topics.batches.append(Batch(5, to_millis(at(0)), ()))
    assert "after batch 1 comes 5" in judge(topics).look().wrong


def test_while_the_judge_looks_away_nothing_is_judged_until_a_run_begins(topics: Topics) -> None:
    second = topics.batches.pop()
    looking = judge(topics)
    looking.look()
    looking.look_away()
    topics.batches.append(second)
    assert looking.look() == ((), ())
    assert looking.is_blind
    topics.batches.append(Batch(0, to_millis(at(60)), ()))
    looking.look()
    looking.forgive(looking.look())
    topics.batches.append(Batch(2, to_millis(at(61)), ()))
    assert "after batch 0 comes 2" in looking.look().wrong


@pytest.mark.parametrize(
    ("levels", "is_in_order"),
    [
        ([], True),
        ([0.1, 0.2, 0.3], True),
        ([0.1, 0.3], True),
        ([0.1, 0.1, 0.3], True),
        ([0.3, 0.1], False),
        ([0.1, 0.25], False),
    ],
)
def test_levels_are_some_of_those_that_were_fed_in_their_order(levels: list[float], is_in_order: bool) -> None:
    assert (out_of_order(levels, [0.1, 0.2, 0.3]) is None) is is_in_order


def test_a_plan_is_the_same_by_its_seed_and_a_long_one_has_every_kind() -> None:
    assert plan(20, 1, has_small_disk=True) == plan(20, 1, has_small_disk=True)
    assert plan(20, 1, has_small_disk=True) != plan(20, 2, has_small_disk=True)
    assert set(plan(60, 1, has_small_disk=True)) == set(KINDS)
    without = plan(200, 1, has_small_disk=False)
    assert not any(kind.needs_disk for kind in without)
