"""The one sentence of a decision."""

from typing import Any

import pytest

from policies.throttle.decisions import SoonestFull
from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, throttle
from tests.policies.throttle.known import A


def test_the_example_of_the_specification() -> None:
    settings = throttle(soft={"available_bytes_below": "5GB"}, hard={"available_ratio_below": 0.01})
    run = Run(settings).see(log_dirs(0, 3, 4 * GB))
    assert run.last.factor == 0.75
    assert run.last.explanation == (
        "Producers of payments should be slowed to 0.75: broker 3 /data/a has 4.0 GB free of 100 GB, "
        "between the soft limit 5.0 GB and the hard limit 1.0 GB."
    )


def test_a_decision_says_when_the_volume_is_full() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB - t * 10**6))
    assert run.last.seconds_to_full == pytest.approx(3850)
    assert run.last.explanation.endswith("; full in 64 min at the present rate.")
    assert run.last.soonest_full == SoonestFull(broker=3, log_dir=A, seconds=3850, confidence=0.78)


def test_a_decision_names_the_volume_that_is_full_first_where_it_speaks_of_another() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB), log_dirs(t, 1, {"/data/b": 20 * GB - t * 50 * 10**6}))
    assert "broker 3 /data/a has 4.0 GB free" in run.last.explanation
    assert run.last.explanation.endswith("; broker 1 /data/b is full in 4 min at the present rate.")
    assert run.last.soonest_full is not None
    assert (run.last.soonest_full.broker, run.last.soonest_full.seconds) == (1, run.last.seconds_to_full)


def test_a_decision_that_is_held_names_the_volume_that_is_full_first() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0, min_hold="1h"))
    for t in range(0, 160, 10):
        run.see(log_dirs(t, 3, 4 * GB - t * 10**6), log_dirs(t, 1, 2 * GB if t < 100 else 50 * GB))
    assert run.last.reason.value == "min_hold"
    assert "held for 1h; broker 3 /data/a is full in 65 min at the present rate" in run.last.explanation


def test_a_change_too_small_to_follow_is_told_with_the_volume_that_wants_it() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, 50 * GB)).see(log_dirs(60, 3, 4900 * 10**6))
    assert run.last.explanation.startswith("Producers of payments may write freely: broker 3 /data/a has 4.9 GB free")
    assert "which is too small a change to follow" in run.last.explanation


NOBODY = "; no actuator is set for this cluster."
SHADOW = "; this is shadow mode, nothing is carried out."


@pytest.mark.parametrize(
    ("free", "wanted"),
    [(0, "should be stopped:"), (4 * GB, "should be slowed to 0.75:"), (9 * GB, "may write freely:")],
    ids=["stop", "slow", "free"],
)
@pytest.mark.parametrize(
    ("block", "unless"),
    [
        pytest.param({}, "", id="not known here"),
        pytest.param({"has_actuator": True}, "", id="an actuator"),
        pytest.param({"has_actuator": False}, NOBODY, id="no actuator"),
        pytest.param({"mode": "shadow", "has_actuator": True}, SHADOW, id="shadow"),
    ],
)
def test_a_sentence_says_what_is_wanted_and_why_nobody_carries_it_out(
    block: dict[str, Any], unless: str, free: int, wanted: str
) -> None:
    settings = throttle(soft={"available_bytes_below": "5GB"}, hard={"available_bytes_below": "1GB"}, **block)
    sentence = Run(settings).see(log_dirs(0, 3, free)).last.explanation
    assert sentence.startswith(f"Producers of payments {wanted} ")
    assert [why for why in (NOBODY, SHADOW) if sentence.endswith(why)] == ([unless] if unless and free < 5 * GB else [])
    assert not any(claim in sentence for claim in ("are stopped", "are slowed", "is stopped"))
