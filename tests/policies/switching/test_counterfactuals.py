"""What would have to change for a switch to stand elsewhere, or for what was refused to pass."""

import pytest

from policies.switching.counterfactuals import counterfactuals
from policies.switching.decisions import ORDERS, RejectCode, SwitchDecision, SwitchVerdict
from policies.switching.judge.holds import Hold
from policies.switching.readings import LedgerOutcome
from policies.switching.state import SwitchStage
from tests.policies.switching.wire import WireWorld
from tests.policies.switching.world import tell_of

S = SwitchStage
DECISION: SwitchDecision = SwitchDecision.model_validate(
    {
        "decision_id": "d", "policy": "switching", "cluster": "c", "subject": "c/switch", "sequence": 1,
        "verdict": "start-copy", "reason": "next_in_plan", "explanation": "e.", "decided_at": "2026-11-21T08:00:00Z",
        "mode": "active", "settings_hash": "x", "stage": "build", "epoch": 4, "lease_token": 1, "op": 7,
        "source": "old", "target": "new", "valid_until": None,
    }
)  # fmt: skip


@pytest.mark.parametrize("stage", [S.DONE, S.DONE_WITH_FAILURES, S.REJECTED, S.ROLLED_BACK])
def test_on_each_way_something_is_named_without_a_gap(stage: SwitchStage) -> None:
    world = WireWorld()
    world.to(stage)
    for decision in world.published:
        if isinstance(decision, SwitchDecision):
            assert decision.otherwise
    for record in world.records():
        assert record.otherwise
        assert not any("{" in each.when or "None" in each.when for each in record.otherwise)


def test_what_stops_it_comes_first() -> None:
    world = WireWorld()
    world.to(SwitchStage.PROMOTE)
    tell_of(world, "/c1", LedgerOutcome.PROMOTED, changed=("attribution", "entry_id"))
    [first] = world.records()[-1].otherwise
    assert first.verdict == "advance"
    assert first.when.startswith("this ends: halts: ")
    assert first.when.endswith(" (remove the cause, then `resume`, or `abort`)")


@pytest.mark.parametrize("code", RejectCode)
def test_of_each_refusal_it_is_said_what_would_let_it_pass(code: RejectCode) -> None:
    (only,) = counterfactuals(DECISION.model_copy(update={"verdict": SwitchVerdict.REJECT, "code": code}), None)
    assert (only.verdict, only.when) == ("advance", f"this no longer holds: {code.meaning}")


@pytest.mark.parametrize("verdict", sorted(ORDERS))
def test_of_an_order_it_is_said_who_ends_it(verdict: SwitchVerdict) -> None:
    done, failed = counterfactuals(DECISION.model_copy(update={"verdict": verdict}), None)
    assert (done.verdict, done.when) == ("advance", "an executor answers order 7 that it is done")
    assert failed.verdict == "halt"


@pytest.mark.parametrize("hold", [None, Hold("waits in hold", None, "`end`")])
@pytest.mark.parametrize("verdict", [v for v in SwitchVerdict if v is not SwitchVerdict.REJECT])
def test_each_verdict_has_something_that_would_change_it(verdict: SwitchVerdict, hold: Hold | None) -> None:
    assert counterfactuals(DECISION.model_copy(update={"verdict": verdict}), hold)
