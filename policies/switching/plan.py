"""The ledgers of a switch's plan, of which a step decodes only those that it touches.

A plan of 100,000 ledgers takes 12 MB. Decoding and encoding all of it in each batch would cost half a second, so it is
stored in encoded blocks, and the cost of a step depends on its changes and not on the plan's size.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from policies.switching.ledgers import LedgerKind
from policies.switching.readings import SwitchProgress
from policies.switching.state import (
    ENDED,
    NEVER,
    Directive,
    LedgerStage,
    LedgerTask,
    PlanBlock,
    Switch,
    SwitchAction,
    SwitchStage,
    plan_key,
)
from policies.units import InstantMs

BLOCK_SIZE = 256
"""The number of ledgers in a new block; decoding and encoding one block costs 0.2 ms."""

_DECODER = msgspec.msgpack.Decoder(list[LedgerTask])


class LedgerPlan:
    """The ledgers of a switch by id. A ledger named by a cursor and by a schema has a task for each.

    Args:
        tasks: the ledgers of a small plan.
        blocks: the ledgers of a large plan.
    """

    def __init__(self, tasks: Iterable[LedgerTask] = (), blocks: Iterable[PlanBlock] = ()) -> None:
        self._blocks = list(blocks)
        self._firsts = [block.first for block in self._blocks]
        self._decoded: dict[int, dict[int, LedgerTask]] = {}
        """The ledgers of a block by its place, once one of them was needed."""
        self._changed: set[int] = set()
        self._sorted: dict[int, list[int]] = {}
        """The sorted keys of a block, once needed: a new plan is at first one block of all its ledgers."""
        self._ranks: list[int] | None = None
        """The number of ledgers before each block; None: not counted."""
        self._counts = Counter(_count_tags(self._blocks))
        self._idle: dict[LedgerStage, list[tuple[int, bool]]] = {}
        """A heap by stage: keys of ledgers, and (True) first keys of blocks that contain some. Keys may be stale."""
        for block in self._blocks:
            for stage in {stage for (stage, awaiting), _ in block.tags if awaiting is SwitchAction.NONE}:
                heapq.heappush(self._idle.setdefault(stage, []), (block.first, True))
        self.touched: set[int] = set()
        for task in tasks:
            self.put(task)
        self.touched, self.changed = set(), False

    def __len__(self) -> int:
        return self._counts.total()

    def __iter__(self) -> Iterator[LedgerTask]:
        """Return all ledgers in the order of their keys."""
        for place in range(max(1, len(self._blocks))):
            inside = self._decode(place)
            yield from (inside[key] for key in sorted(inside))

    def at(self, *stages: LedgerStage) -> Iterator[LedgerTask]:
        """Return the ledgers at these stages in the order of their keys; a block without one is not decoded."""
        for place, block in enumerate(self._blocks):
            if place in self._decoded or any(stage in stages for (stage, _), _ in block.tags):
                inside = self._decode(place)
                yield from (inside[key] for key in sorted(inside) if inside[key].stage in stages)
        if not self._blocks:
            yield from (task for task in self if task.stage in stages)

    def get(self, key: int) -> LedgerTask | None:
        """Return a ledger of the plan by `LedgerTask.key`."""
        return self._decode(self._find_block(key)).get(key)

    def tasks_of(self, ledger_id: int) -> tuple[LedgerTask, ...]:
        """Return the tasks of a ledger: for a cursor, for a schema, or for both."""
        found = (self.get(plan_key(ledger_id, kind)) for kind in LedgerKind)
        return tuple(task for task in found if task is not None)

    def place(self, key: int) -> int:
        """Return the place of a ledger in the plan, from 1 on."""
        block = self._find_block(key)
        if self._ranks is None:
            counts = (
                len(self._decoded[place]) if place in self._decoded else sum(count for _, count in known.tags)
                for place, known in enumerate(self._blocks)
            )
            self._ranks = [0, *accumulate(counts)]
        if block not in self._sorted:
            self._sorted[block] = sorted(self._decode(block))
        return self._ranks[block] + bisect_left(self._sorted[block], key) + 1

    def put(self, task: LedgerTask) -> None:
        """Insert or replace a ledger."""
        self._replace(task.key, task)
        self._counts[task.stage, task.awaiting] += 1
        self.touched.add(task.key)
        self._offer(task)

    def drop(self, key: int) -> None:
        """Remove a ledger."""
        self._replace(key, None)

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
        """Return the fields of the switch that store the plan: few ledgers loose, and many in blocks.

        Blocks that did not change stay as they are.
        """
        if len(self) <= BLOCK_SIZE:
            return {"tasks": tuple(self), "blocks": ()}
        blocks: list[PlanBlock] = []
        for place in range(max(1, len(self._blocks))):
            blocks += self._pack(place) if place in self._changed else self._blocks[place : place + 1]
        return {"tasks": (), "blocks": tuple(blocks)}

    def _pack(self, place: int) -> Iterator[PlanBlock]:
        inside = self._decoded[place]
        keys = sorted(inside)
        for start in range(0, len(keys), BLOCK_SIZE):
            some = [inside[key] for key in keys[start : start + BLOCK_SIZE]]
            tags = tuple(sorted(Counter((task.stage, task.awaiting) for task in some).items()))
            yield PlanBlock(keys[start], tags, msgspec.msgpack.encode(some))

    def _replace(self, key: int, task: LedgerTask | None) -> None:
        """Replace the ledger of a key, or remove it, and count the former one no longer."""
        place = self._find_block(key)
        inside = self._decode(place)
        known = inside.pop(key, None)
        if known is not None:
            self._counts[known.stage, known.awaiting] -= 1
        if task is not None:
            inside[key] = task
        if (known is None) != (task is None):
            self._ranks = None
            self._sorted.pop(place, None)
        self._changed.add(place)
        self.changed = True

    def _find_block(self, key: int) -> int:
        return max(0, bisect_right(self._firsts, key) - 1)

    def _decode(self, place: int) -> dict[int, LedgerTask]:
        inside = self._decoded.get(place)
        if inside is None:
            tasks = _DECODER.decode(self._blocks[place].packed) if place < len(self._blocks) else []
            inside = self._decoded[place] = {task.key: task for task in tasks}
            for task in tasks:
                self._offer(task)
        return inside

    def _take_least(self, stage: LedgerStage, most: int) -> list[LedgerTask]:
        heap = self._idle.get(stage, [])
        found: dict[int, LedgerTask] = {}
        while heap and len(found) < most:
            key, is_block = heapq.heappop(heap)
            if is_block:
                self._decode(self._find_block(key))  # this offers its ledgers
                continue
            task = self.get(key)
            if task is not None and task.stage is stage and task.awaiting is SwitchAction.NONE:
                found[key] = task
        for key in found:
            heapq.heappush(heap, (key, False))
        return list(found.values())

    def _offer(self, task: LedgerTask) -> None:
        if task.awaiting is SwitchAction.NONE:
            heapq.heappush(self._idle.setdefault(task.stage, []), (task.key, False))


def load_plan(switch: Switch | None) -> LedgerPlan:
    """Return the plan of a switch."""
    return LedgerPlan(switch.tasks, switch.blocks) if switch is not None else LedgerPlan()


def stage_counts(switch: Switch) -> Mapping[LedgerStage, int]:
    """Count a switch's ledgers by stage. Of a switch that is over, only these counts are kept."""
    if switch.settled:
        return switch.settled
    counts = Counter(task.stage for task in switch.tasks)
    for (stage, _), count in _count_tags(switch.blocks).items():
        counts[stage] += count
    return counts


def _count_tags(blocks: Iterable[PlanBlock]) -> Counter[tuple[LedgerStage, SwitchAction]]:
    counts: Counter[tuple[LedgerStage, SwitchAction]] = Counter()
    for block in blocks:
        counts.update(dict(block.tags))
    return counts


# The progress of a switch beside the registry, from which a switch goes on after a lost checkpoint.
#
# The executor writes it from the record. The ledgers of the plan are not part of it: an inventory shows them, and the
# executor's journal shows which of the target's ledgers are Headgate's copies.

_FIELDS = tuple(name for name in SwitchProgress.model_fields if name not in ("ledgers", "commanded_ms"))
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

    Args:
        progress: as read; None: there is none.
        directive: as read with it. The executor writes it before the progress, so it may be later. It is earlier if its
            order was lost, because the executor lost its lease: once brokers were directed to the target, another one
            follows.
        read_ms: when both were read.
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
        return replace(switch, settled=dict(sorted(progress.ledgers.items())))
    return replace(switch, confirm_ms=NEVER, recovering_ms=read_ms)
