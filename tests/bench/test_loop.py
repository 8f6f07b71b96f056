"""Times of records: how long they wait, for a decision or for the end of their batch, and quantiles of that."""

import json
import math

import pytest

from bench.loop import Appended, latencies, quantile, waits_ms
from streaming.query import BatchProgress


def batch(began_ms: int, seconds: float, records: int) -> BatchProgress:
    return BatchProgress(0, seconds, records, 0.0, 0, 0.0, 0, 0, began_ms)


def test_each_record_waits_for_the_end_of_the_batch_that_took_it_if_any() -> None:
    batches = [batch(1000, 0.5, 2), batch(1500, 0.0, 0), batch(2000, 1.0, 1)]
    assert waits_ms(batches, [900, 950, 1400]) == [550.0, 600.0, 1600.0]
    assert waits_ms([batch(1000, 0.5, 1)], [900, 990]) == [600.0]
    assert waits_ms([batch(1000, 0.5, 3)], [900], undecided=2) == [600.0], "what was left from before is taken first"


def appended(cluster: str, id_: str, at_ms: int, *evidence: str) -> Appended:
    return Appended(json.dumps({"id": id_, "data": {"cluster": cluster, "evidence": evidence}}).encode(), at_ms)


OBSERVED = [appended("a", "a1", 0), appended("b", "b1", 5), appended("a", "a2", 10)]


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        ([appended("a", "x", 30, "a2"), appended("b", "y", 40, "b1")], [20, 30, 35]),
        ([appended("a", "x", 30, "a1"), appended("b", "y", 40, "b1"), appended("a", "z", 50, "a2")], [30, 35, 40]),
        ([appended("a", "x", 30, "a2"), appended("b", "y", 40, "b1"), appended("a", "x", 90, "a2")], [20, 30, 35]),
        ([appended("a", "x", 30, "a1"), appended("b", "y", 40, "b1")], None),
        ([appended("a", "x", 30, "a2")], None),
    ],
    ids=["a later one of its cluster", "one by one", "repeated", "the last is undecided", "a cluster is undecided"],
)
def test_an_observation_waits_for_the_first_decision_that_covers_it(
    decided: list[Appended], expected: list[int] | None
) -> None:
    assert latencies(OBSERVED, decided) == expected


@pytest.mark.parametrize(("percent", "within"), [(1, 1.99), (50, 50.5), (99, 99.01)])
def test_so_many_percent_stay_within(percent: int, within: float) -> None:
    assert quantile([float(each) for each in range(100, 0, -1)], percent) == pytest.approx(within)


def test_one_value_is_all_there_is_and_of_none_nothing_can_be_said() -> None:
    assert quantile([7.0], 99) == 7.0
    assert math.isnan(quantile([], 50))
