"""The ledgers of a switch's plan, spread out while a step is under way.

A batch may hold many results about a plan of 100,000 ledgers, so the plan is spread out once per step, counted as it
changes, and packed again at the end.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator

from policies.switching.state import LedgerStage, LedgerTask, SwitchAction


class LedgerPlan:
    """The ledgers of a switch, by id."""

    def __init__(self, tasks: Iterable[LedgerTask]) -> None:
        self._tasks = {t.ledger_id: t for t in tasks}
        self._counts = Counter((t.stage, t.awaiting) for t in self._tasks.values())
        self._idle: dict[LedgerStage, list[int]] = {}
        for task in self:
            self._offer(task)
        self.touched: set[int] = set()
        self.changed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[LedgerTask]:
        return (self._tasks[i] for i in sorted(self._tasks))

    def get(self, ledger_id: int) -> LedgerTask | None:
        """A ledger of the plan."""
        return self._tasks.get(ledger_id)

    def put(self, task: LedgerTask) -> None:
        """Put a ledger in, or in place of what was known of it."""
        self.drop(task.ledger_id)
        self._tasks[task.ledger_id] = task
        self._counts[(task.stage, task.awaiting)] += 1
        self.touched.add(task.ledger_id)
        self._offer(task)

    def drop(self, ledger_id: int) -> None:
        """Take a ledger out."""
        known = self._tasks.pop(ledger_id, None)
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

    def idle(self, most: int, *stages: LedgerStage) -> list[LedgerTask]:
        """Ledgers of which nothing is asked, at most so many: stage after stage, those of least id first.

        So the order in which results come is no matter.
        """
        found: list[LedgerTask] = []
        for stage in stages:
            found += self._least(stage, most - len(found))
        return found

    def _least(self, stage: LedgerStage, most: int) -> list[LedgerTask]:
        ids = self._idle.get(stage, [])
        found: dict[int, LedgerTask] = {}
        while ids and len(found) < most:
            ledger_id = heapq.heappop(ids)
            task = self._tasks.get(ledger_id)
            if task is not None and task.stage is stage and task.awaiting is SwitchAction.NONE:
                found[ledger_id] = task
        for ledger_id in found:
            heapq.heappush(ids, ledger_id)
        return list(found.values())

    def _offer(self, task: LedgerTask) -> None:
        if task.awaiting is SwitchAction.NONE:
            heapq.heappush(self._idle.setdefault(task.stage, []), task.ledger_id)
