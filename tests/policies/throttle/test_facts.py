"""How fresh brokers and volumes are at a moment, and how soon a volume is full."""

import pytest

from policies.free_space.volumes import Freshness, VolumeState, seconds_left
from tests.policies.scenario import GB, log_dirs, members
from tests.policies.throttle.known import A, counting, folded, judged_at


@pytest.mark.parametrize(
    ("seconds", "kind", "factor"),
    [(0, "fresh", 0.75), (299.999, "fresh", 0.75), (300, "stale", 0.5), (9999, "stale", 0.5)],
)
def test_a_reading_exactly_validity_old_no_longer_counts(seconds: float, kind: str, factor: float) -> None:
    found = counting(folded([log_dirs(0, 1, 4 * GB)]), seconds)[1, A]
    assert (found.freshness, found.factor) == (Freshness(kind), factor)


def test_a_member_that_never_reported_is_known_to_be_missing() -> None:
    known = folded([members(0, 1, 2), log_dirs(0, 1, 50 * GB)])
    assert [b.facts.freshness for b in judged_at(known, 10).brokers.values()] == [Freshness.FRESH, Freshness.STALE]


@pytest.mark.parametrize(
    ("free", "rate", "age", "left"),
    [(100, 10.0, 0, 10), (100, 10.0, 4, 6), (100, 10.0, 99, 0), (0, 10.0, 0, 0), (100, None, 0, None)],
)
def test_the_time_left_counts_from_now(free: int, rate: float | None, age: int, left: float | None) -> None:
    volume = VolumeState(A, 1000, free, 5000, fill_bytes_per_second=rate, fill_confidence=0.9)
    assert seconds_left(volume, 5000 + 1000 * age) == left
