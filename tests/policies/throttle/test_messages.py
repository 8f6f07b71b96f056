"""The one sentence of a decision."""

from typing import Any

import pytest

from policies.observations import Observation
from policies.throttle.decisions import SoonestFull, ThrottleReason
from tests.policies.scenario import GB, HARD, SOFT_AND_HARD, Run, failed, log_dirs, members, throttle
from tests.policies.throttle.known import A, B


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


@pytest.mark.parametrize(
    ("block", "course", "reason", "factor", "sentence"),
    [
        ({}, [log_dirs(0, 1, 0)], "unlimited", 1.0, "no limit is set; broker 1 /data/a has 0 B free"),
        (HARD, [log_dirs(0, 1, 9 * GB)], "above_limits", 1.0,
         "no volume has reached a limit; broker 1 /data/a has 9.0 GB"),
        (SOFT_AND_HARD, [log_dirs(0, 1, 4 * GB)], "soft_limit", 0.75, "between the soft"),
        (HARD, [log_dirs(0, 1, 0)], "hard_limit", 0.0, "at or below the hard limit 1.0 GB"),
        (HARD, [log_dirs(0, 1, 0), log_dirs(60, 1, 1_050_000_000)], "recovery_margin", 0.0,
         "has 1.1 GB free of 100 GB, and must be clear of the hard limit 1.0 GB by 10%"),
        (HARD, [log_dirs(0, 1, 0), log_dirs(10, 1, 9 * GB)], "min_hold", 0.0,
         "volumes would allow 1.00, but a factor that changed is held"),
        ({**SOFT_AND_HARD, "fallback_factor": 0.5}, [log_dirs(0, 1, 4 * GB), failed(300, 1)], "stale_volume", 0.5,
         "broker 1 /data/a, last read 5 min ago, counts as 0.50 until it is read"),
        ({**HARD, "fallback_factor": 0.5}, [log_dirs(0, 1, {A: None})], "no_data", 0.5,
         "no volume is known, so the fallback factor 0.50 applies"),
        ({**SOFT_AND_HARD, "fallback_factor": 0.74}, [log_dirs(0, 1, 4 * GB), failed(300, 1)], "stale_volume", 0.75,
         "counts as 0.74 until it is read, which is too small a change to follow"),
        ({**SOFT_AND_HARD, "fallback_factor": 0.76, "departed_hold": "0s"}, [log_dirs(0, 1, 4 * GB), members(10, 2)],
         "no_data", 0.75,
         "no volume is known, so the fallback factor 0.76 applies, which is too small a change to follow"),
        (HARD, [log_dirs(0, 1, 0), members(10, 2)], "departed_volume", 0.0,
         "broker 1 left the cluster while its /data/a held producers back, and goes on counting as 0.00 until "
         "2026-11-21T09:00:10Z"),
        (HARD, [log_dirs(0, 1, {A: 0, B: 9 * GB}), log_dirs(10, 1, {B: 9 * GB})], "departed_volume", 0.0,
         "/data/a was taken out of broker 1's log dirs while it held producers back, and goes on counting as 0.00 "
         "until 2026-11-21T09:00:10Z"),
        ({**HARD, "fallback_factor": 0.5}, [failed(0, 1)], "initial", 0.5,
         "no volume has been read yet, so the starting factor 0.50 applies"),
    ],
)  # fmt: skip
def test_each_reason_has_its_sentence(
    block: dict[str, Any], course: list[Observation], reason: str, factor: float, sentence: str
) -> None:
    decided = Run(throttle(block)).feed(course).last
    assert (decided.reason, decided.factor) == (ThrottleReason(reason), factor)
    assert sentence in decided.explanation


def test_every_reason_has_a_scenario_above() -> None:
    marks = test_each_reason_has_its_sentence.pytestmark
    assert {case[2] for case in marks[0].args[1]} == {r.value for r in ThrottleReason}


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


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (GB, "should be stopped"),
        (GB + 1, "should be slowed to less than 0.01"),
        (GB + 4 * GB // 100, "should be slowed to 0.01"),
        (5 * GB - 1, "should be slowed to more than 0.99"),
        (5 * GB, "may write freely"),
    ],
)
def test_what_is_neither_stopped_nor_free_is_not_said_to_be(free: int, said: str) -> None:
    patient = throttle(SOFT_AND_HARD, min_change=0.0)
    assert f"payments {said}: " in Run(patient).see(log_dirs(0, 1, free)).last.explanation
