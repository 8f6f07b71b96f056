"""The whole policy: one scenario for each sentence of the specification."""

from itertools import pairwise
from typing import Any

import pytest

from policies.decisions import Mode, deterministic_id
from policies.observations import Observation, Outcome
from policies.throttle.decisions import FALLBACK_REASONS, LimitHit, ThrottleReason, ThrottleVerdict
from policies.units import to_millis
from tests.policies.scenario import (
    CLUSTER,
    GB,
    HARD,
    NO_PATIENCE,
    SOFT_AND_HARD,
    TOTAL,
    Run,
    at,
    failed,
    log_dirs,
    members,
    throttle,
)

A, B = "/data/a", "/data/b"


def polls(start: int, end: int, free: int, broker: int = 1, every: int = 10) -> list[Observation]:
    """A broker read every so many seconds, always with as much free."""
    return [log_dirs(t, broker, free) for t in range(start, end, every)]


# --- the decision and its sentence


def test_the_example_of_the_specification() -> None:
    settings = throttle(soft={"available_bytes_below": "5GB"}, hard={"available_ratio_below": 0.01})
    run = Run(settings).see(log_dirs(0, 3, 4 * GB))
    assert run.last.factor == 0.75
    assert run.last.explanation == (
        "Producers of payments are slowed to 0.75: broker 3 /data/a has 4.0 GB free of 100 GB, "
        "between the soft limit 5.0 GB and the hard limit 1.0 GB."
    )


def test_a_decision_says_when_the_volume_is_full() -> None:
    run = Run(throttle(SOFT_AND_HARD, min_change=0.0))
    for t in range(0, 60, 10):
        run.see(log_dirs(t, 3, 4 * GB - t * 10**6))
    assert run.last.seconds_to_full == pytest.approx(3950)
    assert run.last.explanation.endswith("; full in 66 min at the present rate.")


def test_what_a_decision_carries() -> None:
    settings = throttle(SOFT_AND_HARD)
    decided = Run(settings).see(log_dirs(0, 3, 4 * GB), members(0, 3, 4)).last
    assert decided.model_dump(mode="json") == {
        "decision_id": deterministic_id("throttle", CLUSTER, CLUSTER, to_millis(at(0))),
        "policy": "throttle",
        "cluster": CLUSTER,
        "subject": CLUSTER,
        "sequence": to_millis(at(0)),
        "verdict": "lower",
        "reason": "soft_limit",
        "explanation": decided.explanation,
        "decided_at": "2026-11-21T08:00:00.000Z",
        "mode": "active",
        "settings_hash": settings.fingerprint(),
        "evidence": ["dirs-3@0"],
        "factor": 0.75,
        "previous_factor": None,
        "raw_factor": 0.75,
        "limiting": {
            "broker": 3,
            "log_dir": A,
            "usable_bytes": 4 * GB,
            "total_bytes": TOTAL,
            "limit": "soft",
            "limit_kind": "available_bytes_below",
            "limit_value": 5e9,
            "limit_bytes": 5 * GB,
            "read_at": "2026-11-21T08:00:00.000Z",
        },
        "volumes": {"counted": 1, "stale": 0, "departed": 0},
        "brokers": {"counted": 1, "stale": 1, "departed": 0},
        "seconds_to_full": None,
        "valid_until": "2026-11-21T08:03:00.000Z",
    }
    assert decided.record_key() == CLUSTER


def test_the_audit_has_the_numbers_that_led_to_it() -> None:
    numbers = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, 4 * GB)).last.numbers
    assert numbers["hard"] == {"available_bytes_below": 1 * GB}
    assert numbers["volumes"] == [
        {
            "broker": 3,
            "log_dir": A,
            "usable_bytes": 4 * GB,
            "total_bytes": TOTAL,
            "factor": 0.75,
            "standing": "fresh",
            "read_at": "2026-11-21T08:00:00.000Z",
        }
    ]


