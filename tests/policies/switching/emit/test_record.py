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
