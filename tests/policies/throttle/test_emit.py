"""What is published, when, and under which number; what is noted for the audit."""

from itertools import pairwise

import pytest

from policies.decisions import Mode, deterministic_id
from policies.free_space.gate import FactorVerdict
from policies.throttle.policy import ThrottlePolicy
from policies.units import to_millis
from tests.policies.scenario import CLUSTER, GB, HARD, SOFT_AND_HARD, TOTAL, Run, at, log_dirs, members, throttle
from tests.policies.throttle.known import A, B, eventful, polls


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
            "cordoned": False,
        },
        "volumes": {"counted": 1, "stale": 0, "departed": 0, "never_read": 0},
        "brokers": {"counted": 1, "stale": 1, "departed": 0},
        "seconds_to_full": None,
        "filled_by": None,
        "soonest_full": None,
        "cluster_id": None,
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
            "seconds_to_full": None,
        }
    ]


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
    assert {(d.factor, d.limiting and d.limiting.broker) for d in run.decisions} == {(0.0, 2)}


def test_limiting_is_null_when_nothing_limits() -> None:
    assert Run(throttle(HARD)).see(log_dirs(0, 1, 9 * GB)).last.limiting is None


def test_counts_of_volumes_and_brokers() -> None:
    run = Run(throttle(HARD)).see(log_dirs(0, 1, 0), log_dirs(0, 2, {A: 9 * GB, B: 9 * GB}), members(0, 1, 2, 3))
    run.see(log_dirs(290, 3, 9 * GB), members(290, 2, 3)).until(350)
    assert run.last.volumes.model_dump() == {"counted": 1, "stale": 2, "departed": 1, "never_read": 0}
    assert run.last.brokers.model_dump() == {"counted": 1, "stale": 1, "departed": 1}


def test_shadow_mode_is_a_label_and_changes_nothing_else() -> None:
    active, shadow = (Run(throttle(HARD, mode=mode)).feed(eventful()) for mode in ("active", "shadow"))
    assert {d.mode for d in active.published} == {Mode.ACTIVE}
    assert {d.mode for d in shadow.published} == {Mode.SHADOW}
    assert [d.factor for d in active.decisions] == [d.factor for d in shadow.decisions]


def test_a_verdict_that_changes_nothing_is_noted_when_it_first_appears() -> None:
    run = Run(throttle(HARD)).feed(polls(0, 200, 0))
    first = to_millis(run.decisions[0].decided_at)
    assert [(d.verdict.value, d.sequence) for d in run.decisions[:2]] == [("lower", first), ("no_change", first + 1)]
    assert [(n.verdict, n.sequence) for n in run.notes] == [(FactorVerdict.NO_CHANGE, first)]
    note = run.notes[0]
    assert note.decision_id not in {d.decision_id for d in run.published}
    assert note.factor == 0.0
    assert note.numbers["volumes"]


def test_after_another_factor_a_verdict_is_noted_again() -> None:
    run = Run(throttle(SOFT_AND_HARD)).feed([*polls(0, 20, 4 * GB), *polls(20, 40, 3 * GB)])
    assert [(n.verdict.value, n.factor) for n in run.notes] == [("no_change", 0.75), ("no_change", 0.5)]


def test_a_verdict_that_was_published_is_not_noted_again() -> None:
    run = Run(throttle(HARD, min_hold="50s")).see(log_dirs(0, 1, 0)).feed(polls(10, 50, 9 * GB))
    assert [(d.verdict.value, d.reason.value) for d in run.decisions] == [("lower", "hard_limit"), ("hold", "min_hold")]
    assert run.notes == []


def test_what_is_said_never_runs_out_while_the_loop_lives_however_seldom_it_is_to_be_repeated() -> None:
    rare = throttle(SOFT_AND_HARD, heartbeat="7d", alert_repeat="7d", validity="7d")
    run = Run(rare).see(log_dirs(0, 3, GB)).until(3 * 86_400)
    for said in (run.decisions, [a for a in run.alerts if a.alert == "volume-below-hard-limit"]):
        ends = [each.expires_at or at(0) for each in said]
        assert all(end > later.decided_at for end, later in zip(ends, said[1:], strict=False))
        assert ends[-1] > at(3 * 86_400)


@pytest.mark.parametrize(("before", "after"), [("60s", "10m"), ("10m", "60s"), ("60s", "1d")])
def test_what_is_in_force_does_not_run_out_when_the_settings_have_it_repeated_more_seldom(
    before: str, after: str
) -> None:
    run = Run(throttle(SOFT_AND_HARD, validity="1d", heartbeat=before)).feed([members(0, 3), log_dirs(1, 3, 4 * GB)])
    run.until(30)
    run.settings = throttle(SOFT_AND_HARD, validity="1d", heartbeat=after)
    run.policy = ThrottlePolicy(CLUSTER, run.settings)
    run.until(4 * 3600)
    assert run.last.valid_until > at(4 * 3600)
    assert all(later.decided_at < earlier.valid_until for earlier, later in pairwise(run.decisions))
