"""Ordering: what is asked of executors, each with its number, and asked again when an orchestrator takes over."""

from typing import Any

from msgspec.structs import replace

from policies.switching import guards
from policies.switching.orders import Verdict, Why
from policies.switching.state import Action, Directive, Entry, LedgerStage, Stage, Status, Unit
from policies.switching.turn import Turn

_VERDICTS = {
    Action.COPY: Verdict.START_COPY,
    Action.DELETE_COPY: Verdict.DELETE_OWN_COPY,
    Action.PROMOTE: Verdict.PROMOTE,
    Action.ROLL_OVER: Verdict.REQUEST_ROLLOVER,
    Action.REVERT: Verdict.REVERT,
    Action.DELETE_OLD: Verdict.DELETE_OLD,
}
_STAGES = {
    Action.COPY: LedgerStage.COPYING,
    Action.PROMOTE: LedgerStage.PROMOTING,
    Action.ROLL_OVER: LedgerStage.PROMOTING,
    Action.DELETE_OLD: LedgerStage.DELETE_INTENT,
}
_IN_WORDS = {
    Action.COPY: "copy ledger {id} of {source} to {target}",
    Action.DELETE_COPY: "delete headgate's own copy {id} in {target}",
    Action.PROMOTE: "attribute ledger {id} to {target}",
    Action.ROLL_OVER: "ask the owner of the cursor of ledger {id} to roll it over to {target}",
    Action.REVERT: "attribute ledger {id} to {source} again",
    Action.DELETE_OLD: "delete ledger {id} from {source}",
}
_ON_OWN_COPY = frozenset({Stage.ROLLED_BACK})


def ask(turn: Turn, unit: Unit, action: Action, reason: Why, **changes: object) -> None:
    """Ask an executor to do something with a ledger; its answer quotes the number."""
    stage = _STAGES.get(action, unit.stage)
    if action is Action.DELETE_COPY and turn.switch.stage not in _ON_OWN_COPY:
        stage = LedgerStage.COPYING  # it is deleted to be copied again
    if action is Action.COPY:
        turn.journal(unit)
    asked: Unit = replace(unit, stage=stage, awaiting=action, op=turn.next_op(), **changes)
    turn.plan.put(asked)
    _say(turn, asked, reason)


def _order(turn: Turn, verdict: Verdict, reason: Why, sentence: str, **more: Any) -> None:
    """Say an order. Without the lease, or halted, it stays an open intent, said when one drives the switch on again."""
    if not turn.switch.halted and not guards.holds_lease(turn.state, turn.now_ms):
        turn.say(verdict, reason, sentence, **more)


def _say(turn: Turn, unit: Unit, reason: Why) -> None:
    names: dict[str, object] = {"source": turn.switch.source, "target": turn.switch.target}
    sentence = _IN_WORDS[unit.awaiting].format(id=unit.ledger_id, **names)
    subject = f"ledgers/{unit.ledger_id}"
    _order(turn, _VERDICTS[unit.awaiting], reason, sentence, subject=subject, unit=unit, op=unit.op, details=names)


def direct(turn: Turn, target: str, reason: Why) -> None:
    """Tell the brokers, by the next epoch, where to write. An executor never overwrites a later epoch."""
    epoch = turn.state.epoch + 1
    turn.update(epoch=epoch, directive=Directive(epoch, target))
    turn.set_switch(epoch=epoch)
    _say_directive(turn, reason)


def _say_directive(turn: Turn, reason: Why) -> None:
    directive = turn.state.directive
    if directive is not None and directive.epoch > turn.state.committed_epoch:
        sentence = f"from epoch {directive.epoch} on brokers write to {directive.target}"
        details: dict[str, object] = {"target": directive.target, "directive_epoch": directive.epoch}
        _order(turn, Verdict.WRITE_DIRECTIVE, reason, sentence, subject="directive", details=details)


def write_registry(turn: Turn, entry: Entry, reason: Why) -> None:
    """Have a cluster written into the registry; it is seen there, or it is asked again."""
    turn.say(
        Verdict.WRITE_REGISTRY, reason, f"{entry.name} ({entry.uri}) is registered as {entry.status.value}",
        subject=f"registry/{entry.name}", details={"entry": entry, "bootstrap": turn.state.bootstrap},
    )  # fmt: skip


def remove_registry(turn: Turn, name: str, version: int | None, reason: Why) -> None:
    """Have a cluster taken out of the registry; it is not seen there any more, or it is asked again."""
    turn.say(
        Verdict.REMOVE_REGISTRY, reason, f"{name} is no longer registered",
        subject=f"registry/{name}", details={"name": name, "version": version},
    )  # fmt: skip


def take_inventory(turn: Turn) -> None:
    """Ask for all references, read from now on, and for which of their ledgers the target has."""
    _order(
        turn, Verdict.TAKE_INVENTORY, Why.INVENTORY_NEEDED, "list all schema locators and cursors",
        subject="inventory", details={"source": turn.switch.source, "target": turn.switch.target},
    )  # fmt: skip


def write_status(turn: Turn, action: Action) -> None:
    """Ask for a cluster's status to be written: first the old one's, then the new one's."""
    turn.set_switch(awaiting=action, op=turn.next_op())
    _say_status(turn, Why.ALL_TERMINAL)


def _say_status(turn: Turn, reason: Why) -> None:
    old = turn.switch.awaiting is Action.STATUS_OLD
    name, status = (turn.switch.source, Status.DEPRECATED) if old else (turn.switch.target, Status.ACTIVE)
    entry = turn.state.entry(name)
    _order(
        turn, Verdict.WRITE_STATUS, reason, f"{name} becomes {status.value}",
        subject=f"registry/{name}", op=turn.switch.op,
        details={"name": name, "status": status.value, "expected_version": entry.version if entry else None},
    )  # fmt: skip


def issue_again(turn: Turn, reason: Why) -> None:
    """Row 25: everything that was asked and not answered is asked again, under the same numbers."""
    _say_directive(turn, reason)
    for unit in turn.plan:
        if unit.awaiting in _VERDICTS:
            _say(turn, unit, reason)
    if needs_inventory(turn):
        take_inventory(turn)
    if turn.switch.awaiting in (Action.STATUS_OLD, Action.STATUS_NEW):
        _say_status(turn, reason)


def needs_inventory(turn: Turn) -> bool:
    """Whether the switch waits for an inventory."""
    waits = turn.switch.stage is Stage.LIVE_DUAL_READ or turn.plan.asked(Action.INVENTORY) > 0
    attributed = turn.state.attributed
    old = attributed is None or attributed.at_ms <= turn.switch.cleanup_ms
    return waits or (turn.switch.stage is Stage.CLEANUP and old)
