"""The state of a switch during a step, and the only place where it is written.

Rows of the table read `SwitchFacts` and write here: fields, ledgers, and orders with the decision that publishes each.
An order that needs the lease is withheld while no orchestrator holds it, while the switch is halted or paused, and
while the registry is contested. It stays open, and is published once an orchestrator takes over or an operator resumes
the switch. Neither a halt nor a pause withholds a directive that only renews the one in force.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict, replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.facts import SwitchFacts, load_plan
from policies.switching.judge import guards
from policies.switching.ledgers import mark_written
from policies.switching.settings import SwitchingSettings
from policies.switching.state import (
    ClusterStatus,
    Directive,
    LedgerStage,
    LedgerTask,
    RegistryEntry,
    SwitchAction,
    SwitchingState,
    SwitchStage,
)

_V, _ROLL_OVER = SwitchVerdict, "ask the owner of the cursor of ledger {id} to roll it over to {target}"
_ORDERS: Mapping[SwitchAction, tuple[SwitchVerdict, LedgerStage | None, str]] = {
    SwitchAction.COPY: (_V.START_COPY, LedgerStage.COPYING, "copy ledger {id} of {source} to {target}"),
    SwitchAction.DELETE_COPY: (_V.DELETE_OWN_COPY, None, "delete headgate's own copy {id} in {target}"),
    SwitchAction.PROMOTE: (_V.PROMOTE, LedgerStage.PROMOTING, "attribute ledger {id} to {target}"),
    SwitchAction.ROLL_OVER: (_V.REQUEST_ROLLOVER, LedgerStage.PROMOTING, _ROLL_OVER),
    SwitchAction.REVERT: (_V.REVERT, None, "attribute ledger {id} to {source} again"),
    SwitchAction.DELETE_OLD: (_V.DELETE_OLD, LedgerStage.DELETE_INTENT, "delete ledger {id} from {source}"),
}
"""The orders about a ledger: the decision, the ledger's stage from then on if it changes, and the sentence."""


@dataclass(frozen=True, slots=True)
class DecisionDraft:
    """A decision before it is numbered and dated."""

    verdict: SwitchVerdict
    reason: SwitchReason
    sentence: str
    subject: str = ""
    """The subject below the cluster: empty for the switch itself, ``ledgers/5``, ``commands/<key>``."""
    code: RejectCode | None = None
    task: LedgerTask | None = None
    op: int = 0
    details: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    """Further arguments for the executor."""
    cause: int = -1
    """The index of the event that caused it, among the events of the step."""