@pytest.mark.parametrize(
    ("block", "course", "reason", "factor", "sentence"),
    [
        pytest.param(
            {}, [log_dirs(0, 1, 0)], "unlimited", 1.0, "no limit is set; broker 1 /data/a has 0 B free", id="unlimited"
        ),
        pytest.param(
            HARD,
            [log_dirs(0, 1, 9 * GB)],
            "above_limits",
            1.0,
            "no volume has reached a limit; broker 1 /data/a has 9.0 GB",
            id="above",
        ),
        pytest.param(SOFT_AND_HARD, [log_dirs(0, 1, 4 * GB)], "soft_limit", 0.75, "between the soft", id="soft"),
        pytest.param(HARD, [log_dirs(0, 1, 0)], "hard_limit", 0.0, "at or below the hard limit 1.0 GB", id="hard"),
        pytest.param(
            HARD,
            [log_dirs(0, 1, 0), log_dirs(60, 1, 1_050_000_000)],
            "recovery_margin",
            0.0,
            "has 1.1 GB free of 100 GB, and must be clear of the hard limit 1.0 GB by 10%",
            id="recovery margin",
        ),
        pytest.param(
            HARD,
            [log_dirs(0, 1, 0), log_dirs(10, 1, 9 * GB)],
            "min_hold",
            0.0,
            "volumes would allow 1.00, but a factor that changed is held",
            id="min_hold",
        ),
        pytest.param(
            {**SOFT_AND_HARD, "fallback_factor": 0.5},
            [log_dirs(0, 1, 4 * GB), failed(300, 1)],
            "stale_volume",
            0.5,
            "broker 1 /data/a, last read 5 min ago, counts as 0.50 until it is read",
            id="stale volume",
        ),
        pytest.param(
            {**HARD, "fallback_factor": 0.5},
            [log_dirs(0, 1, {A: None})],
            "no_data",
            0.5,
            "no volume is known, so the fallback factor 0.50 applies",
            id="no data",
        ),
        pytest.param(
            HARD,
            [log_dirs(0, 1, 0), members(10, 2)],
            "departed_volume",
            0.0,
            "broker 1 /data/a left the cluster while it limited it, and goes on counting as 0.00",
            id="departed volume",
        ),
        pytest.param(
            {**HARD, "fallback_factor": 0.5},
            [failed(0, 1)],
            "initial",
            0.5,
            "no volume has been read yet, so the starting factor 0.50 applies",
            id="initial",
        ),
    ],
)
def test_each_reason_has_its_sentence(
    block: dict[str, Any], course: list[Observation], reason: str, factor: float, sentence: str
) -> None:
    decided = Run(throttle(block)).feed(course).last
    assert (decided.reason, decided.factor) == (ThrottleReason(reason), factor)
    assert sentence in decided.explanation


def test_every_reason_has_a_scenario_above() -> None:
    marks = test_each_reason_has_its_sentence.pytestmark
    assert {case.values[2] for case in marks[0].args[1]} == {r.value for r in ThrottleReason}


def test_a_stale_volume_within_the_margin_is_explained_by_the_margin() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0)).see(log_dirs(60, 1, 1_050_000_000)).until(400)
    assert (run.last.reason, run.last.factor) == (ThrottleReason.RECOVERY_MARGIN, 0.0)
    assert "must be clear of the hard limit" in run.last.explanation


# --- which volumes count


@pytest.mark.parametrize("fallback", [0.0, 0.5, 1.0])
def test_before_the_first_reading_the_fallback_holds_with_the_verdict_initial(fallback: float) -> None:
    decided = Run(throttle(HARD, fallback_factor=fallback)).see(failed(0, 1)).last
    assert (decided.verdict, decided.reason, decided.factor) == (
        ThrottleVerdict.INITIAL,
        ThrottleReason.INITIAL,
        fallback,
    )
    assert decided.evidence == ("failed-1@0",)


def test_after_validity_without_a_reading_there_is_no_data() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(failed(0, 1)).until(400)
    reasons = [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert reasons == [*((t, "initial") for t in range(0, 300, 60)), (300, "no_data"), (360, "no_data")]


def test_the_first_reading_acts_at_once_either_way() -> None:
    for fallback, free, factor in ((0.0, 50 * GB, 1.0), (1.0, 0, 0.0)):
        run = Run(throttle(HARD, fallback_factor=fallback)).see(failed(0, 1)).see(log_dirs(1, 1, free))
        assert run.changes() == [(0, fallback), (1, factor)]


@pytest.mark.parametrize(
    ("free", "fallback", "factor"),
    [(50 * GB, 0.5, 0.5), (2 * GB, 0.5, 0.25), (0, 0.5, 0.0), (0, 1.0, 0.0), (50 * GB, 1.0, 1.0)],
)
def test_silence_brings_the_fallback_but_never_opens_what_a_reading_closed(
    free: int, fallback: float, factor: float
) -> None:
    run = Run(throttle(SOFT_AND_HARD, fallback_factor=fallback)).see(log_dirs(0, 1, free)).until(3600)
    assert (run.last.factor, run.last.reason) == (factor, ThrottleReason.STALE_VOLUME)
    assert run.last.volumes.model_dump() == {"counted": 0, "stale": 1, "departed": 0}
    assert run.factor_at(299.999) == run.decisions[0].factor
    assert run.factor_at(300) == factor


def test_one_silent_broker_among_others_brings_the_fallback() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 2, 50 * GB)).feed(polls(5, 400, 50 * GB))
    assert run.changes() == [(0, 1.0), (300, 0.5)]
    assert run.last.limiting is not None
    assert run.last.limiting.broker == 2


