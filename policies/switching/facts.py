"""The plan of a switch, and the read models of a broker cluster joined as of now: all that judge and alerts may use.

No other module joins read models. Nothing is decided here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from policies.switching.ledgers import (
    ANY_CLUSTER,
    ClusterSnapshot,
    IdGenerator,
    IdMark,
    LedgerKind,
    id_floor,
    raise_marks,
)
from policies.switching.settings import SwitchingSettings
from policies.switching.state import (
    FAILED,
    MOVING,
    BrokerReport,
    ClusterStatus,
    Directive,
    LedgerStage,
    LedgerTask,
    Switch,
    SwitchAction,
    SwitchingState,
    SwitchStage,
    plan_key,
)
from policies.units import name_some


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


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """The facts as of now. `plan` is a live object, so a judge ends before it changes."""

    state: SwitchingState
    plan: LedgerPlan
    limits: SwitchingSettings
    now_ms: int

    # --- the switch

    @property
    def switch(self) -> Switch:
        """The last switch. A caller must know that there is one."""
        assert self.state.switch is not None  # noqa: S101 - callers have asked
        return self.state.switch

    @property
    def stands_still(self) -> str:
        """Why nothing may be ordered until an operator acts; empty if it may."""
        switch, contested = self.state.switch, self.state.contested
        if contested:
            return f"the registry is contested: {contested}"
        if switch is None:
            return ""
        return f"it halts: {switch.halted}" if switch.halted else "it is paused" if switch.paused else ""

    @property
    def left_behind(self) -> int:
        """The number of ledgers that stay in the source until an operator drives the switch on."""
        return self.plan.count(*FAILED) + self.plan.count_ordered(SwitchAction.GIVEN_UP)

    # --- clusters

    def instance(self, name: str) -> str | None:
        """The instance id of a cluster."""
        seen = self.state.cluster(name)
        return seen.instance_id if seen else None

    @property
    def source_instance(self) -> str:
        """The instance id of the switch's source; empty if not known."""
        return self.instance(self.switch.source) or ""

    @property
    def target_instance(self) -> str:
        """The instance id of the switch's target; empty if not known."""
        return self.instance(self.switch.target) or ""

    def generator(self, name: str) -> IdGenerator | None:
        """A cluster's id generator as last read."""
        seen = self.state.cluster(name)
        return seen.generator if seen else None

    def gave_beyond(self, name: str) -> int:
        """The greatest id that a cluster gave although it gives a lower one next; -1: its ids only grew."""
        mark, generator = self.state.marks.get(self.instance(name) or ""), self.generator(name)
        given = mark.given if mark is not None else -1
        return given if generator is not None and given >= generator.next_id else -1

    def deleted_ids(self, instance: str | None) -> tuple[int, ...]:
        """The ids that were deleted from a cluster, sorted."""
        return self.state.deleted.get(instance or "", ())

    def floor_of_ids(self, source: IdGenerator, target: str) -> int:
        """The id beyond which a target's next id must lie: all that the source may give, all referenced or deleted."""
        greatest = [known.greatest_id for known in (self.state.inventory, self.state.check(target)) if known]
        return id_floor(source, [*greatest, *self.deleted_ids(self.instance(target))[-1:]])

    @property
    def needs_new_clients(self) -> bool:
        """Whether the cluster that brokers write to was advanced since they were directed there.

        Clients that are open then remember the lower ``HOB``, so brokers must be directed again to open new ones. They
        are not if row 7 sends them all back, because none has moved.
        """
        directive, switch = self.state.directive, self.state.switch
        seen = self.state.cluster(directive.target) if directive is not None else None
        if directive is None or seen is None or seen.raised_epoch < directive.epoch:
            return False
        return switch is None or directive.target == switch.home or not self.unreachable_before_moves

    # --- ids over all switches

    def written_elsewhere(self, target: str) -> Iterator[IdMark]:
        """Return the marks of all other clusters that brokers of this fleet may ever have written to."""
        instance, marks = self.instance(target), self.state.marks
        state, switch = self.state, self.state.switch
        sent_to = {e.name for e in state.entries if e.status is not ClusterStatus.STANDBY}
        sent_to |= {d.target for d in (state.directive, state.contested_by) if d is not None}
        sent_to |= {switch.source, switch.target} if switch else set()
        for name in sorted(sent_to):
            if (seen := state.cluster(name)) is not None and seen.instance_id and seen.instance_id not in marks:
                marks = raise_marks(marks, seen)
        yield from (m for m in marks.values() if m.instance != instance and (m.written or m.name in sent_to))

    def may_have_given(self, mark: IdMark) -> int:
        """The greatest id that a cluster gave or may give: all of its ``HOB``, unless every broker has left it."""
        seen = self.state.cluster(mark.name)
        if seen is None or seen.generator is None or seen.instance_id != mark.instance or not self._is_left(seen):
            return mark.ceiling
        given = max(mark.given, seen.generator.next_id - 1)
        return given if given >= mark.floor else -1

    def _is_left(self, seen: ClusterSnapshot) -> bool:
        """Whether every live broker follows a directive elsewhere, and the ids were read since the last one moved."""
        directive, brokers = self.state.directive, self.live_brokers
        if directive is None or directive.target == seen.name or not brokers or not self.is_since_directive(seen.epoch):
            return False
        left = {
            r.name for r in self.state.brokers
            if r.acked_epoch == directive.epoch and seen.name not in r.writes and seen.read_ms > moved_ms(r)
        }  # fmt: skip
        return left.issuperset(brokers)

    # --- brokers

    def is_since_directive(self, epoch: int) -> bool:
        """Whether a reading of this epoch was made after ZooKeeper had the directive in force."""
        return self.state.directive is None or epoch >= self.state.directive.epoch

    def is_recent(self, at_ms: int) -> bool:
        """Whether a report of a broker, of the live brokers or of a generator still counts."""
        return self.now_ms < at_ms + self.limits.ack_timeout_ms

    @property
    def live_brokers(self) -> tuple[str, ...]:
        """The live brokers, if they were read since the directive in force, and just now; else empty."""
        members = self.state.members
        is_known = members is not None and not members.is_unread and self.is_recent(members.at_ms)
        return members.brokers if members and is_known and self.is_since_directive(members.epoch) else ()

    @property
    def acked(self) -> tuple[BrokerReport, ...]:
        """The reports of the brokers that follow the switch's directive; silence is not following."""
        return tuple(b for b in self.state.brokers if b.acked_epoch == self.switch.epoch and self.is_recent(b.at_ms))

    @property
    def unreachable_before_moves(self) -> "tuple[Deviation, ...]":
        """The brokers that cannot make their client of the target, if no broker has followed: row 7 sends all back."""
        switch = self.state.switch
        if switch is None or switch.stage is not SwitchStage.TRIGGERED or switch.moved or self.acked:
            return ()
        return tuple(found for found in awaited(self) if found.cannot)

    # --- references and ledgers

    def count_named(self, name: str) -> int:
        """The number of references to a cluster's ledgers by the last inventory.

        References without a known cluster count for every cluster that may hold their ledgers. A cluster that is only
        registered, and that brokers were never sent to, holds none of them.
        """
        counts, entry = self.state.inventory.counts if self.state.inventory else {}, self.state.entry(name)
        last = self.state.switch
        sent_to = {self.state.bootstrap, *((last.source, last.target) if last is not None else ())}
        is_unused = entry is not None and entry.status is ClusterStatus.STANDBY and name not in sent_to
        return counts.get(name, 0) + (0 if is_unused else counts.get(ANY_CLUSTER, 0))

    def has_inventory_after(self, at_ms: int) -> bool:
        """Whether there is a complete inventory that was begun after an instant."""
        return self.state.inventory is not None and self.state.inventory.at_ms > at_ms

    @property
    def inventory_is_old(self) -> bool:
        """Whether there is no inventory since the clean-up began, or none since the directive in force."""
        inventory, since_ms = self.state.inventory, self.switch.cleanup_ms
        return inventory is None or inventory.at_ms <= since_ms or not self.is_since_directive(inventory.epoch)

    @property
    def awaits_unplanned(self) -> bool:
        """Whether a switch that was driven on has no inventory since, which may show unplanned references."""
        return self.state.inventory is None or self.state.inventory.attempt < self.switch.attempt

    @property
    def needs_inventory(self) -> bool:
        """Whether the switch cannot go on without an inventory that it does not have."""
        switch, stage = self.switch, self.switch.stage
        return (
            switch.recovering_ms >= 0
            or stage is SwitchStage.LIVE_DUAL_READ
            or (stage is SwitchStage.BUILD and self.awaits_unplanned)
            or (stage is SwitchStage.CLEANUP and self.inventory_is_old)
            or (
                stage is SwitchStage.ROLLBACK
                and switch.confirm_ms >= 0
                and not self.has_inventory_after(switch.confirm_ms)
            )
        )


