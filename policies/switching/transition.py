"""One step of the machine while it is under way: the only mutable thing in this package, and it never leaves it.

A batch may hold many answers about a plan of 100,000 ledgers, so the plan is spread out once per step, counted as it
changes, and folded back at the end.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from policies.switching.decisions import RejectCode, SwitchReason, SwitchVerdict
from policies.switching.drafts import DecisionDraft
from policies.switching.ledgers import CopyIntent
from policies.switching.settings import SwitchLimits
from policies.switching.state import LedgerStage, LedgerTask, Switch, SwitchAction, SwitchingState, SwitchStage


class LedgerPlan:
    """The ledgers of a switch, by id."""

    def __init__(self, tasks: Iterable[LedgerTask]) -> None:
        self._units = {u.ledger_id: u for u in tasks}
        self._counts = Counter((u.stage, u.awaiting) for u in self._units.values())
        self._ready: dict[LedgerStage, list[int]] = {}
        for task in self:
            self._offer(task)
        self.touched: set[int] = set()
        self.changed = False

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[LedgerTask]:
        return (self._units[i] for i in sorted(self._units))

    def get(self, ledger_id: int) -> LedgerTask | None:
        """A ledger of the plan."""
        return self._units.get(ledger_id)

    def put(self, task: LedgerTask) -> None:
        """Put a ledger in, or in place of what was known of it."""
        self.drop(task.ledger_id)
        self._units[task.ledger_id] = task
        self._counts[(task.stage, task.awaiting)] += 1
        self.touched.add(task.ledger_id)
        self._offer(task)

    def drop(self, ledger_id: int) -> None:
        """Take a ledger out."""
        known = self._units.pop(ledger_id, None)
        self.changed = True
        if known is not None:
            self._counts[(known.stage, known.awaiting)] -= 1

    def count(self, *stages: LedgerStage) -> int:
        """How many ledgers are at one of these stages."""
        return sum(n for (stage, _), n in self._counts.items() if stage in stages)

    def unfinished(self, *stages: LedgerStage) -> int:
        """How many at one of these stages are not given up."""
        return sum(n for (s, a), n in self._counts.items() if s in stages and a is not SwitchAction.GIVEN_UP)

    def asked(self, *actions: SwitchAction) -> int:
        """Of how many ledgers one of these is asked."""
        return sum(n for (_, action), n in self._counts.items() if action in actions)

    def first(self, stage: LedgerStage) -> LedgerTask | None:
        """The ledger of least id at a stage of which nothing is asked, so that the order of batches is no matter."""
        waiting = self._ready.get(stage, [])
        while waiting:
            task = self._units.get(waiting[0])
            if task is not None and task.stage is stage and task.awaiting is SwitchAction.NONE:
                return task
            heapq.heappop(waiting)
        return None

    def _offer(self, task: LedgerTask) -> None:
        if task.awaiting is SwitchAction.NONE:
            heapq.heappush(self._ready.setdefault(task.stage, []), task.ledger_id)


class Transition:
    """A state on its way to the next one, and what is said meanwhile."""

    def __init__(self, state: SwitchingState, limits: SwitchLimits, now_ms: int) -> None:
        self.state = state
        self.limits = limits
        self.now_ms = now_ms
        self.said: list[DecisionDraft] = []
        self.plan = LedgerPlan(state.switch.tasks if state.switch else ())
        self._journal = {(i.target, i.ledger_id, i.remap): i for i in state.journal}
        self._journalled = False

    # --- the state

    def update(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    @property
    def switch(self) -> Switch:
        """The switch; there must be one."""
        assert self.state.switch is not None  # noqa: S101 - callers have asked
        return self.state.switch

    def set_switch(self, **changes: Any) -> None:
        """Change fields of the switch."""
        self.update(switch=replace(self.switch, **changes))

    def begin(self, switch: Switch) -> None:
        """A new switch takes the place of the old one."""
        self.update(switch=switch)
        self.plan = LedgerPlan(switch.tasks)

    def advance(self, stage: SwitchStage, reason: SwitchReason, sentence: str, **changes: Any) -> None:
        """Move the switch to another stage, and say so."""
        self.set_switch(stage=stage, **changes)
        self.say(SwitchVerdict.ADVANCE, reason, sentence)

    def next_op(self) -> int:
        """The number of the next order; none is ever used twice, so an answer fits one order only."""
        self.update(ops=self.state.ops + 1)
        return self.state.ops

    def settle_plan(self) -> None:
        """Keep of a switch that is done how many ledgers stand where: a plan of 100,000 weighs 8 MB in each batch.

        What was copied is the target's own from now on: without its intent nobody takes it for a copy to delete.
        """
        instance = self.instance(self.switch.target)
        self.set_switch(settled=dict(sorted(Counter(u.stage for u in self.plan).items())))
        self.plan = LedgerPlan(())
        self.plan.changed = True
        self._journal = {key: intent for key, intent in self._journal.items() if key[0] != instance}
        self._journalled = True

    def count(self, what: str) -> None:
        """Something was heard that changes nothing."""
        counts = self.state.counts
        self.update(counts=replace(counts, **{what: getattr(counts, what) + 1}))

    def folded(self) -> SwitchingState:
        """The state with plan and journal folded back."""
        if self._journalled:
            self.update(journal=tuple(self._journal[k] for k in sorted(self._journal)))
        if self.state.switch is not None and self.plan.changed:
            self.set_switch(tasks=tuple(self.plan))
        return self.state

    def instance(self, name: str) -> str | None:
        """What a named cluster is."""
        seen = self.state.cluster(name)
        return seen.instance_id if seen else None

    # --- the journal

    def intent(self, task: LedgerTask) -> CopyIntent | None:
        """The journalled intent to create a ledger's copy in the switch's target, the way it is planned now."""
        return self._journal.get((self.instance(self.switch.target) or "", task.ledger_id, task.remap))

    def journal(self, task: LedgerTask) -> None:
        """Note the intent to create a ledger, before anyone creates it; an older one of the same copy stands."""
        source, target = self.instance(self.switch.source), self.instance(self.switch.target)
        known = self.intent(task)
        if source is None or target is None or (known and known.source == source):
            return
        intent = CopyIntent(task.ledger_id, source, target, self.now_ms, task.remap)
        self._journal[(target, task.ledger_id, task.remap)] = intent
        self._journalled = True

    def forget_intent(self, task: LedgerTask) -> None:
        """Our copy is gone: whatever appears under its id from now on is not ours."""
        self._journal.pop((self.instance(self.switch.target) or "", task.ledger_id, task.remap), None)
        self._journalled = True

    # --- saying

    def say(self, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, **more: Any) -> None:
        """Say something of the switch."""
        self.said.append(DecisionDraft(verdict, reason, sentence, **more))

    def reject(self, code: RejectCode, sentence: str, subject: str = "") -> None:
        """Say why nothing is done."""
        self.count("rejected")
        self.say(SwitchVerdict.REJECT, SwitchReason.REJECTED, sentence, subject=subject, code=code)

    def say_of(
        self, task: LedgerTask, verdict: SwitchVerdict, reason: SwitchReason, sentence: str, **more: Any
    ) -> None:
        """Say something of a ledger."""
        self.say(verdict, reason, sentence, subject=f"ledgers/{task.ledger_id}", task=task, op=task.op, **more)
