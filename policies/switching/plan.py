"""The ledgers of a switch's plan, of which a step decodes only those that it touches.

A plan of 100,000 ledgers is stored in blocks, so the cost of a step depends on its changes and not on the plan's size.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from policies.switching.blocks import BlockMap, count_tags
from policies.switching.references import LedgerKind
from policies.switching.state import LedgerStage, LedgerTask, PlanBlock, Switch, SwitchAction, plan_key


class LedgerPlan:
    """The ledgers of a switch by id. A ledger named by a cursor and by a schema has a task for each.

    Args:
        tasks: the ledgers of a small plan.
        blocks: the ledgers of a large plan.
    """

    def __init__(self, tasks: Iterable[LedgerTask] = (), blocks: Iterable[PlanBlock] = ()) -> None:
        packed = tuple(blocks)
        self._tasks = BlockMap(
            LedgerTask, lambda t: t.key, lambda t: (t.stage, t.awaiting), blocks=packed, opened=self._offer
        )  # fmt: skip
        self._counts = Counter(count_tags(packed))
        self._idle: dict[LedgerStage, list[tuple[int, bool]]] = {}
        """A heap by stage: keys of ledgers, and (True) first keys of blocks that contain some. Keys may be stale."""
        for block in packed:
            for stage in {stage for (stage, awaiting), _ in block.tags if awaiting is SwitchAction.NONE}:
                heapq.heappush(self._idle.setdefault(stage, []), (block.first, True))
        self.touched: set[int] = set()
        for task in tasks:
            self.put(task)
        self.touched, self.changed = set(), False

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[LedgerTask]:
        return iter(self._tasks)

    def get(self, key: int) -> LedgerTask | None:
        """Return a ledger of the plan by `LedgerTask.key`."""
        return self._tasks.get(key)

    def tasks_of(self, ledger_id: int) -> tuple[LedgerTask, ...]:
        """Return the tasks of a ledger: for a cursor, for a schema, or for both."""
        found = (self._tasks.get(plan_key(ledger_id, kind)) for kind in LedgerKind)
        return tuple(task for task in found if task is not None)

    def place(self, key: int) -> int:
        """Return the place of a ledger in the plan, from 1 on."""
        return self._tasks.rank(key) + 1

    def put(self, task: LedgerTask) -> None:
        """Insert or replace a ledger."""
        known = self._tasks.put(task)
        self._count(known, -1)
        self._count(task, 1)
        self.touched.add(task.key)
        self.changed = True
        self._offer(task)

    def drop(self, key: int) -> None:
        """Remove a ledger."""
        self._count(self._tasks.drop(key), -1)
        self.changed = True

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

    def packed(self) -> dict[str, object]:
        """Return the fields of the switch that store the plan."""
        tasks, blocks = self._tasks.packed()
        return {"tasks": tasks, "blocks": blocks}

    def _take_least(self, stage: LedgerStage, most: int) -> list[LedgerTask]:
        heap = self._idle.get(stage, [])
        found: dict[int, LedgerTask] = {}
        while heap and len(found) < most:
            key, is_block = heapq.heappop(heap)
            if is_block:
                self._tasks.decode_block(key)  # this offers its ledgers
                continue
            task = self._tasks.get(key)
            if task is not None and task.stage is stage and task.awaiting is SwitchAction.NONE:
                found[key] = task
        for key in found:
            heapq.heappush(heap, (key, False))
        return list(found.values())

    def _offer(self, task: LedgerTask) -> None:
        if task.awaiting is SwitchAction.NONE:
            heapq.heappush(self._idle.setdefault(task.stage, []), (task.key, False))

    def _count(self, task: LedgerTask | None, step: int) -> None:
        if task is not None:
            self._counts[task.stage, task.awaiting] += step


def load_plan(switch: Switch | None) -> LedgerPlan:
    """Return the plan of a switch."""
    return LedgerPlan(switch.tasks, switch.blocks) if switch is not None else LedgerPlan()


def stage_counts(switch: Switch) -> Mapping[LedgerStage, int]:
    """Count a switch's ledgers by stage. Of a switch that is over, only these counts are kept."""
    if switch.settled:
        return switch.settled
    counts = Counter(task.stage for task in switch.tasks)
    for (stage, _), count in count_tags(switch.blocks).items():
        counts[stage] += count
    return counts
