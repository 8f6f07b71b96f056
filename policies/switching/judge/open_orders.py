"""What was asked and is not answered yet: row 25."""

from collections.abc import Iterator

from policies.switching.decisions import SwitchReason
from policies.switching.facts import SwitchFacts
from policies.switching.judge.changes import AskAgain, Change, DirectAgain, TakeInventory, WriteStatusAgain
from policies.switching.state import SwitchAction, SwitchStage

STATUSES = (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW)
_OF_NO_LEDGER = frozenset({SwitchAction.NONE, SwitchAction.INVENTORY, SwitchAction.GIVEN_UP, *STATUSES})


def order_again(facts: SwitchFacts, reason: SwitchReason) -> Iterator[Change]:
    """Everything that was asked and not answered is asked again, under the same numbers."""
    yield DirectAgain(reason)
    yield from (AskAgain(task, reason) for task in facts.plan if task.awaiting not in _OF_NO_LEDGER)
    if needs_inventory(facts):
        yield TakeInventory()
    if facts.switch.awaiting in STATUSES:
        yield WriteStatusAgain(reason)


def needs_inventory(facts: SwitchFacts) -> bool:
    """Whether the switch waits for an inventory."""
    stage = facts.switch.stage
    waits = stage is SwitchStage.LIVE_DUAL_READ or facts.plan.asked(SwitchAction.INVENTORY) > 0
    return waits or (stage is SwitchStage.CLEANUP and facts.inventory_is_old)
