"""Orders that are not answered yet: row 25."""

from collections.abc import Iterator

from msgspec.structs import replace

from policies.switching.decisions import SwitchReason
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import AskAgain, Change, DirectAgain, PutTask, TakeInventory, WriteStatusAgain
from policies.switching.state import SwitchAction, SwitchStage

STATUSES = (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW)
_OF_NO_LEDGER = frozenset({SwitchAction.NONE, SwitchAction.INVENTORY, SwitchAction.GIVEN_UP, *STATUSES})


def order_again(facts: SwitchFacts, reason: SwitchReason, *, redirected: bool = False) -> Iterator[Change]:
    """Everything that was asked and not answered is asked again, under the same numbers.

    Args:
        facts: as of now.
        reason: why.
        redirected: whether brokers were just sent there by a new directive, which none follows yet.
    """
    if not redirected:
        yield DirectAgain(reason)
    behind = redirected or guards.brokers_follow(facts) is not None
    for task in [t for t in facts.plan if t.awaiting not in _OF_NO_LEDGER]:
        if task.awaiting is SwitchAction.DELETE_OLD and behind:
            yield PutTask(replace(task, awaiting=SwitchAction.NONE), numbered=True)  # asked once they do
        else:
            yield AskAgain(task, reason)
    if needs_inventory(facts):
        yield TakeInventory()
    if facts.switch.awaiting in STATUSES:
        yield WriteStatusAgain(reason)


def needs_inventory(facts: SwitchFacts) -> bool:
    """Whether the switch waits for an inventory."""
    stage = facts.switch.stage
    waits = stage is SwitchStage.LIVE_DUAL_READ or facts.plan.asked(SwitchAction.INVENTORY) > 0
    if stage is SwitchStage.ROLLBACK:
        return waits or (facts.switch.confirm_ms >= 0 and facts.rollback_is_unconfirmed)
    waits = waits or (stage is SwitchStage.BUILD and facts.awaits_what_was_unplanned)
    return waits or (stage is SwitchStage.CLEANUP and facts.inventory_is_old)
