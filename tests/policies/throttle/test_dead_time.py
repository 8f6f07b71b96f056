"""A volume that fills is judged by its free space at the earliest instant at which a stop could have its effect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.scenario import GB, SOFT_AND_HARD, Run, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A

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
    assert "has 3.0 GB free of 100 GB (2.2 GB when a change takes effect, in 16 s), between" in run.last.explanation


def test_a_stop_begins_before_the_limit() -> None:
    run = fill(100e6, 2 * GB)
    assert (run.factor, run.last.reason.value) == (0.0, "hard_limit")
    assert "has 2.0 GB free of 100 GB (400 MB when a change takes effect, in 16 s), at or below" in run.last.explanation


@pytest.mark.parametrize(
    "more", [{"anticipate": False}, {"stop_time": None}, {"preset": "strimzi"}], ids=["off", "no dead time", "strimzi"]
)
def test_without_it_the_plain_free_space_decides(more: dict[str, Any]) -> None:
    assert fill(50e6, 3 * GB, **more).factor == 0.5


def test_a_volume_that_empties_or_rests_is_judged_by_what_it_has() -> None:
    for rate in (0.0, -20e6):
        assert fill(rate, 3 * GB).factor == 0.5


@pytest.mark.parametrize(
    ("silence", "reason"),
    [
        pytest.param([], "stale_volume", id="no reading"),
        pytest.param([failed(LAST + 1, 1)], "stale_volume", id="a failed reading"),
        pytest.param([log_dirs(LAST + 1, 1, {A: None})], "stale_volume", id="unreadable, read sooner than before"),
        pytest.param([log_dirs(LAST + 1, 1, {}), log_dirs(LAST + 2, 1, {})], "departed_volume", id="dir gone"),
        pytest.param([members(LAST + 1, 2)], "departed_volume", id="broker left"),
    ],
)
@pytest.mark.parametrize(("free", "factor"), [(2 * GB, 0.0), (4 * GB, 0.35)], ids=["stopped", "slowed"])
def test_silence_opens_no_gate_that_the_dead_time_closed(
    silence: list[Any], reason: str, free: float, factor: float
) -> None:
    run = fill(100e6, free).feed([members(LAST, 1), *silence]).until(LAST + 600)
    assert run.factor == pytest.approx(factor)
    assert run.last.reason.value == reason


def test_the_sentence_of_the_margin_names_both_numbers() -> None:
    run = fill(63e6, 2 * GB, recovery_margin=0.6).feed([log_dirs(LAST + 1, 1, round(2 * GB - 63e6))])
    assert run.last.reason.value == "recovery_margin"
    assert "free of 100 GB (1.5 GB when a change takes effect, in 7 s), and must be clear" in run.last.explanation


@given(st.floats(0.0, 3e8), st.floats(0.0, 3e8), st.floats(0.1, 8.0))
def test_a_faster_fill_never_gives_a_higher_factor(one: float, other: float, free: float) -> None:
    slower, faster = sorted((one, other))
    plain = fill(slower, free * GB, anticipate=False).factor
    assert fill(faster, free * GB).factor <= fill(slower, free * GB).factor + 1e-6 <= plain + 2e-6
