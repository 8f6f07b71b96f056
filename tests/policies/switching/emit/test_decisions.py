"""What is said, over the wire: numbered, explained, and checkable by an executor."""

from policies.switching.decisions import RejectCode, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.state import SwitchStage
from policies.units import to_millis
from tests.policies.switching.commands import command
from tests.policies.switching.wire import CLUSTER, WireWorld

DONE = WireWorld()


DONE.to(SwitchStage.DONE)


def test_decisions_are_numbered_and_never_repeat_an_id() -> None:
    numbers = [d.sequence for d in DONE.published if isinstance(d, SwitchDecision | SwitchRecord)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] == to_millis(DONE.published[0].decided_at)
    assert len({d.decision_id for d in DONE.published}) == len(DONE.published)


def test_an_order_says_under_which_lease_at_which_epoch_and_what_it_must_find() -> None:
    decided = {d.verdict: d for d in DONE.published if isinstance(d, SwitchDecision)}
    promote = decided[SwitchVerdict.PROMOTE]
    assert (promote.lease_token, promote.epoch, promote.stage) == (1, 1, SwitchStage.PROMOTE)
    assert promote.ledger is not None
    assert (promote.ledger.place, promote.ledger.of) == (3, 3)
    assert promote.expects == {"attribution": "old", "legacy": "or_none", "ledger_id": promote.ledger.ledger_id}
    assert promote.subject == f"{CLUSTER}/ledgers/{promote.ledger.ledger_id}"
    assert promote.valid_until is not None
    assert len(promote.evidence) == 1
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].args == {"target": "new", "directive_epoch": 1}
    assert decided[SwitchVerdict.WRITE_DIRECTIVE].expects == {"epoch_below": 1}
    assert decided[SwitchVerdict.DELETE_OLD].expects["attribution"] == "new"
    assert decided[SwitchVerdict.WRITE_REGISTRY].args["instance_id"] == "id-of-new"


def test_a_revert_takes_references_without_an_attribute_for_the_bootstrap_clusters() -> None:
    world = WireWorld()
    world.to(SwitchStage.ROLLED_BACK)
    reverts = [d for d in world.published if isinstance(d, SwitchDecision) and d.verdict is SwitchVerdict.REVERT]
    assert {(d.expects["attribution"], d.expects["legacy"]) for d in reverts} == {("new", "or_none")}


def test_a_rejection_names_its_code() -> None:
    world = WireWorld()
    world.to(SwitchStage.HOLD)
    world.tell(command("cleanup", "x"))
    last = [d for d in world.published if isinstance(d, SwitchDecision)][-1]
    assert (last.verdict, last.code, last.subject) == (
        SwitchVerdict.REJECT,
        RejectCode.WINDOW_NOT_ELAPSED,
        f"{CLUSTER}/commands/x",
    )