def moved_ms(report: BrokerReport) -> int:
    """The last instant at which a broker may have written elsewhere than it reports: its ack, or a later lapse."""
    return max(report.since_ms, report.strayed_ms)


# Live brokers that deviate from the directive in force.
#
# Every live broker is watched in every stage: a broker that has not reported has not moved.

NEEDS_BROKERS = MOVING | {SwitchStage.TRIGGERED, SwitchStage.ROLLBACK}


@dataclass(frozen=True, slots=True)
class Deviation:
    """A live broker that does not follow the directive, or follows it and writes to another cluster."""

    broker: str
    why: str
    since_ms: int
    reported: bool
    """Whether the broker's own report shows it; else no report has arrived, which may pass."""
    follows: bool = False
    """Whether the broker acked the directive in force, and writes to another cluster all the same."""
    cannot: bool = False
    """Whether the broker reports that it cannot make its client of the cluster."""


def deviations(facts: SwitchFacts) -> Iterator[Deviation]:
    """Return deviations in the order of the brokers' names; none before the first directive.

    Silence is not consent: a live broker that sent no report for `ack_timeout` does not follow any more.
    """
    state, members, directive = facts.state, facts.state.members, facts.state.directive
    if members is None or directive is None:
        return
    reports = {report.name: report for report in state.brokers}
    for name, joined_ms in members.since_ms.items():
        report, since_ms = reports.get(name), max(state.directed_ms, joined_ms)
        if report is None or report.acked_epoch != directive.epoch:
            yield _describe_late(name, report, since_ms, directive.epoch)
        elif facts.is_recent(members.at_ms) and not facts.is_recent(report.at_ms):
            yield Deviation(name, "is not heard of", max(since_ms, report.at_ms), reported=False)
        elif why := _describe_client(report, directive, state.cluster(directive.target)):
            yield Deviation(name, why, max(since_ms, report.since_ms), reported=True)
        elif elsewhere := sorted(set(report.writes) - {directive.target}):
            why = f"writes to {', '.join(elsewhere)}"
            yield Deviation(name, why, max(since_ms, report.strayed_ms), reported=True, follows=True)


