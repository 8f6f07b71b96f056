"""Ordering: what is asked of executors, each with its number, and asked again when an orchestrator takes over."""

from typing import Any

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.decisions import SwitchReason, SwitchVerdict
from policies.switching.state import (
    ClusterStatus,
    Directive,
    LedgerStage,
    LedgerTask,
    RegistryEntry,
    SwitchAction,
    SwitchStage,
)
from policies.switching.transition import Transition

_VERDICTS = {
    SwitchAction.COPY: SwitchVerdict.START_COPY,
    SwitchAction.DELETE_COPY: SwitchVerdict.DELETE_OWN_COPY,
    SwitchAction.PROMOTE: SwitchVerdict.PROMOTE,
    SwitchAction.ROLL_OVER: SwitchVerdict.REQUEST_ROLLOVER,
    SwitchAction.REVERT: SwitchVerdict.REVERT,
    SwitchAction.DELETE_OLD: SwitchVerdict.DELETE_OLD,
}
_STAGES = {
    SwitchAction.COPY: LedgerStage.COPYING,
    SwitchAction.PROMOTE: LedgerStage.PROMOTING,
    SwitchAction.ROLL_OVER: LedgerStage.PROMOTING,
    SwitchAction.DELETE_OLD: LedgerStage.DELETE_INTENT,
}
_IN_WORDS = {
    SwitchAction.COPY: "copy ledger {id} of {source} to {target}",
    SwitchAction.DELETE_COPY: "delete headgate's own copy {id} in {target}",
    SwitchAction.PROMOTE: "attribute ledger {id} to {target}",
    SwitchAction.ROLL_OVER: "ask the owner of the cursor of ledger {id} to roll it over to {target}",
    SwitchAction.REVERT: "attribute ledger {id} to {source} again",
    SwitchAction.DELETE_OLD: "delete ledger {id} from {source}",
}
_ON_OWN_COPY = frozenset({SwitchStage.ROLLED_BACK})


def ask(
    transition: Transition, task: LedgerTask, action: SwitchAction, reason: SwitchReason, **changes: object
) -> None:
    """Ask an executor to do something with a ledger; its answer quotes the number."""
    stage = _STAGES.get(action, task.stage)
    if action is SwitchAction.DELETE_COPY and transition.switch.stage not in _ON_OWN_COPY:
        stage = LedgerStage.COPYING  # it is deleted to be copied again
    if action is SwitchAction.COPY:
        transition.journal(task)
    asked: LedgerTask = replace(task, stage=stage, awaiting=action, op=transition.next_op(), **changes)
    transition.plan.put(asked)
    _say(transition, asked, reason)


def _order(transition: Transition, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, **more: Any) -> None:
    """Say an order. Without the lease, or halted, it stays an open intent, said when one drives the switch on again."""
    if not transition.switch.halted and not guards.holds_lease(transition.state, transition.now_ms):
        transition.say(verdict, reason, sentence, **more)


def _say(transition: Transition, task: LedgerTask, reason: SwitchReason) -> None:
    names: dict[str, object] = {"source": transition.switch.source, "target": transition.switch.target}
    sentence = _IN_WORDS[task.awaiting].format(id=task.ledger_id, **names)
    subject = f"ledgers/{task.ledger_id}"
    _order(
        transition, _VERDICTS[task.awaiting], reason, sentence, subject=subject, task=task, op=task.op, details=names
    )


def direct(transition: Transition, target: str, reason: SwitchReason) -> None:
    """Tell the brokers, by the next epoch, where to write. An executor never overwrites a later epoch."""
    epoch = transition.state.epoch + 1
    transition.update(epoch=epoch, directive=Directive(epoch, target))
    transition.set_switch(epoch=epoch)
    _say_directive(transition, reason)


def _say_directive(transition: Transition, reason: SwitchReason) -> None:
    directive = transition.state.directive
    if directive is not None and directive.epoch > transition.state.committed_epoch:
        sentence = f"from epoch {directive.epoch} on brokers write to {directive.target}"
        details: dict[str, object] = {"target": directive.target, "directive_epoch": directive.epoch}
        _order(transition, SwitchVerdict.WRITE_DIRECTIVE, reason, sentence, subject="directive", details=details)


def write_registry(transition: Transition, entry: RegistryEntry, reason: SwitchReason) -> None:
    """Have a cluster written into the registry; it is seen there, or it is asked again."""
    transition.say(
        SwitchVerdict.WRITE_REGISTRY, reason, f"{entry.name} ({entry.uri}) is registered as {entry.status.value}",
        subject=f"registry/{entry.name}", details={"entry": entry, "bootstrap": transition.state.bootstrap},
    )  # fmt: skip


def remove_registry(transition: Transition, name: str, version: int | None, reason: SwitchReason) -> None:
    """Have a cluster taken out of the registry; it is not seen there any more, or it is asked again."""
    transition.say(
        SwitchVerdict.REMOVE_REGISTRY, reason, f"{name} is no longer registered",
        subject=f"registry/{name}", details={"name": name, "version": version},
    )  # fmt: skip


def take_inventory(transition: Transition) -> None:
    """Ask for all references, read from now on, and for which of their ledgers the target has."""
    _order(
        transition, SwitchVerdict.TAKE_INVENTORY, SwitchReason.INVENTORY_NEEDED, "list all schema locators and cursors",
        subject="inventory", details={"source": transition.switch.source, "target": transition.switch.target},
    )  # fmt: skip


def write_status(transition: Transition, action: SwitchAction) -> None:
    """Ask for a cluster's status to be written: first the old one's, then the new one's."""
    transition.set_switch(awaiting=action, op=transition.next_op())
    _say_status(transition, SwitchReason.ALL_TERMINAL)


def _say_status(transition: Transition, reason: SwitchReason) -> None:
    old = transition.switch.awaiting is SwitchAction.STATUS_OLD
    name, status = (
        (transition.switch.source, ClusterStatus.DEPRECATED)
        if old
        else (transition.switch.target, ClusterStatus.ACTIVE)
    )
    entry = transition.state.entry(name)
    _order(
        transition, SwitchVerdict.WRITE_STATUS, reason, f"{name} becomes {status.value}",
        subject=f"registry/{name}", op=transition.switch.op,
        details={"name": name, "status": status.value, "expected_version": entry.version if entry else None},
    )  # fmt: skip


def issue_again(transition: Transition, reason: SwitchReason) -> None:
    """Row 25: everything that was asked and not answered is asked again, under the same numbers."""
    _say_directive(transition, reason)
    for task in transition.plan:
        if task.awaiting in _VERDICTS:
            _say(transition, task, reason)
    if needs_inventory(transition):
        take_inventory(transition)
    if transition.switch.awaiting in (SwitchAction.STATUS_OLD, SwitchAction.STATUS_NEW):
        _say_status(transition, reason)


def needs_inventory(transition: Transition) -> bool:
    """Whether the switch waits for an inventory."""
    waits = transition.switch.stage is SwitchStage.LIVE_DUAL_READ or transition.plan.asked(SwitchAction.INVENTORY) > 0
    inventory = transition.state.inventory
    old = inventory is None or inventory.at_ms <= transition.switch.cleanup_ms
    return waits or (transition.switch.stage is SwitchStage.CLEANUP and old)
