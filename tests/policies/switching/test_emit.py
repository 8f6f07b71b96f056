"""What is said, over the wire: numbered, explained, and checkable by an executor."""

from itertools import pairwise

from policies.switching.decisions import RejectCode, SwitchDecision, SwitchRecord, SwitchVerdict
from policies.switching.state import LedgerStage, SwitchStage
from policies.units import to_millis
from tests.policies.switching.events import command
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


DONE = WireWorld()


DONE.to(SwitchStage.DONE)


def test_the_record_of_the_switch_is_said_when_it_changes() -> None:
    records = DONE.records()
    stages = list(dict.fromkeys(r.verdict for r in records))
    assert stages == [
        SwitchStage.NONE,
        SwitchStage.TRIGGERED,
        SwitchStage.LIVE_DUAL_READ,
        SwitchStage.BUILD,
        SwitchStage.PROMOTE,
        SwitchStage.HOLD,
        SwitchStage.CLEANUP,
        SwitchStage.DONE,
    ]
    last = records[-1]
    assert last.ledgers == {LedgerStage.CLEANED: 3}
    assert (last.active, last.committed_epoch, last.registry) == ("new", 1, {"new": "active", "old": "deprecated"})
    assert last.cleanup_from is not None
    assert "3 of 3 ledgers moved" in last.explanation
    for one, other in pairwise(records):
        assert one.model_copy(update={"sequence": 0}) != other.model_copy(update={"sequence": 0})
    assert len({r.subject for r in records}) == 1


def test_a_clean_up_counts_what_is_deleted_and_never_what_was_moved_backwards() -> None:
    said = [r.explanation for r in DONE.records() if r.verdict is SwitchStage.CLEANUP]
    counted = list(dict.fromkeys(sentence.split(": ")[1].split(",")[0] for sentence in said))
    assert counted == [f"{n} of 3 moved ledgers deleted from old" for n in range(4)]