def _describe_client(report: BrokerReport, directive: Directive, target: ClusterSnapshot | None) -> str:
    """Describe a client that may remember a lower ``HOB``; empty if it was opened at the directive.

    An agent that does not report when it opened its client is believed only while the target was never advanced.
    """
    if report.client_epoch is None:
        if target is None or target.raised_epoch < 0:
            return ""
        return f"does not report when it opened its client of {directive.target}, which was advanced"
    if report.client_epoch >= directive.epoch:
        return ""
    return f"writes through a client that it opened at epoch {report.client_epoch}, before the directive"


def _describe_late(name: str, report: BrokerReport | None, since_ms: int, epoch: int) -> Deviation:
    if report is None:
        return Deviation(name, "is not heard of", since_ms, reported=False)
    reported, since_ms = report.at_ms > since_ms, max(since_ms, report.since_ms)
    if report.failed_epoch == epoch:
        return Deviation(name, "cannot reach its target", since_ms, reported=reported, cannot=True)
    follows = f"follows epoch {report.acked_epoch}" if report.acked_epoch >= 0 else "follows no directive"
    writes = f" and writes to {', '.join(report.writes)}" if report.writes else ""
    return Deviation(name, follows + writes, since_ms, reported=reported)


def awaited(facts: SwitchFacts) -> tuple[Deviation, ...]:
    """Return the brokers that have not acked the directive in force, or are silent."""
    return tuple(d for d in deviations(facts) if not d.follows)


def find_unknown_since_ms(facts: SwitchFacts) -> int | None:
    """Return since when it is unknown which brokers are alive, while a switch depends on that; None if it is known."""
    switch, members = facts.state.switch, facts.state.members
    if switch is None or switch.stage not in NEEDS_BROKERS:
        return None
    if members is None or (switch.stage is SwitchStage.TRIGGERED and members.at_ms <= switch.started_ms):
        return switch.started_ms
    if members.is_unread or not facts.is_recent(members.at_ms):
        return members.at_ms
    return None if members.brokers else max(switch.started_ms, facts.state.directed_ms)


def find_due_ms(facts: SwitchFacts) -> Iterator[int]:
    """Return the instants at which a broker or the list of brokers falls silent, or a lower ``HOB`` is at rest."""
    timeout_ms, members = facts.limits.ack_timeout_ms, facts.state.members
    yield from (cluster.lower_moved_ms + timeout_ms for cluster in facts.state.clusters)
    if facts.state.directive is not None and members is not None:
        yield members.at_ms + timeout_ms
        yield from (report.at_ms + timeout_ms for report in facts.state.brokers if report.name in members.brokers)


def describe_brokers(found: Sequence[Deviation]) -> str:
    """Name the first ten brokers with their deviations, and count the others."""
    return name_some([f"{d.broker} {d.why}" for d in found])
