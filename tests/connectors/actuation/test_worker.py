"""The fence at the door of each worker; and however actions come, no minute has more than it may."""

from datetime import datetime, timedelta
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.actuation.worker import ActionRate, Worker
from tests.cases import for_each
from tests.connectors.actuation.test_order_worker import Toy, expired
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock

NOW = NOON + timedelta(seconds=1)


class Door(Worker[Toy]):
    """A worker that only notes who enters, and who is too late."""

    def __init__(self) -> None:
        super().__init__("payments", VirtualClock())
        self.entered: list[int] = []
        self.refused: list[tuple[int, int]] = []

    def knock(self, *toys: Toy) -> None:
        for toy in toys:
            self.receive(toy, NOW)
        self._read_inbox()

    def reconcile(self, stop: Event) -> None:
        """It has no work."""

    def pause_seconds(self) -> None:
        """It never wakes."""

    def _accept(self, decision: Toy, appended_at: datetime) -> None:
        self.entered.append(decision.sequence)

    def _reject(self, decision: Toy, in_force: Toy) -> None:
        self.refused.append((decision.sequence, in_force.sequence))

    def _close(self) -> None:
        """Nothing is open."""


@for_each(
    ("before", "new", "enters", "is_told"),
    [
        pytest.param(None, Toy(5), True, False, id="the first"),
        pytest.param(Toy(5), Toy(6), True, False, id="a successor"),
        pytest.param(Toy(5), Toy(5), False, False, id="a repeat: nothing to speak of"),
        pytest.param(Toy(5), Toy(4), False, True, id="a late one"),
        pytest.param(expired(Toy(5)), Toy(4), False, True, id="a late one, and the one in force has expired"),
        pytest.param(Toy(5), Toy(4, decided_at=NOW), True, False, id="the next repeat after a forged number"),
        pytest.param(Toy(5), Toy(6, valid_until=NOW + timedelta(days=2)), False, True, id="an end in the far future"),
        pytest.param(None, Toy(6, valid_until=NOW + timedelta(days=2)), False, False, id="the same, and none in force"),
    ],
)
def test_what_passes_the_fence_and_who_is_told(before: Toy | None, new: Toy, enters: bool, is_told: bool) -> None:
    door = Door()
    if before is not None:
        assert door.recall(before, NOON)
    door.knock(new)
    assert door.entered == ([new.sequence] if enters else [])
    assert bool(door.refused) == is_told
    assert door._in_force.get("a") == (new if enters else before)


def test_each_subject_has_a_fence_of_its_own() -> None:
    door = Door()
    door.knock(Toy(9, subject="a"), Toy(1, subject="b"))
    assert door.entered == [9, 1]


def test_what_comes_together_is_taken_in_in_order() -> None:
    door = Door()
    door.knock(Toy(1), Toy(3), Toy(2))
    assert (door.entered, door.refused) == ([1, 3], [(2, 3)])


def test_a_recalled_decision_is_in_force_and_nobody_is_told() -> None:
    door = Door()
    assert [door.recall(Toy(sequence), NOON) for sequence in (4, 5, 3)] == [True, True, False]
    assert door._in_force.get("a") == Toy(5)
    assert (door.entered, door.refused) == ([], [])


@given(st.integers(1, 5), st.lists(st.floats(0, 40), max_size=60))
def test_no_minute_has_more_actions_than_allowed_and_waiting_as_told_is_enough(most: int, pauses: list[float]) -> None:
    now = 0.0
    rate = ActionRate(most, lambda: now)
    done: list[float] = []
    for pause in pauses:
        now += pause
        now += rate.wait_seconds()
        assert rate.wait_seconds() < 1e-6
        rate.count_action()
        done.append(now)
    assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(done, done[most:], strict=False))
