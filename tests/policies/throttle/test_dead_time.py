"""A volume that fills is judged by its free space at the earliest instant at which a stop could have its effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, members, throttle

STOP: dict[str, Any] = {"stop_time": "5s", "min_change": 0.0, "min_hold": "0s"}
EVERY, LAST = 10, 100


def fill(rate: float, free: float, **more: Any) -> Run:
    """A volume that fills at a rate (bytes a second), read every ten seconds, and has `free` bytes at the last one."""
    run = Run(throttle(SOFT_AND_HARD, **{**STOP, **more}))
    readings = [log_dirs(t, 1, round(free + rate * (LAST - t))) for t in range(0, LAST + 1, EVERY)]
    run.feed([members(0, 1), *readings])
    return run


def test_the_sentence_names_both_numbers() -> None:
    run = fill(50e6, 3 * GB)
    assert run.factor == pytest.approx((3 - 1 - 0.05 * 16) / 4)
    assert "has 3.0 GB free of 100 GB (2.2 GB in 16 s at the present rate), between" in run.last.explanation


def test_a_stop_begins_before_the_limit() -> None:
    run = fill(100e6, 2 * GB)
    assert (run.factor, run.last.reason.value) == (0.0, "hard_limit")
    assert "has 2.0 GB free of 100 GB (400 MB in 16 s at the present rate), at or below" in run.last.explanation


@pytest.mark.parametrize(
    "more", [{"anticipate": False}, {"stop_time": None}, {"preset": "strimzi"}], ids=["off", "no dead time", "strimzi"]
)
def test_without_it_the_plain_free_space_decides(more: dict[str, Any]) -> None:
    assert fill(50e6, 3 * GB, **more).factor == 0.5


def test_a_volume_that_empties_or_rests_is_judged_by_what_it_has() -> None:
    for rate in (0.0, -20e6):
        assert fill(rate, 3 * GB).factor == 0.5


@given(st.floats(0.0, 3e8), st.floats(0.0, 3e8), st.floats(0.1, 8.0))
def test_a_faster_fill_never_gives_a_higher_factor(one: float, other: float, free: float) -> None:
    slower, faster = sorted((one, other))
    plain = fill(slower, free * GB, anticipate=False).factor
    assert fill(faster, free * GB).factor <= fill(slower, free * GB).factor + 1e-6 <= plain + 2e-6