def test_a_silent_broker_that_is_read_again_counts_by_its_reading() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 1, 50 * GB)).see(log_dirs(400, 1, 50 * GB))
    assert run.changes() == [(0, 1.0), (300, 0.5), (400, 1.0)]


def test_departed_volumes_are_held_and_then_forgotten() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 50 * GB)).see(members(60, 2))
    run.feed(polls(65, 4000, 50 * GB, broker=2, every=60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]
    assert (60, "departed_volume") in [((d.decided_at - at(0)).total_seconds(), d.reason.value) for d in run.decisions]
    assert run.said("departed-volume-forgotten")[0] == (3660, "firing", "warning")


def test_a_broker_that_left_without_limiting_is_forgotten_at_once() -> None:
    run = Run(throttle(HARD, fallback_factor=0.0)).see(log_dirs(0, 1, 50 * GB), log_dirs(0, 2, 50 * GB))
    run.see(members(10, 2)).feed(polls(20, 1000, 50 * GB, broker=2, every=60))
    assert run.changes() == [(0, 1.0)]
    assert run.last.volumes.counted == 1
    assert run.said("departed-volume-forgotten") == []


def test_a_log_dir_that_is_removed_while_limiting_is_held_too() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, {A: 0, B: 50 * GB}))
    run.feed(log_dirs(t, 1, {B: 50 * GB}) for t in range(60, 4000, 60))
    assert run.changes() == [(0, 0.0), (3660, 1.0)]


def test_when_the_last_broker_left_there_is_no_data() -> None:
    run = Run(throttle(HARD, fallback_factor=0.5)).see(log_dirs(0, 1, 50 * GB)).see(members(10))
    assert (run.last.reason, run.last.factor) == (ThrottleReason.NO_DATA, 0.5)


@pytest.mark.parametrize(
    "course",
    [
        pytest.param([failed(0, 1)], id="never read"),
        pytest.param([log_dirs(0, 1, 0)], id="read once, full"),
        pytest.param([log_dirs(0, 1, {A: None})], id="unreadable"),
        pytest.param([log_dirs(0, 1, 50 * GB), members(10)], id="left"),
    ],
)
def test_without_limits_a_cluster_is_observed_never_throttled(course: list[Observation]) -> None:
    run = Run(throttle(fallback_factor=0.0)).feed(course).until(900)
    assert {d.factor for d in run.decisions} == {1.0}


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        pytest.param([log_dirs(0, 1, 50 * GB)], (300, "stale_volume", 0.5), id="a broker falls silent"),
        pytest.param(
            [failed(0, 1), log_dirs(20, 1, 50 * GB), log_dirs(27, 1, {A: None})],
            (320, "stale_volume", 0.5),
            id="a volume is unreadable",
        ),
        pytest.param([members(0, outcome=Outcome.TIMEOUT)], (300, "no_data", 0.5), id="nothing is ever read"),
        pytest.param([log_dirs(0, 1, 0), members(7, 2)], (3607, "no_data", 0.5), id="a departed volume is forgotten"),
        pytest.param(
            [log_dirs(0, 1, 0), log_dirs(7, 1, {}), members(11, 2)], (3607, "no_data", 0.5), id="missing, then left"
        ),
        pytest.param([log_dirs(0, 1, 2 * GB), log_dirs(7, 1, 4 * GB)], (30, "soft_limit", 0.75), id="min_hold ends"),
    ],
)
def test_what_time_alone_changes_is_decided_by_the_timer_not_the_heartbeat(
    course: list[Observation], expected: tuple[float, str, float]
) -> None:
    run = Run(throttle(SOFT_AND_HARD, fallback_factor=0.5, heartbeat="1d")).feed(course)
    before = len(run.decisions)
    run.until(expected[0])
    assert [((d.decided_at - at(0)).total_seconds(), d.reason.value, d.factor) for d in run.decisions[before:]] == [
        expected
    ]


