"""What is kept of a step."""

from policies.switching.events import (
    LedgerResult,
)
from policies.switching.readings import LedgerOutcome
from policies.switching.state import LedgerStage, SwitchStage
from tests.policies.switching.world import World

S, L = SwitchStage, LedgerStage


def test_of_a_switch_that_is_done_the_ledgers_are_counted_and_forgotten() -> None:
    world = World().to(S.CLEANUP)
    last = world.task("/c1")
    world.work()
    assert (world.stage, world.switch.settled, world.switch.tasks) == (S.DONE, {L.CLEANED: 3}, ())
    assert world.state.journal == (), "what was copied is the target's own now"
    repeated = world.state.counts.repeated
    assert world.tell(LedgerResult(last.ledger_id, last.op, LedgerOutcome.DELETED)) == []
    assert world.state.counts.repeated == repeated + 1
