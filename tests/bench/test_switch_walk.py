"""Short walks over a fleet that does nothing at its time; `make walk` goes as far as one likes."""

import pytest

from bench.switch_walk import walks
from policies.switching.judge import guards
from tests.examples import seeds


def test_no_walk_does_harm_and_each_finds_a_way_out() -> None:
    assert walks(len(seeds(1)), 100) == {}


HARMS = {
    "an older registry of the same millisecond": 100063,
    "a way back to a cluster that was unregistered": 300543,
    "a reference that is taken back to a deleted ledger": 301240,
    "writes to a cluster that was not read yet": 301324,
    "clients of two HOBs of one cluster": 301408,
    "a switch that was forgotten under a foreign directive": 302035,
    "a start of a cluster that is not registered": 330583,
    "a clean-up that was forgotten": 310162,
    "two readings of one millisecond": 310376,
    "a way back to a cluster that was unregistered meanwhile": 310937,
    "an inventory of before the end, after a lost checkpoint": 9000238,
    "a reference to the old cluster after the end": 9001460,
    "a foreign directive while no cluster is active": 9101406,
    "a way back to an active cluster that was unregistered after the end": 20694,
}


@pytest.mark.parametrize("seed", HARMS.values(), ids=HARMS)
def test_no_walk_that_once_did_harm_does_it_again(seed: int) -> None:
    assert walks(1, 150, seed) == {}


SOONEST = {"refuse_taken_ids": 37, "refuse_straying_brokers": 3, "refuse_return": 5, "refuse_lower_ids": 37}
"""The first walk that finds the harm of each missing guard."""


@pytest.mark.parametrize(("name", "first"), SOONEST.items())
def test_walks_find_the_harm_of_a_missing_guard(name: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, name, lambda *_args, **_more: None)
    assert any(walks(1, 100, seed) for seed in range(first, 400))