# --- from the raw factor to the decision


def test_going_down_acts_at_once() -> None:
    course = [log_dirs(t, 1, free) for t, free in ((0, 9 * GB), (1, 4 * GB), (2, 3 * GB), (3, 2 * GB), (4, 1 * GB))]
    run = Run(throttle(SOFT_AND_HARD)).feed(course)
    assert run.changes() == [(0, 1.0), (1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)]


def test_going_up_waits_for_min_hold_by_the_timer_alone() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 1, 2 * GB)).see(log_dirs(10, 1, 4 * GB)).until(40)
    assert run.changes() == [(0, 0.25), (30, 0.75)]
    assert not any(step.decisions for now, step in run.steps if at(10) < now < at(30))


def test_each_change_begins_min_hold_anew() -> None:
    course = [(0, 2 * GB), (20, 1 * GB), (25, 9 * GB)]
    run = Run(throttle(SOFT_AND_HARD, recovery_margin=0.0)).feed(log_dirs(t, 1, free) for t, free in course).until(100)
    assert run.changes() == [(0, 0.25), (20, 0.0), (50, 1.0)]


def test_throttle_stays_until_recovery_margin() -> None:
    course = [(0, 1 * GB), (60, GB + 1), (120, 1_100_000_000), (180, 1_100_000_001)]
    run = Run(throttle(HARD)).feed(log_dirs(t, 1, free) for t, free in course)
    assert run.changes() == [(0, 0.0), (180, 1.0)]


def test_every_volume_that_stopped_the_cluster_must_be_clear_of_the_margin() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 0))
    run.see(log_dirs(60, 1, 9 * GB), log_dirs(60, 2, 1_050_000_000))
    assert (run.factor, run.last.reason) == (0.0, ThrottleReason.RECOVERY_MARGIN)
    assert run.last.limiting is not None
    assert (run.last.limiting.broker, run.last.limiting.limit) == (2, LimitHit.HARD)
    run.see(log_dirs(120, 2, 9 * GB))
    assert run.factor == 1.0


def test_the_margin_concerns_only_what_stopped_the_cluster() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, 1_050_000_000)).see(log_dirs(60, 1, 9 * GB))
    assert run.factor == 1.0


def test_a_slowed_cluster_needs_no_margin() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 1, 1_000_000_001)).see(log_dirs(1, 1, 1_300_000_000))
    assert run.last.factor == pytest.approx(0.0, abs=1e-6)
    assert run.until(30).factor == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("free", "factor"),
    [
        (3.2, 0.55),
        (3.19, 0.5),
        (2.81, 0.5),
        (3.21, 0.5525),
        (2.79, 0.4475),
        (5.0, 1.0),
        (1.0, 0.0),
    ],
)
def test_a_change_smaller_than_min_change_is_not_published(free: float, factor: float) -> None:
    run = Run(throttle(SOFT_AND_HARD, min_hold="0s")).see(log_dirs(0, 1, 3 * GB)).see(log_dirs(10, 1, int(free * GB)))
    assert run.factor == pytest.approx(factor)


@pytest.mark.parametrize(("start", "end", "factor"), [(4.9, 5.0, 1.0), (1.1, 1.0, 0.0)], ids=["to 1", "to 0"])
def test_a_small_change_that_reaches_an_end_is_published(start: float, end: float, factor: float) -> None:
    run = Run(throttle(SOFT_AND_HARD, min_hold="0s")).see(log_dirs(0, 1, int(start * GB)))
    assert run.see(log_dirs(10, 1, int(end * GB))).factor == factor


def test_many_small_changes_add_up_to_one_that_is_published() -> None:
    run = Run(throttle(SOFT_AND_HARD)).feed(log_dirs(i, 1, 5 * GB - i * 40_000_000) for i in range(26))
    assert [factor for _, factor in run.changes()] == pytest.approx([1.0, 0.95, 0.9, 0.85, 0.8, 0.75])


# --- cadence, sequence, ids, evidence


def test_the_decision_is_repeated_each_heartbeat_and_valid_for_three() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB)).until(240)
    assert [(d.decided_at - at(0)).total_seconds() for d in run.decisions] == [0, 60, 120, 180, 240]
    assert {(d.valid_until - d.decided_at).total_seconds() for d in run.decisions} == {180}


