"""What a batch takes of one key: floods for one cluster are cut to what is newest, and garbage displaces nothing."""

import random

import pytest

from streaming import transition as room
from streaming.host import PolicyHost
from tests.policies.scenario import CLUSTER, GB, SOFT_AND_HARD, log_dirs, throttle
from tests.streaming.records import changed_data
from tests.streaming.transitions import Transitions, counted, letters, reasons

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)}, frozenset({CLUSTER}))


(UNFLOODED,) = (
    d for d in Transitions(HOST).take(1, Transitions(HOST).record(log_dirs(0.99, 3, 3 * GB), appended=0.99)).decisions
    if d.topic == "decided.throttle"
)  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_RECORDS", 10)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(5))
def test_of_a_flood_the_newest_are_taken_in_whatever_order_they_come(seed: int) -> None:
    transitions = Transitions(HOST)
    flood = [transitions.record(log_dirs(n / 100, 3, GB if n < 99 else 3 * GB), appended=n / 100) for n in range(100)]
    random.Random(seed).shuffle(flood)
    transition = transitions.take(1, *flood)
    (lowered,) = (d for d in transition.decisions if d.topic == "decided.throttle")
    assert lowered.explanation == UNFLOODED.explanation
    assert set(reasons(transition)) == {"too-many"}
    assert len(letters(transition)) + sum(c["count"] for c in counted(transitions.take(61))) == 90


@pytest.mark.usefixtures("small")
def test_garbage_displaces_no_reading() -> None:
    transitions = Transitions(HOST)
    good = transitions.record(log_dirs(0, 3, GB // 2), appended=0)
    garbage = [transitions.record(changed_data(log_dirs(0, 3, GB), broker=-1), appended=0) for _ in range(500)]
    transition = transitions.take(1, *garbage, good)
    assert [d.verdict for d in transition.decisions if d.topic == "decided.throttle"] == ["lower"]
    assert set(reasons(transition)) == {"invalid"}


@pytest.mark.usefixtures("small")
def test_a_flood_on_one_topic_or_partition_displaces_nothing_of_another() -> None:
    transitions = Transitions(HOST)
    low = transitions.record(log_dirs(0, 1, GB // 2), appended=0, partition=1)
    flood = [transitions.record(log_dirs(1, 3, 50 * GB), appended=1) for _ in range(50)]
    transition = transitions.take(1, low, *flood)
    assert [d.verdict for d in transition.decisions if d.topic == "decided.throttle"] == ["lower"]


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    transitions = Transitions(HOST)
    record = transitions.record(log_dirs(0, 3, GB), appended=0)
    monkeypatch.setattr(room, "MOST_BYTES", 3 * len(record.value or b""))
    transition = transitions.take(1, record, *(transitions.record(log_dirs(0, 3, GB), appended=0) for _ in range(9)))
    assert len(letters(transition)) + sum(c["count"] for c in counted(transitions.take(61))) == 7
