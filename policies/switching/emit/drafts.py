"""Drafts decisions from changes: the orders to executors, the new stage of the switch, and rejections.

An order that needs the lease is withheld while no orchestrator holds it, while the switch is halted or paused, and
while the registry is contested. It stays open, and is published once an orchestrator takes over or an operator resumes
the switch.
"""

from policies.switching.decisions import SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.id_generators import hob_name
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    AdvanceIds,
    Change,
    DecisionDraft,
    DirectBrokers,
    OrderLedger,
    Reject,
    RemoveRegistry,
    TakeInventory,
    WriteRegistry,
    WriteStatus,
)
from policies.switching.judge.holds import explain_refusal
from policies.switching.state import ClusterStatus, SwitchAction

_ORDERS = {
    SwitchAction.COPY: (SwitchVerdict.START_COPY, "copy ledger {id} of {source} to {target}"),
    SwitchAction.DELETE_COPY: (SwitchVerdict.DELETE_OWN_COPY, "delete headgate's own copy {id} in {target}"),
    SwitchAction.PROMOTE: (SwitchVerdict.PROMOTE, "attribute ledger {id} to {target}"),
    SwitchAction.ROLL_OVER: (
        SwitchVerdict.REQUEST_ROLLOVER,
        "ask the owner of the cursor of ledger {id} to roll it over to {target}",
    ),
    SwitchAction.REVERT: (SwitchVerdict.REVERT, "attribute ledger {id} to {source} again"),
    SwitchAction.DELETE_OLD: (SwitchVerdict.DELETE_OLD, "delete ledger {id} from {source}"),
}


def draft_decision(change: Change, after: SwitchFacts) -> DecisionDraft | None:
    """Draft the decision of a change that was just made; None if it has none, or its order is withheld."""
    match change:
        case DecisionDraft():
            return change
        case Reject(code, _, subject):
            sentence = explain_refusal(after, change)
            return DecisionDraft(SwitchVerdict.REJECT, SwitchReason.REJECTED, sentence, subject, code)
        case Advance(_, reason, sentence):
            return DecisionDraft(SwitchVerdict.ADVANCE, reason, sentence)
        case WriteRegistry() | RemoveRegistry():
            return None if after.state.contested else _order_registry(change, after)
    if after.stands_still or guards.holds_lease(after):
        return None
    if isinstance(change, DirectBrokers):
        return _order_directive(change.reason, after)
    if isinstance(change, AdvanceIds):
        return DecisionDraft(
            SwitchVerdict.ADVANCE_IDS, SwitchReason.WAY_BACK, f"{change.name} is advanced to {hob_name(change.hob)}",
            subject=f"ids/{change.name}", details={"name": change.name, "hob": change.hob},
        )  # fmt: skip
    return _order(change, after) if after.state.switch is not None else None


def _order_registry(change: WriteRegistry | RemoveRegistry, after: SwitchFacts) -> DecisionDraft:
    """An order to the registry needs no lease: commands write it before there is an orchestrator."""
    if isinstance(change, RemoveRegistry):
        return DecisionDraft(
            SwitchVerdict.REMOVE_REGISTRY, change.reason, f"{change.name} is no longer registered",
            subject=f"registry/{change.name}", details={"name": change.name, "version": change.version},
        )  # fmt: skip
    entry = change.entry
    sentence = f"{entry.name} ({entry.uri}) is registered as {entry.status.value}"
    return DecisionDraft(
        SwitchVerdict.WRITE_REGISTRY, change.reason, sentence,
        subject=f"registry/{entry.name}", details={"entry": entry, "bootstrap": after.state.bootstrap},
    )  # fmt: skip


def _order_directive(reason: SwitchReason, after: SwitchFacts) -> DecisionDraft | None:
    directive = after.state.directive
    if directive is None or directive.epoch <= after.state.committed_epoch:
        return None
    sentence = f"from epoch {directive.epoch} on brokers write to {directive.target}"
    details: dict[str, object] = {"target": directive.target, "directive_epoch": directive.epoch}
    return DecisionDraft(SwitchVerdict.WRITE_DIRECTIVE, reason, sentence, subject="directive", details=details)


def _order(change: Change, after: SwitchFacts) -> DecisionDraft | None:
    names: dict[str, object] = {"source": after.switch.source, "target": after.switch.target}
    match change:
        case OrderLedger(ordered, reason) if task := after.plan.get(ordered.key):
            verdict, sentence = _ORDERS[task.awaiting]
            if len(after.plan.tasks_of(task.ledger_id)) > 1:
                names["shared"] = True  # another kind of reference needs the copy
            return DecisionDraft(
                verdict, reason, sentence.format(id=task.ledger_id, **names), subject=f"ledgers/{task.ledger_id}",
                task=task, op=task.op, details=names,
            )  # fmt: skip
        case TakeInventory():
            return DecisionDraft(
                SwitchVerdict.TAKE_INVENTORY, SwitchReason.INVENTORY_NEEDED, "list all schema locators and cursors",
                subject="inventory", details=names | ({"moved_too": True} if after.switch.recovering_ms >= 0 else {}),
            )  # fmt: skip
        case WriteStatus():
            return _order_status(change.reason, after)
    return None


def _order_status(reason: SwitchReason, after: SwitchFacts) -> DecisionDraft:
    switch, active = after.switch, ClusterStatus.ACTIVE.value
    entry = after.state.entry(switch.target)
    details = {
        "name": switch.target,
        "status": active,
        "expected_version": entry.version if entry else None,
        "deprecated": switch.source,
    }
    sentence = f"{switch.target} becomes {active}, and {switch.source} {ClusterStatus.DEPRECATED.value}"
    subject = f"registry/{switch.target}"
    return DecisionDraft(SwitchVerdict.WRITE_STATUS, reason, sentence, subject=subject, op=switch.op, details=details)