def test_a_change_begins_the_heartbeat_anew() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB)).see(log_dirs(50, 1, 0)).until(115)
    assert [(d.decided_at - at(0)).total_seconds() for d in run.decisions] == [0, 50, 110]


def test_between_heartbeats_nothing_is_said_that_was_said() -> None:
    run = Run(throttle(HARD)).feed(polls(0, 60, 9 * GB))
    assert len(run.decisions) == 1


def eventful() -> list[Observation]:
    course = [*polls(0, 100, 9 * GB), *polls(105, 200, 0, broker=2), *polls(205, 300, 4 * GB, broker=2)]
    return [*course, members(310, 1), failed(320, 1), *polls(900, 950, 2 * GB)]


def test_the_sequence_grows_without_a_gap_and_names_the_decision() -> None:
    run = Run(throttle(SOFT_AND_HARD)).feed(eventful()).until(6000)
    first = to_millis(run.decisions[0].decided_at)
    assert [d.sequence for d in run.decisions] == list(range(first, first + len(run.decisions)))
    assert len({d.decision_id for d in run.published}) == len(run.published)
    assert all(d.decision_id == deterministic_id("throttle", CLUSTER, CLUSTER, d.sequence) for d in run.decisions)


def test_the_previous_factor_is_that_of_the_decision_before() -> None:
    run = Run(throttle(SOFT_AND_HARD)).feed(eventful()).until(6000)
    assert run.decisions[0].previous_factor is None
    assert all(b.previous_factor == a.factor for a, b in pairwise(run.decisions))


def test_the_same_input_gives_the_same_decisions_byte_for_byte() -> None:
    first, second = (Run(throttle(SOFT_AND_HARD)).feed(eventful()).until(6000) for _ in range(2))
    assert [d.model_dump_json() for d in first.published] == [d.model_dump_json() for d in second.published]


def test_evidence_names_the_readings_that_decided() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), log_dirs(0, 2, 0), log_dirs(0, 3, 9 * GB))
    assert list(run.last.evidence) == ["dirs-2@0"]
    run.see(log_dirs(60, 2, 9 * GB))
    assert list(run.last.evidence) == ["dirs-2@60", "dirs-1@0", "dirs-3@0"]


def test_evidence_is_at_most_ten_with_the_limiting_volume_first() -> None:
    run = Run(throttle(HARD)).see(*(log_dirs(0, b, 0 if b % 2 else 9 * GB) for b in range(50)))
    assert len(run.last.evidence) == 10
    assert run.last.limiting is not None
    assert run.last.evidence[0] == f"dirs-{run.last.limiting.broker}@0"


def test_limiting_names_the_volume_that_allows_least() -> None:
    run = Run(throttle(SOFT_AND_HARD)).see(
        log_dirs(0, 1, {A: 4 * GB, B: 3 * GB}), log_dirs(0, 2, {A: 2 * GB, B: 9 * GB})
    )
    assert run.last.limiting is not None
    assert (run.last.limiting.broker, run.last.limiting.log_dir, run.last.factor) == (2, A, 0.25)


def test_two_full_volumes_do_not_take_turns() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 2, 100))
    run.feed(log_dirs(t, t % 2 + 1, 100 - t) for t in range(1, 50))
    assert len(run.decisions) == 1
    assert run.last.limiting is not None
    assert run.last.limiting.broker == 2


def test_limiting_is_null_when_nothing_limits() -> None:
    assert Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB)).last.limiting is None


def test_counts_of_volumes_and_brokers() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, {A: 9 * GB, B: 9 * GB}), members(0, 1, 2, 3))
    run.see(log_dirs(290, 3, 9 * GB), members(290, 2, 3)).until(350)
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 2, "departed": 1}
    assert run.last.brokers.model_dump() == {"counted": 1, "stale": 1, "departed": 1}


# --- shadow mode, notes, presets


def test_shadow_mode_is_a_label_and_changes_nothing_else() -> None:
    active, shadow = (Run(throttle(HARD, mode=mode)).feed(eventful()) for mode in ("active", "shadow"))
    assert {d.mode for d in active.published} == {Mode.ACTIVE}
    assert {d.mode for d in shadow.published} == {Mode.SHADOW}
    assert [d.factor for d in active.decisions] == [d.factor for d in shadow.decisions]