class Transition:
    """The state during a step, with its plan as it changes."""

    def __init__(self, state: SwitchingState, limits: SwitchingSettings, now_ms: int) -> None:
        self.state = state
        self.limits = limits
        self.now_ms = now_ms
        self.plan = load_plan(state.switch)
        self.drafts: list[DecisionDraft] = []
        """The decisions that follow from the present event."""
        self.writes = 0
        """The number of writes, which shows whether a row did anything."""
        self.is_resolved = False
        """Whether the present reading shows that what contested the registry is gone."""

    def facts(self) -> SwitchFacts:
        """Join the read models as of now; the facts that a row reads stay as they are while it writes."""
        return SwitchFacts(self.state, self.plan, self.limits, self.now_ms)

    def packed(self) -> SwitchingState:
        """Return the state with its plan as it is now."""
        if self.state.switch is not None and self.plan.changed:
            self.update_switch(tasks=tuple(self.plan))
        return self.state

    def adopt(self, state: SwitchingState) -> None:
        """Take the state into which a reading was folded."""
        if state.switch is not self.state.switch:
            self.plan = load_plan(state.switch)
        self.is_resolved = bool(self.state.contested) and not state.contested
        self.state = state

    # --- the state and its switch

    def update(self, **fields: Any) -> None:
        """Write fields of the state."""
        self.state = replace(self.state, **fields)
        self.writes += 1

    def update_switch(self, **fields: Any) -> None:
        """Write fields of the switch."""
        self.update(switch=replace(self.facts().switch, **fields))

    def advance(self, stage: SwitchStage, reason: SwitchReason, sentence: str, **fields: Any) -> None:
        """Move the switch to another stage."""
        self.update_switch(stage=stage, stage_ms=self.now_ms, **fields)
        self.publish(SwitchVerdict.ADVANCE, reason, sentence)

    def settle(self) -> None:
        """Reduce the plan of a switch that is over to counts: a plan of 100,000 ledgers weighs 8 MB in each batch."""
        self.update_switch(ledgers=dict(sorted(Counter(task.stage for task in self.plan).items())), tasks=())
        self.plan = load_plan(self.state.switch)

    # --- decisions

    def publish(self, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, **more: Any) -> None:
        """Publish a decision; `more` are fields of its draft."""
        self.drafts.append(DecisionDraft(verdict, reason, sentence, **more))
        self.writes += 1

    def publish_ledger(
        self, task: LedgerTask, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, **more: Any
    ) -> None:
        """Publish a decision about a ledger."""
        self.publish(verdict, reason, sentence, subject=f"ledgers/{task.ledger_id}", task=task, op=task.op, **more)

    def reject(self, code: RejectCode, sentence: str, subject: str) -> None:
        """Reject a command or a reading."""
        self.publish(SwitchVerdict.REJECT, SwitchReason.REJECTED, sentence, subject=subject, code=code)

    # --- the plan

    def put(self, task: LedgerTask, *, numbered: bool = False) -> None:
        """Insert or replace a ledger; with a new number, results of earlier orders are late."""
        self.plan.put(replace(task, op=self._next_op()) if numbered else task)
        self.writes += 1

    def drop(self, key: int) -> None:
        """Remove a ledger from the plan."""
        self.plan.drop(key)
        self.writes += 1

    # --- orders

    def order_ledger(self, task: LedgerTask, reason: SwitchReason, action: SwitchAction | None = None) -> None:
        """Order something of a ledger; its result quotes the order's number. None: repeat the open order."""
        if action is not None:
            stage, copied = _ORDERS[action][1] or task.stage, task.copied or action is SwitchAction.COPY
            self.put(replace(task, stage=stage, awaiting=action, copied=copied), numbered=True)
        ordered = self.plan.get(task.key)
        if ordered is None or self._is_withheld():
            return
        verdict, _, sentence = _ORDERS[ordered.awaiting]
        details = self._names()
        if len(self.plan.tasks_of(task.ledger_id)) > 1:
            details["shared"] = True  # another kind of reference needs the copy
        sentence = sentence.format(id=task.ledger_id, **details)
        self.publish_ledger(ordered, verdict, reason, sentence, details=details)

    def direct_brokers(self, reason: SwitchReason, target: str | None = None, *, renews: bool = False) -> None:
        """Direct brokers to a cluster by the next epoch. None: repeat the directive in force, if not committed.

        `renews`: they write to that cluster already, and are to open new clients.
        """
        if target is not None:
            epoch, marks = self.state.epoch + 1, self.state.marks
            if (active := self.state.active()) is not None:
                marks = mark_written(marks, self.state.cluster(active), from_now=False)
            marks = mark_written(marks, self.state.cluster(target), from_now=True)
            new = Directive(epoch, target)
            self.update(epoch=epoch, directive=new, directed_ms=self.now_ms, marks=marks, renewed=renews)
            if self.state.switch is not None:
                self.update_switch(epoch=epoch)
        directive = self.state.directive
        if directive is None or directive.epoch <= self.state.committed_epoch:
            return
        if self._is_withheld(renews=self.state.renewed):
            return
        sentence = f"from epoch {directive.epoch} on brokers write to {directive.target}"
        details = {"target": directive.target, "directive_epoch": directive.epoch}
        self.publish(SwitchVerdict.WRITE_DIRECTIVE, reason, sentence, subject="directive", details=details)

    def take_inventory(self) -> None:
        """Order a list of all references, and which of their ledgers exist in the target."""
        if self._is_withheld():
            return
        switch = self.facts().switch
        details = self._names() | ({"moved_too": True} if switch.recovering_ms >= 0 else {})
        details |= {"attempt": switch.attempt} if switch.attempt > 1 else {}
        self.publish(
            SwitchVerdict.TAKE_INVENTORY, SwitchReason.INVENTORY_NEEDED, "list all schema locators and cursors",
            subject="inventory", details=details,
        )  # fmt: skip

    def write_status(self, reason: SwitchReason = SwitchReason.ALL_TERMINAL, *, again: bool = False) -> None:
        """Order one transaction that makes the target active and the source deprecated, or repeat that order."""
        if not again:
            self.update_switch(op=self._next_op(), awaiting=SwitchAction.STATUS_NEW)
        if self._is_withheld():
            return
        switch, active = self.facts().switch, ClusterStatus.ACTIVE.value
        entry = self.state.entry(switch.target)
        details = {
            "name": switch.target,
            "status": active,
            "expected_version": entry.version if entry else None,
            "deprecated": switch.source,
        }
        sentence = f"{switch.target} becomes {active}, and {switch.source} {ClusterStatus.DEPRECATED.value}"
        subject = f"registry/{switch.target}"
        self.publish(SwitchVerdict.WRITE_STATUS, reason, sentence, subject=subject, op=switch.op, details=details)

    def write_registry(self, entry: RegistryEntry, reason: SwitchReason) -> None:
        """Order an entry of the registry, which needs no lease: commands write it before there is an orchestrator."""
        if not self.state.contested:
            sentence = f"{entry.name} ({entry.uri}) is registered as {entry.status.value}"
            details = asdict(entry) | {"status": entry.status.value, "bootstrap": self.state.bootstrap}
            subject = f"registry/{entry.name}"
            self.publish(SwitchVerdict.WRITE_REGISTRY, reason, sentence, subject=subject, details=details)

    def remove_registry(self, name: str, version: int | None, reason: SwitchReason) -> None:
        """Order the removal of an entry, repeated until the registry no longer shows it."""
        if not self.state.contested:
            sentence, details = f"{name} is no longer registered", {"name": name, "version": version}
            subject = f"registry/{name}"
            self.publish(SwitchVerdict.REMOVE_REGISTRY, reason, sentence, subject=subject, details=details)

    def _is_withheld(self, *, renews: bool = False) -> bool:
        facts = self.facts()
        waits = facts.state.contested if renews else facts.stands_still
        return bool(waits or guards.refuse_without_lease(facts))

    def _names(self) -> dict[str, str | int | bool | None]:
        switch = self.facts().switch
        return {"source": switch.source, "target": switch.target}

    def _next_op(self) -> int:
        """Return the number of the next order. No number is used twice, so a result fits one order only."""
        self.update(ops=self.state.ops + 1)
        return self.state.ops
