"""The record of where a switch stands."""

from itertools import pairwise

from policies.switching.state import LedgerStage, SwitchStage
from tests.policies.switching.wire import WireWorld

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
