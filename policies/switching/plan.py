"""The ledgers of a switch's plan by key, and the progress of a switch beside the registry."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush

from msgspec.structs import replace

from policies.switching.ledgers import LedgerKind
from policies.switching.state import (
    ENDED,
    NEVER,
    Directive,
    LedgerStage,
    LedgerTask,
    Switch,
    SwitchAction,
    SwitchProgress,
    SwitchStage,
    plan_key,
)
from policies.units import InstantMs


class LedgerPlan:
    """The ledgers of a switch by key. A ledger named by a cursor and by a schema has a task for each."""

    def __init__(self, tasks: Iterable[LedgerTask] = ()) -> None:
        self._tasks = {plan_key(task.ledger_id, task.kind): task for task in tasks}
        self._counts = Counter((task.stage, task.awaiting) for task in self._tasks.values())
        self._sorted: list[int] | None = sorted(self._tasks)
        """The keys in order; None: a ledger came or went since they were sorted."""
        self._idle: dict[LedgerStage, list[int]] = {}
        """A heap by stage of the keys of ledgers without an open order. Keys may be stale."""
        for key in self._sorted:
            task = self._tasks[key]
            if task.awaiting is SwitchAction.NONE:
                self._idle.setdefault(task.stage, []).append(key)  # a sorted list is a heap
        self.touched: set[int] = set()
        self.changed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[LedgerTask]:
        """Return all ledgers in the order of their keys."""
        return (self._tasks[key] for key in self._keys())

    def at(self, *stages: LedgerStage) -> Iterator[LedgerTask]:
        """Return the ledgers at these stages in the order of their keys."""
        return (task for task in self if task.stage in stages) if self.count(*stages) else iter(())

    def get(self, key: int) -> LedgerTask | None:
        """Return a ledger of the plan by `LedgerTask.key`."""
        return self._tasks.get(key)

    def tasks_of(self, ledger_id: int) -> tuple[LedgerTask, ...]:
        """Return the tasks of a ledger: for a cursor, for a schema, or for both."""
        found = (self.get(plan_key(ledger_id, kind)) for kind in LedgerKind)
        return tuple(task for task in found if task is not None)

    def place(self, key: int) -> int:
        """Return the place of a ledger in the plan, from 1 on."""
        return bisect_left(self._keys(), key) + 1

    def put(self, task: LedgerTask) -> None:
        """Insert or replace a ledger."""
        known = self._tasks.get(task.key)
        if known is None:
            self._sorted = None
        else:
            self._counts[known.stage, known.awaiting] -= 1
        self._tasks[task.key] = task
        self._counts[task.stage, task.awaiting] += 1
        self.touched.add(task.key)
        self.changed = True
        if task.awaiting is SwitchAction.NONE:
            heappush(self._idle.setdefault(task.stage, []), task.key)

    def drop(self, key: int) -> None:
        """Remove a ledger."""
        known = self._tasks.pop(key, None)
        if known is not None:
            self._counts[known.stage, known.awaiting] -= 1
            self._sorted, self.changed = None, True

    def count(self, *stages: LedgerStage) -> int:
        """Count the ledgers at these stages."""
        return sum(n for (stage, _), n in self._counts.items() if stage in stages)

    def count_unfinished(self, *stages: LedgerStage) -> int:
        """Count the ledgers at these stages that are not given up."""
        return sum(n for (s, a), n in self._counts.items() if s in stages and a is not SwitchAction.GIVEN_UP)

    def count_ordered(self, *actions: SwitchAction) -> int:
        """Count the ledgers that wait for one of these actions."""
        return sum(n for (_, action), n in self._counts.items() if action in actions)

    def idle(self, most: int, *stages: LedgerStage) -> list[LedgerTask]:
        """Return at most `most` ledgers without an open order: stage after stage, by ascending id.

        So the order in which results arrive does not matter.
        """
        found: list[LedgerTask] = []
        for stage in stages:
            found += self._take_least(stage, most - len(found))
        return found

    def _keys(self) -> list[int]:
        if self._sorted is None:
            self._sorted = sorted(self._tasks)
        return self._sorted

    def _take_least(self, stage: LedgerStage, most: int) -> list[LedgerTask]:
        heap, found = self._idle.get(stage, []), dict[int, LedgerTask]()
        while heap and len(found) < most:
            task = self.get(heappop(heap))
            if task is not None and task.stage is stage and task.awaiting is SwitchAction.NONE:
                found[task.key] = task
        for key in found:
            heappush(heap, key)
        return list(found.values())


def load_plan(switch: Switch | None) -> LedgerPlan:
    """Return the plan of a switch."""
    return LedgerPlan(switch.tasks) if switch is not None else LedgerPlan()


def stage_counts(switch: Switch) -> Mapping[LedgerStage, int]:
    """Count a switch's ledgers by stage. Of a switch that is over, only these counts are kept."""
    return switch.ledgers or Counter(task.stage for task in switch.tasks)


# The progress of a switch beside the registry, from which a switch goes on after a lost checkpoint.
#
# The executor writes it from the record. The ledgers of the plan are not part of it: an inventory shows them, and the
# executor's journal shows which of the target's ledgers are Headgate's copies.

_FIELDS = tuple(name for name in SwitchProgress.__struct_fields__ if name not in ("ledgers", "commanded_ms"))
_PLANNED_AGAIN = frozenset({SwitchStage.BUILD, SwitchStage.PROMOTE})
_OVER = frozenset({SwitchStage.REJECTED, SwitchStage.DONE, SwitchStage.ROLLED_BACK})
"""Stages at which nothing depends on the plan any more, except copies that are to be deleted: these stay."""


def make_progress(switch: Switch, commanded_ms: InstantMs = NEVER) -> SwitchProgress:
    """Return the progress of a switch, with the time of the last command that was judged."""
    fields = {name: getattr(switch, name) for name in _FIELDS}
    return SwitchProgress(ledgers=dict(stage_counts(switch)), commanded_ms=commanded_ms, **fields)


def take_up(progress: SwitchProgress | None, directive: Directive | None, read_ms: InstantMs) -> Switch | None:
    """Return the switch to go on with; None if the directive in force is not one of this switch.

    Nothing is ordered before an inventory has shown the plan. The copies of a switch that was at `build` or `promote`
    are planned again. A clean-up goes back to `hold`, because each deletion needs a command from now on.

    The executor writes the directive before the progress, so it may be later. It is earlier if its order was lost,
    because the executor lost its lease: once brokers were directed to the target, another one follows.
    """
    if progress is None or directive is None:
        return None
    switch = Switch(**{name: getattr(progress, name) for name in _FIELDS})
    if directive.epoch < progress.epoch:
        if switch.stage is SwitchStage.TRIGGERED or directive.target != switch.target:
            return None
    elif directive.epoch > progress.epoch:
        if switch.stage in ENDED or directive.target != switch.home:
            return None
        switch = replace(switch, stage=SwitchStage.ROLLBACK, attribution_only=False, epoch=directive.epoch)
    if switch.stage in _PLANNED_AGAIN:
        switch = replace(switch, stage=SwitchStage.LIVE_DUAL_READ)
    elif switch.stage is SwitchStage.CLEANUP and not switch.kept:
        switch = replace(switch, stage=SwitchStage.HOLD)
    if switch.stage is SwitchStage.TRIGGERED:
        return switch
    if switch.stage in _OVER:
        return replace(switch, ledgers=dict(sorted(progress.ledgers.items())))
    return replace(switch, confirm_ms=NEVER, recovering_ms=read_ms)
