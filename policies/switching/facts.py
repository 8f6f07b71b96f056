"""The read models of one broker cluster joined as of now: all that the judge and the alerts may look at.

No other module joins read models. Nothing is decided or written here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from policies.switching.id_generators import IdGenerator
from policies.switching.id_marks import IdMark, marked
from policies.switching.ledgers import CopyIntent
from policies.switching.plan import LedgerPlan
from policies.switching.precheck.snapshot import id_floor
from policies.switching.references import ANY_CLUSTER, Reference, owner_of
from policies.switching.settings import SwitchLimits
from policies.switching.state import (
    FAILED,
    BrokerReport,
    ClusterStatus,
    JournalKey,
    LedgerTask,
    Switch,
    SwitchAction,
    SwitchingState,
    SwitchStage,
)


class Intents(Protocol):
    """The journal of copies, by key."""

    def get(self, key: JournalKey, /) -> CopyIntent | None:
        """An intent; None where there is none."""
        ...

    def since(self, first: JournalKey, /) -> Iterator[CopyIntent]:
        """Those from a key on, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """What is known now. `plan` and `journal` are the present ones: a judge ends before they change."""

    state: SwitchingState
    plan: LedgerPlan
    journal: Intents
    limits: SwitchLimits
    now_ms: int

    # --- the switch

    @property
    def switch(self) -> Switch:
        """The last switch; there must be one."""
        assert self.state.switch is not None  # noqa: S101 - callers have asked
        return self.state.switch

    def stage(self, target: str) -> SwitchStage:
        """Where the switch to a target stands now."""
        return self.state.stage(target, self.now_ms)

    @property
    def stands_still(self) -> str:
        """Why nothing may be ordered until a person decides; empty when it may."""
        switch, contested = self.state.switch, self.state.contested
        if contested:
            return f"the registry is contested: {contested}"
        if switch is None:
            return ""
        return f"it halts: {switch.halted}" if switch.halted else "it is paused" if switch.paused else ""

    @property
    def left_behind(self) -> int:
        """How many ledgers stay in the source until somebody drives the switch on."""
        return self.plan.count(*FAILED) + self.plan.asked(SwitchAction.GIVEN_UP)

    # --- clusters

    def instance(self, name: str) -> str | None:
        """What a named cluster is."""
        seen = self.state.cluster(name)
        return seen.instance_id if seen else None

    @property
    def source_instance(self) -> str:
        """What the switch's source is; empty: not known."""
        return self.instance(self.switch.source) or ""

    @property
    def target_instance(self) -> str:
        """What the switch's target is; empty: not known."""
        return self.instance(self.switch.target) or ""

    def cluster_read_ms(self, name: str) -> int:
        """When a cluster was last read; -1: never."""
        seen = self.state.cluster(name)
        return seen.read_ms if seen else -1

    def generator(self, name: str) -> IdGenerator | None:
        """A cluster's id generator as last read."""
        seen = self.state.cluster(name)
        return seen.generator if seen else None

    def next_id(self, name: str) -> int:
        """The id a cluster gives next; -1: not known."""
        generator = self.generator(name)
        return generator.next_id if generator else -1

    def gave_beyond(self, name: str) -> int:
        """The greatest id that a cluster gave although it gives a lower one next; -1: its ids only grew."""
        instance, generator = self.instance(name), self.generator(name)
        given = max((m.given for m in self.state.marks if m.instance == instance), default=-1)
        return given if generator is not None and given >= generator.next_id else -1

    def deleted_ids(self, instance: str | None) -> tuple[int, ...]:
        """What was deleted from a cluster, sorted."""
        return next((d.ids for d in self.state.deleted if d.instance == instance), ())

    def floor_of_ids(self, source: IdGenerator, target: str) -> int:
        """What a target's next ids must lie beyond: all the source may give, and all named or deleted there."""
        return id_floor(source, self._greatest_ids(target))

    def _greatest_ids(self, target: str) -> Iterator[int]:
        """Referenced now, at the target's precheck, or deleted from it."""
        yield from (known.greatest_id for known in (self.state.inventory, self.state.check(target)) if known)
        yield from self.deleted_ids(self.instance(target))[-1:]

    # --- ids over all switches

    def written_elsewhere(self, target: str) -> Iterator[IdMark]:
        """All clusters but this one that brokers of this fleet may ever have written to."""
        instance, marks = self.instance(target), {m.instance: m for m in self.state.marks}
        for name in sorted(self._sent_to()):
            if (seen := self.state.cluster(name)) is not None and seen.instance_id and seen.instance_id not in marks:
                marks |= {m.instance: m for m in marked((), seen)}
        yield from (m for m in marks.values() if m.instance != instance and (m.written or m.name in self._sent_to()))

    def _sent_to(self) -> set[str]:
        """By the registry and the directives alone."""
        state, switch = self.state, self.state.switch
        names = {e.name for e in state.entries if e.status is not ClusterStatus.STANDBY}
        names |= {d.target for d in (state.directive, state.contested_by) if d is not None}
        return names | ({switch.source, switch.target} if switch else set())

    def may_have_given(self, mark: IdMark) -> int:
        """The greatest id it gave or may give: all of its ``HOB``, unless every broker is known to have left it."""
        seen = self.state.cluster(mark.name)
        if seen is None or seen.generator is None or seen.instance_id != mark.instance or not self._is_left(mark.name):
            return mark.ceiling
        given = max(mark.given, seen.generator.next_id - 1)
        return given if given >= mark.floor else -1

    def _is_left(self, name: str) -> bool:
        """Every live broker follows a directive that leads elsewhere, and its ids were read since the last moved."""
        directive, seen = self.state.directive, self.state.cluster(name)
        brokers = self.live_brokers(self.state.directed_ms)
        reports = [self.report(b) for b in brokers]
        if directive is None or directive.target == name or seen is None or not brokers:
            return False
        return all(
            r is not None and r.acked_epoch == directive.epoch and name not in r.writes and seen.read_ms > moved_ms(r)
            for r in reports
        )

    # --- brokers

    def live_brokers(self, since_ms: int) -> tuple[str, ...]:
        """The brokers that are alive, as read at or after an instant; empty: not known."""
        members = self.state.members
        return members.brokers if members and members.at_ms >= since_ms else ()

    def report(self, broker: str) -> BrokerReport | None:
        """What a broker last said of itself."""
        return next((b for b in self.state.brokers if b.name == broker), None)

    def has_acked(self, broker: str) -> bool:
        """Whether a broker follows the switch's directive."""
        report = self.report(broker)
        return report is not None and report.acked_epoch == self.switch.epoch

    @property
    def acked(self) -> tuple[BrokerReport, ...]:
        """The brokers that follow the switch's directive."""
        return tuple(b for b in self.state.brokers if b.acked_epoch == self.switch.epoch)

    # --- references and ledgers

    def count_named(self, name: str) -> int:
        """How many references name ledgers of a cluster, by the last inventory: also those that may be of any.

        A cluster that is only registered, and that brokers were never sent to, holds none of the latter.
        """
        if self.state.inventory is None:
            return 0
        counts, entry = self.state.inventory.counts, self.state.entry(name)
        last = self.state.switch
        unused = entry is not None and entry.status is ClusterStatus.STANDBY
        unused = unused and name != self.state.bootstrap and (last is None or name not in (last.source, last.target))
        return counts.get(name, 0) + (0 if unused else counts.get(ANY_CLUSTER, 0))

    def owner(self, reference: Reference) -> str | None:
        """The cluster that holds a reference's ledger."""
        return owner_of(reference, self.state.bootstrap)

    def intent(self, task: LedgerTask) -> CopyIntent | None:
        """The journalled intent to create a ledger's copy in the switch's target, the way it is planned now."""
        return self.journal.get((self.target_instance, task.ledger_id, task.remap))

    def intent_to_copy(self, task: LedgerTask) -> CopyIntent | None:
        """The intent as it is once it is journalled now: an older one of the same copy stands."""
        known, source, target = self.intent(task), self.instance(self.switch.source), self.instance(self.switch.target)
        if source is None or target is None or (known and known.source == source):
            return known
        return CopyIntent(task.ledger_id, source, target, self.now_ms, task.remap)

    @property
    def inventory_is_old(self) -> bool:
        """Whether there is no inventory since the clean-up began."""
        return self.state.inventory is None or self.state.inventory.at_ms <= self.switch.cleanup_ms

    @property
    def awaits_what_was_unplanned(self) -> bool:
        """Whether a switch that was driven on has no inventory since: it may show what nobody planned for."""
        inventory, switch = self.state.inventory, self.switch
        return switch.attempt > 1 and (inventory is None or inventory.at_ms <= switch.stage_ms)

    @property
    def rollback_is_unconfirmed(self) -> bool:
        """Whether no inventory was begun since the last reference was taken back."""
        return self.state.inventory is None or self.state.inventory.at_ms <= self.switch.confirm_ms


def moved_ms(report: BrokerReport) -> int:
    """Until when a broker may have written elsewhere than it says: of its ack, or of a later lapse."""
    return max(report.since_ms if report.since_ms >= 0 else report.at_ms, report.strayed_ms)