def test_a_verdict_that_changes_nothing_is_noted_when_it_first_appears() -> None:
    run = Run(throttle(HARD)).feed(polls(0, 200, 0))
    first = to_millis(run.decisions[0].decided_at)
    assert [(d.verdict.value, d.sequence) for d in run.decisions[:2]] == [("lower", first), ("no_change", first + 1)]
    assert [(n.verdict, n.sequence) for n in run.notes] == [(ThrottleVerdict.NO_CHANGE, first)]
    note = run.notes[0]
    assert note.decision_id not in {d.decision_id for d in run.published}
    assert note.factor == 0.0
    assert note.numbers["volumes"]


def test_a_verdict_that_was_published_is_not_noted_again() -> None:
    run = Run(throttle(HARD, min_hold="50s")).see(log_dirs(0, 1, 0)).feed(polls(10, 50, 9 * GB))
    assert [(d.verdict.value, d.reason.value) for d in run.decisions] == [("lower", "hard_limit"), ("hold", "min_hold")]
    assert run.notes == []


def test_a_volume_that_keeps_the_cluster_stopped_goes_on_doing_so_when_its_broker_leaves() -> None:
    """Within the recovery margin its own factor is 1.0, but it is what limits."""
    run = Run(throttle(HARD, min_hold="0s", departed_hold="10m"))
    run.see(log_dirs(0, 1, GB), log_dirs(0, 2, 9 * GB)).see(log_dirs(10, 1, GB * 105 // 100))
    assert (run.last.factor, run.last.reason, run.last.limiting and run.last.limiting.broker) == (
        0.0,
        "recovery_margin",
        1,
    )
    run.feed([members(20, 2)]).feed(polls(30, 400, 9 * GB, broker=2))
    assert (run.last.factor, run.last.volumes.departed) == (0.0, 1)
    run.feed(polls(430, 700, 9 * GB, broker=2))
    assert run.last.factor == 1.0
    assert run.said("departed-volume-forgotten")


STRIMZI = throttle(HARD, preset="strimzi", fallback_factor=0.25)


@pytest.mark.parametrize(("free", "factor"), [(GB, 0.0), (GB + 1, 1.0)], ids=["one volume violates", "none violates"])
def test_strimzi_gives_0_if_any_volume_violates_else_1(free: int, factor: float) -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, {A: free, B: 9 * GB}), log_dirs(0, 2, 9 * GB))
    assert run.last.factor == factor


def test_strimzi_starts_at_1() -> None:
    assert Run(STRIMZI).see(failed(0, 1)).last.factor == 1.0


def test_strimzi_opens_and_closes_at_once() -> None:
    run = Run(STRIMZI).feed(log_dirs(t, 1, GB + t % 2) for t in range(6))
    assert run.changes() == [(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0), (4, 0.0), (5, 1.0)]


def test_strimzi_takes_an_empty_good_reading_for_1() -> None:
    assert Run(STRIMZI).see(log_dirs(0, 1, 0)).see(log_dirs(10, 1, {})).last.factor == 1.0


def test_strimzi_forgets_a_volume_unseen_for_validity() -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, 0)).feed(polls(5, 400, 9 * GB, broker=2))
    assert run.changes() == [(0, 0.0), (300, 1.0)]
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 0, "departed": 0}


def test_strimzi_falls_back_when_nothing_was_read_for_validity() -> None:
    run = Run(STRIMZI).see(log_dirs(0, 1, 0)).until(400)
    assert run.changes() == [(0, 0.0), (300, 0.25)]
    assert run.last.reason is ThrottleReason.NO_DATA


def test_the_fallback_reasons_are_those_without_a_valid_reading() -> None:
    assert {r.value for r in FALLBACK_REASONS} == {"stale_volume", "no_data", "initial"}


@pytest.mark.parametrize("settings", [throttle(HARD, NO_PATIENCE), STRIMZI], ids=["none", "strimzi"])
def test_without_patience_the_factor_is_the_raw_factor(settings: Any) -> None:
    run = Run(settings).feed(sorted(eventful(), key=lambda o: o.at))
    assert all(d.factor == d.raw_factor for d in run.decisions)


def test_observations_of_another_kind_are_ignored() -> None:
    alone = Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB))
    reading = log_dirs(0, 1, 0).reading
    other = Observation("other", at(0), type(reading).__mro__[1](cluster=CLUSTER, outcome=Outcome.OK))
    assert Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB), other).published == alone.published
