"""What would have to change for another factor is said with the threshold that changes it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from policies.observations import Observation
from tests.policies.scenario import GB, HARD, MB, NO_PATIENCE, SOFT_AND_HARD, Run, log_dirs, members, throttle

SOFT = {"soft": {"available_bytes_below": "5GB"}}


def said(run: Run) -> dict[str, str]:
    return {each.verdict: each.when for each in run.last.otherwise}


@pytest.mark.parametrize(
    ("settings", "course", "reason", "expected"),
    [
        pytest.param(
            {}, [log_dirs(0, 1, GB)], "unlimited",
            {"lower": "a limit is set for the cluster: there is neither `hard` nor `soft`"}, id="unlimited",
        ),
        pytest.param(
            SOFT_AND_HARD, [log_dirs(0, 1, 9 * GB)], "above_limits",
            {"lower": "broker 1 /data/a has 4.8 GB or less free (now 9.0 GB)"}, id="min_change below the soft limit",
        ),
        pytest.param(
            SOFT_AND_HARD, [log_dirs(0, 1, 3 * GB)], "soft_limit",
            {
                "lower": "broker 1 /data/a has 2.8 GB or less free (now 3.0 GB)",
                "raise": "broker 1 /data/a has more than 3.2 GB free (now 3.0 GB), not before 2026-11-21T08:00:30.000Z",
            },
            id="between the limits",
        ),
        pytest.param(
            HARD, [log_dirs(0, 1, 0)], "hard_limit",
            {"raise": "broker 1 /data/a has more than 1.1 GB free (now 0 B), not before 2026-11-21T08:00:30.000Z"},
            id="stopped",
        ),
        pytest.param(
            HARD, [log_dirs(0, 1, 0), log_dirs(60, 1, 1_050 * MB)], "recovery_margin",
            {"raise": "broker 1 /data/a has more than 1.1 GB free (now 1.1 GB)"}, id="not clear of the margin",
        ),
        pytest.param(
            HARD, [log_dirs(0, 1, 0), log_dirs(10, 1, 9 * GB)], "min_hold",
            {
                "lower": None,
                "raise": "it is 2026-11-21T08:00:30.000Z, if volumes still allow 1.00",
            },
            id="held",
        ),
    ],
)  # fmt: skip
def test_the_next_threshold_is_named(
    settings: Mapping[str, Any], course: Sequence[Observation], reason: str, expected: dict[str, str | None]
) -> None:
    run = Run(throttle(settings)).feed(course)
    assert run.last.reason == reason
    assert said(run) == {verdict: when for verdict, when in expected.items() if when is not None}


def test_where_nothing_limits_it_is_the_volume_next_to_its_limit() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), log_dirs(0, 2, 3 * GB))
    assert said(run) == {"lower": "broker 2 /data/a has 1.0 GB or less free (now 3.0 GB)"}


def test_a_volume_that_is_not_read_is_awaited() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 1, 9 * GB))
    assert [each.when for each in run.last.otherwise] == [
        "broker 1 /data/a has 1.0 GB or less free (now 9.0 GB)",
        "a volume is not read for 5m: the fallback is 0.50",
    ]
    run.until(400)
    assert run.last.reason == "stale_volume"
    assert said(run)["raise"].startswith("broker 1 /data/a is read again")


def test_of_a_volume_that_left_the_end_of_its_hold_is_named() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 9 * GB), members(0, 1, 2)).see(members(40, 2))
    assert run.last.reason == "departed_volume"
    assert said(run)["raise"].startswith("broker 1 /data/a is back with more free, or it is 2026-11-21T09:00:40")


def test_before_any_reading_one_is_awaited() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(members(0, 1), seconds=400)
    assert run.last.factor < 1.0
    assert said(run)["raise"] == "a broker's volumes are read"


@pytest.mark.parametrize("free", [9 * GB, 4 * GB, 3 * GB, 2 * GB])
@pytest.mark.parametrize("min_change", [0.05, 0.1])
def test_at_the_threshold_that_is_said_the_factor_falls_and_above_it_does_not(free: int, min_change: float) -> None:
    def after(next_free: int) -> str:
        run = Run(throttle(SOFT_AND_HARD, **{**NO_PATIENCE, "min_change": min_change}))
        run.see(log_dirs(0, 1, free)).see(log_dirs(60, 1, next_free))
        return str((run.decisions + run.notes)[-1].verdict) if len(run.decisions) == 1 else str(run.last.verdict)

    first = Run(throttle(SOFT_AND_HARD, **{**NO_PATIENCE, "min_change": min_change})).see(log_dirs(0, 1, free))
    words = said(first)["lower"]
    threshold = round(float(words.split(" has ")[1].split(" GB")[0]) * GB)
    assert after(threshold) == "lower"
    assert after(threshold + 50 * MB) != "lower"


def test_what_would_change_it_is_in_the_audit_alone() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB))
    assert run.last.otherwise
    assert "otherwise" not in run.last.model_dump()
