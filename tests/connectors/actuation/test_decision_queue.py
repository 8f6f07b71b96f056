"""The fence at the door of each worker."""

from datetime import timedelta

import pytest

from connectors.actuation.worker import DecisionQueue
from tests.cases import for_each
from tests.connectors.actuation.test_order_worker import Toy, expired
from tests.connectors.actuation.virtual_clock import NOON

NOW = NOON + timedelta(seconds=1)


class Door:
    """A queue, and what it told of those who knocked."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.refused: list[tuple[int, int]] = []
        self.queue: DecisionQueue[Toy] = DecisionQueue(
            lambda toy, _: self.entered.append(toy.sequence),
            lambda toy, in_force: self.refused.append((toy.sequence, in_force.sequence)),
        )

    def knock(self, *toys: Toy) -> None:
        for toy in toys:
            self.queue.receive(toy, NOW)
        self.queue.read()


@for_each(
    ("before", "new", "enters", "is_told"),
    [
        pytest.param(None, Toy(5), True, False, id="the first"),
        pytest.param(Toy(5), Toy(6), True, False, id="a successor"),
        pytest.param(Toy(5), Toy(9), True, False, id="a successor after a gap"),
        pytest.param(Toy(5), Toy(5), False, False, id="a repeat: nothing to speak of"),
        pytest.param(Toy(5), Toy(4), False, True, id="a late one"),
        pytest.param(expired(Toy(5)), Toy(4), False, True, id="a late one, and the one in force has expired"),
        pytest.param(expired(Toy(5)), expired(Toy(5)), False, False, id="an expired one repeated"),
        pytest.param(Toy(5), Toy(6, expires_at=None), True, False, id="one without an end"),
        pytest.param(Toy(5), Toy(4, decided_at=NOW), True, False, id="the next repeat after a forged number"),
        pytest.param(Toy(5), Toy(6, expires_at=NOW + timedelta(days=2)), False, True, id="an end in the far future"),
        pytest.param(None, Toy(6, expires_at=NOW + timedelta(days=2)), False, False, id="the same, and none in force"),
    ],
)
def test_what_passes_the_fence_and_who_is_told(before: Toy | None, new: Toy, enters: bool, is_told: bool) -> None:
    door = Door()
    if before is not None:
        assert door.queue.recall(before, NOON)
    door.knock(new)
    assert door.entered == ([new.sequence] if enters else [])
    assert bool(door.refused) == is_told
    assert door.queue.in_force("a") == (new if enters else before)


def test_each_subject_has_a_fence_of_its_own() -> None:
    door = Door()
    door.knock(Toy(9, subject="a"), Toy(1, subject="b"))
    assert door.entered == [9, 1]


def test_what_comes_together_is_taken_in_in_order() -> None:
    door = Door()
    door.knock(Toy(1), Toy(3), Toy(2))
    assert (door.entered, door.refused) == ([1, 3], [(2, 3)])


def test_news_is_set_until_it_is_read() -> None:
    door = Door()
    assert not door.queue.received.is_set()
    door.queue.receive(Toy(), NOW)
    assert door.queue.received.is_set()
    door.queue.read()
    assert not door.queue.received.is_set()


def test_a_recalled_decision_is_in_force_and_nobody_is_told() -> None:
    door = Door()
    assert [door.queue.recall(Toy(sequence), NOON) for sequence in (4, 5, 3)] == [True, True, False]
    assert door.queue.in_force("a") == Toy(5)
    assert (door.entered, door.refused) == ([], [])
