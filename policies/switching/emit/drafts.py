"""Words for changes: what executors are asked to do, what became of the switch, and why nothing is done.

An order that needs the lease is withheld while nobody holds it, while the switch is halted or paused, and while the
registry is contested. It stays open and is published once an orchestrator takes over or a person resumes the switch.
"""

from policies.switching.decisions import SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts
from policies.switching.judge import guards
from policies.switching.judge.changes import (
    Advance,
    AskAgain,
    AskExecutor,
    Change,
    DecisionDraft,
    DirectAgain,
    DirectBrokers,
    Reject,
    RemoveRegistry,
    TakeInventory,
    WriteRegistry,
    WriteStatus,
    WriteStatusAgain,
)
from policies.switching.state import ClusterStatus, SwitchAction

_VERDICTS = {
    SwitchAction.COPY: SwitchVerdict.START_COPY,
    SwitchAction.DELETE_COPY: SwitchVerdict.DELETE_OWN_COPY,
    SwitchAction.PROMOTE: SwitchVerdict.PROMOTE,
    SwitchAction.ROLL_OVER: SwitchVerdict.REQUEST_ROLLOVER,
    SwitchAction.REVERT: SwitchVerdict.REVERT,
    SwitchAction.DELETE_OLD: SwitchVerdict.DELETE_OLD,
}
_SENTENCES = {
    SwitchAction.COPY: "copy ledger {id} of {source} to {target}",
    SwitchAction.DELETE_COPY: "delete headgate's own copy {id} in {target}",
    SwitchAction.PROMOTE: "attribute ledger {id} to {target}",
    SwitchAction.ROLL_OVER: "ask the owner of the cursor of ledger {id} to roll it over to {target}",
    SwitchAction.REVERT: "attribute ledger {id} to {source} again",
    SwitchAction.DELETE_OLD: "delete ledger {id} from {source}",
}


def draft_of(change: Change, after: SwitchFacts) -> DecisionDraft | None:
    """What is said of a change that was just made; None when nothing is, or nothing may be."""
    match change:
        case DecisionDraft():
            return change
        case Reject(code, sentence, subject):
            return DecisionDraft(SwitchVerdict.REJECT, SwitchReason.REJECTED, sentence, subject, code)
        case Advance(_, reason, sentence):
            return DecisionDraft(SwitchVerdict.ADVANCE, reason, sentence)
        case WriteRegistry() | RemoveRegistry():
            return None if after.state.contested else _registry_order(change, after)
    if after.stands_still or guards.holds_lease(after):
        return None
    if isinstance(change, DirectBrokers | DirectAgain):
        return _directive_order(change.reason, after)
    return _order(change, after) if after.state.switch is not None else None


def _registry_order(change: WriteRegistry | RemoveRegistry, after: SwitchFacts) -> DecisionDraft:
    """Also without the lease: commands write the registry before there is an orchestrator."""
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


def _order(change: Change, after: SwitchFacts) -> DecisionDraft | None:
    match change:
        case AskExecutor(task, _, reason) | AskAgain(task, reason):
            return _ledger_order(task.key, reason, after)
        case TakeInventory():
            return DecisionDraft(
                SwitchVerdict.TAKE_INVENTORY, SwitchReason.INVENTORY_NEEDED, "list all schema locators and cursors",
                subject="inventory", details={"source": after.switch.source, "target": after.switch.target},
            )  # fmt: skip
        case WriteStatus():
            return _status_order(SwitchReason.ALL_TERMINAL, after)
        case WriteStatusAgain(reason):
            return _status_order(reason, after)
    return None


def _ledger_order(key: int, reason: SwitchReason, after: SwitchFacts) -> DecisionDraft | None:
    task = after.plan.get(key)
    if task is None:
        return None
    names: dict[str, object] = {"source": after.switch.source, "target": after.switch.target}
    sentence = _SENTENCES[task.awaiting].format(id=task.ledger_id, **names)
    return DecisionDraft(
        _VERDICTS[task.awaiting],
        reason,
        sentence,
        subject=f"ledgers/{task.ledger_id}",
        task=task,
        op=task.op,
        details=names,
    )


def _directive_order(reason: SwitchReason, after: SwitchFacts) -> DecisionDraft | None:
    directive = after.state.directive
    if directive is None or directive.epoch <= after.state.committed_epoch:
        return None
    sentence = f"from epoch {directive.epoch} on brokers write to {directive.target}"
    details: dict[str, object] = {"target": directive.target, "directive_epoch": directive.epoch}
    return DecisionDraft(SwitchVerdict.WRITE_DIRECTIVE, reason, sentence, subject="directive", details=details)


def _status_order(reason: SwitchReason, after: SwitchFacts) -> DecisionDraft:
    switch = after.switch
    old = switch.awaiting is SwitchAction.STATUS_OLD
    name, status = (switch.source, ClusterStatus.DEPRECATED) if old else (switch.target, ClusterStatus.ACTIVE)
    entry = after.state.entry(name)
    details = {"name": name, "status": status.value, "expected_version": entry.version if entry else None}
    return DecisionDraft(
        SwitchVerdict.WRITE_STATUS, reason, f"{name} becomes {status.value}", subject=f"registry/{name}",
        op=switch.op, details=details,
    )  # fmt: skip
