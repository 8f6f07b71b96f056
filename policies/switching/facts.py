"""The read models of one broker cluster joined, as of now: all that the judge and the alerts may ask.

The only place that looks at several read models. Nothing here decides, and nothing is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from policies.switching.id_generators import IdGenerator
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

    def generator(self, name: str) -> IdGenerator | None:
        """A cluster's id generator as last read."""
        seen = self.state.cluster(name)
        return seen.generator if seen else None

    def next_id(self, name: str) -> int:
        """The id a cluster gives next; -1: not known."""
        generator = self.generator(name)
        return generator.next_id if generator else -1

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
