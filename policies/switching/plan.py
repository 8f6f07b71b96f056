"""The ledgers of a switch's plan, decoded during a step only as far as the step touches them.

A plan of 100,000 ledgers is kept in blocks, so a step costs what it changes and not the size of the plan.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from policies.switching.blocks import BlockMap, tags_of
from policies.switching.references import LedgerKind
from policies.switching.state import LedgerStage, LedgerTask, PlanBlock, PlanTag, Switch, SwitchAction, key_of


def _key_of(task: LedgerTask) -> int:
    return task.key


def _tag_of(task: LedgerTask) -> PlanTag:
    return task.stage, task.awaiting


class LedgerPlan:
    """The ledgers of a switch, by id; one that a cursor and a schema name is there for each of them.

    Args:
        tasks: of a plan of few ledgers.
        blocks: of a plan of many.
    """

    def __init__(self, tasks: Iterable[LedgerTask] = (), blocks: Iterable[PlanBlock] = ()) -> None:
        packed = tuple(blocks)
        self._tasks = BlockMap(LedgerTask, _key_of, _tag_of, blocks=packed, opened=self._offer)
        self._counts = Counter(tags_of(packed))
        self._idle: dict[LedgerStage, list[tuple[int, bool]]] = {}
        """By stage the least keys: of ledgers, and (True) of blocks in which there are some; stale ones among them."""
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
        """A ledger of the plan, by `LedgerTask.key`."""
        return self._tasks.get(key)

    def of(self, ledger_id: int) -> tuple[LedgerTask, ...]:
        """What is planned of a ledger: for a cursor, for a schema, or for both."""
        found = (self._tasks.get(key_of(ledger_id, kind)) for kind in LedgerKind)
        return tuple(task for task in found if task is not None)

    def place(self, key: int) -> int:
        """The place of a ledger in the order of the plan, from 1 on."""
        return self._tasks.rank(key) + 1

    def put(self, task: LedgerTask) -> None:
        """Put a ledger in, or in place of what was known of it."""
        known = self._tasks.put(task)
        self._count(known, -1)
        self._count(task, 1)
        self.touched.add(task.key)
        self.changed = True
        self._offer(task)

    def drop(self, key: int) -> None:
        """Take a ledger out."""
        self._count(self._tasks.drop(key), -1)
        self.changed = True

    def count(self, *stages: LedgerStage) -> int:
        """How many ledgers are at one of these stages."""
        return sum(n for (stage, _), n in self._counts.items() if stage in stages)

    def unfinished(self, *stages: LedgerStage) -> int:
        """How many at one of these stages are not given up."""
        return sum(n for (s, a), n in self._counts.items() if s in stages and a is not SwitchAction.GIVEN_UP)

    def asked(self, *actions: SwitchAction) -> int:
        """Of how many ledgers one of these is asked."""
        return sum(n for (_, action), n in self._counts.items() if action in actions)

    def idle(self, most: int, *stages: LedgerStage) -> list[LedgerTask]:
        """Ledgers of which nothing is asked, at most so many: stage after stage, those of least id first.

        So the order in which results come is no matter.
        """
        found: list[LedgerTask] = []
        for stage in stages:
            found += self._least(stage, most - len(found))
        return found

    def packed(self) -> dict[str, object]:
        """The plan as a switch keeps it: the fields' values."""
        tasks, blocks = self._tasks.packed()
        return {"tasks": tasks, "blocks": blocks}

    def _least(self, stage: LedgerStage, most: int) -> list[LedgerTask]:
        heap = self._idle.get(stage, [])
        found: dict[int, LedgerTask] = {}
        while heap and len(found) < most:
            key, is_block = heapq.heappop(heap)
            if is_block:
                self._tasks.spread_out(key)  # which offers what is in it
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
            self._counts[_tag_of(task)] += step


def plan_of(switch: Switch | None) -> LedgerPlan:
    """The plan of a switch, to be spread out."""
    return LedgerPlan(switch.tasks, switch.blocks) if switch is not None else LedgerPlan()


def stage_counts(switch: Switch) -> Mapping[LedgerStage, int]:
    """How many ledgers stand where; of a switch that is done nothing else is known."""
    if switch.settled:
        return switch.settled
    counts = Counter(task.stage for task in switch.tasks)
    for (stage, _), count in tags_of(switch.blocks).items():
        counts[stage] += count
    return counts
