"""What would have to change for a switch to stand elsewhere, or for what was refused to pass."""

import pytest

from policies.switching.counterfactuals import counterfactuals, record_counterfactuals
from policies.switching.decisions import ORDERS, RejectCode, SwitchDecision, SwitchHold, SwitchRecord, SwitchVerdict
from policies.switching.state import SwitchStage

RECORD: SwitchRecord = SwitchRecord.model_validate(
    {
        "decision_id": "d", "policy": "switching", "cluster": "c", "subject": "c", "sequence": 1, "reason": "commanded",
        "verdict": "triggered", "explanation": "e.", "decided_at": "2026-11-21T08:00:00Z", "mode": "active",
        "settings_hash": "x", "active": "old", "source": "old", "target": "new", "epoch": 4, "committed_epoch": 3,
        "attempt": 1, "ledgers": {"built": 2, "pending": 5}, "brokers": {"live": 3, "acked": 1}, "degraded": False,
        "blocked": "", "halted": "", "prechecks": {}, "registry": {},
        "rollback_until": "2026-11-22T08:00:00Z", "cleanup_from": "2026-12-06T08:00:00Z",
    }
)  # fmt: skip
DECISION: SwitchDecision = SwitchDecision.model_validate(
    {
        "decision_id": "d", "policy": "switching", "cluster": "c", "subject": "c/switch", "sequence": 1,
        "verdict": "start-copy", "reason": "next_in_plan", "explanation": "e.", "decided_at": "2026-11-21T08:00:00Z",
        "mode": "active", "settings_hash": "x", "stage": "build", "epoch": 4, "lease_token": 1, "op": 7,
        "source": "old", "target": "new", "valid_until": None,
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("triggered", {
            "live_dual_read": "all 3 live brokers follow epoch 4 (1 do)",
            "rejected": "a broker cannot reach new before any has moved",
            "aborted": "a person aborts it",
        }),
        ("build", {
            "promote": "each of 7 ledgers is copied or stays behind for good",
            "rollback": "a person rolls it back until 2026-11-22T08:00:00.000Z",
        }),
        ("hold", {
            "cleanup": "a person cleans up, from 2026-12-06T08:00:00.000Z on, or ends it at any hour",
            "rollback": "a person rolls it back until 2026-11-22T08:00:00.000Z",
        }),
        ("done", {"triggered": "a person starts another switch; `close-client` and `unregister` let go of old"}),
    ],
)  # fmt: skip
def test_of_a_switch_each_way_it_may_go_is_named(stage: str, expected: dict[str, str]) -> None:
    record = RECORD.model_copy(update={"verdict": SwitchStage(stage)})
    assert {each.verdict: each.when for each in record_counterfactuals(record)} == expected


def test_after_its_window_no_rollback_is_named() -> None:
    late = {"verdict": SwitchStage.HOLD, "decided_at": RECORD.rollback_until}
    assert [each.verdict for each in record_counterfactuals(RECORD.model_copy(update=late))] == ["cleanup"]


@pytest.mark.parametrize("stage", SwitchStage)
def test_of_each_stage_something_is_named_without_a_gap(stage: SwitchStage) -> None:
    for found in (
        record_counterfactuals(RECORD.model_copy(update={"verdict": stage})),
        counterfactuals(DECISION.model_copy(update={"verdict": SwitchVerdict.ADVANCE, "stage": stage})),
    ):
        assert found
        assert {each.verdict for each in found} <= {*SwitchStage}
        assert not any("{" in each.when or "None" in each.when for each in found)


def test_what_stops_it_comes_first() -> None:
    waits = SwitchHold(name="hold", why="waits", since=None, alert_from=None, ends_with="`end`")
    halts = SwitchHold(name="halted", why="halts: ledger 5 differs", since=None, alert_from=None, ends_with="`resume`")
    first = record_counterfactuals(RECORD.model_copy(update={"holds": (waits, halts)}))[0]
    assert (first.verdict, first.when) == ("advance", "this ends: halts: ledger 5 differs (`resume`)")
    assert record_counterfactuals(RECORD.model_copy(update={"holds": (waits,)}))[0].verdict != "advance"


@pytest.mark.parametrize("code", RejectCode)
def test_of_each_refusal_it_is_said_what_would_let_it_pass(code: RejectCode) -> None:
    (only,) = counterfactuals(DECISION.model_copy(update={"verdict": SwitchVerdict.REJECT, "code": code}))
    assert only.verdict == "advance"
    assert only.when


@pytest.mark.parametrize("verdict", sorted(ORDERS))
def test_of_an_order_it_is_said_who_ends_it(verdict: SwitchVerdict) -> None:
    done, failed = counterfactuals(DECISION.model_copy(update={"verdict": verdict}))
    assert (done.verdict, done.when) == ("advance", "an executor answers order 7 that it is done")
    assert failed.verdict == "halt"


@pytest.mark.parametrize("verdict", [v for v in SwitchVerdict if v is not SwitchVerdict.REJECT])
def test_each_verdict_has_something_that_would_change_it(verdict: SwitchVerdict) -> None:
    assert counterfactuals(DECISION.model_copy(update={"verdict": verdict}))
