"""Interfaces that the reconciler and the ledger orders depend on, each as narrow as they need."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from connectors.bookkeeper.copy_journal import CopyRecord
from connectors.bookkeeper.copy_outcomes import CopyResult, DeleteResult
from connectors.bookkeeper.ledgers import FoundLedgers
from connectors.switching.attribution import Attribution
from connectors.switching.lease import HeldLease
from connectors.switching.metrics import SwitchExecutorMetrics
from connectors.switching.registry_view import RegistryView
from connectors.switching.result_outbox import ResultOutbox
from connectors.switching.rollover import RolledOver, RolloverFailed, TopicNotOwned
from policies.observations import Reading
from policies.switching.decisions import SwitchDecision
from policies.switching.readings import SwitchBrokers, SwitchCluster, SwitchLedger, SwitchPrecheck, SwitchStatus
from policies.switching.references import LedgerKind


class LeaseHolder(Protocol):
    """See `lease.Lease`."""

    def renew(self) -> HeldLease | None:
        """Take or keep the lease; None while another has it. Raises RegistryError when that is not known."""
        ...

    def release(self) -> None:
        """Give it up."""
        ...


class RegistryReader(Protocol):
    """See `registry.Registry`."""

    def read(self, *, contested_too: bool = False) -> RegistryView:
        """All of it; also where two clusters are active, if asked for. Raises RegistryError."""
        ...


class Observer(Protocol):
    """See `cluster_reader.ClusterReader`."""

    def brokers(self) -> SwitchBrokers:
        """Who is registered now."""
        ...

    def clusters(self) -> Iterator[SwitchCluster]:
        """All BookKeeper clusters."""
        ...

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        """Whether brokers may move."""
        ...

    def inventory(self, bootstrap: str, source: str = "", target: str = "") -> Iterator[Reading]:
        """All references, part by part, and the manifest at last."""
        ...


class RegistryOrderHandler(Protocol):
    """See `registry_orders.RegistryOrders`."""

    def show_as_proposed(self) -> None:
        """Have all stand where PIP-477 has it, too. Raises RegistryError: try again."""
        ...

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        """Do what is ordered. Raises RegistryError: try again."""
        ...


class LedgerOrderHandler(Protocol):
    """See `ledger_orders.LedgerOrders`."""

    def make_ready(self, source: str, target: str) -> None:
        """Have what copies started, before the first copy is asked for; every failure shows with that."""
        ...

    def carry_out(self, decision: SwitchDecision) -> SwitchLedger:
        """Do what is ordered; every failure is a result."""
        ...

    def limit(self, bytes_per_second: int) -> None:
        """How much is copied in a second; 0 is no limit."""
        ...

    def close(self) -> None:
        """Give up what is being copied."""
        ...


class Observations(Protocol):
    """See `observation_publisher.ObservationPublisher`."""

    def publish(self, *, unchanged_too: bool) -> None:
        """What is quickly read."""
        ...

    def publish_all_next(self) -> None:
        """Have everything published again."""
        ...

    def publish_precheck(self, source: str, target: str) -> None:
        """A precheck's report."""
        ...

    def publish_inventory(self, source: str, target: str) -> bool:
        """All references; gives whether all could be read."""
        ...


class LedgerLookup(Protocol):
    """See `cluster_sessions.ClusterSessions`."""

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Which of these a BookKeeper cluster has. Raises UnreadError, NotConnectedError, UserError."""
        ...


class Copier(Protocol):
    """See `connectors.bookkeeper.copier.LedgerCopier`."""

    def make_ready(self) -> None:
        """Have its JVM started and its clients connecting. Raises JvmDiedError, JavaError."""
        ...

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy a ledger."""
        ...

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete its copy."""
        ...

    def delete_old(self, ledger_id: int) -> DeleteResult:
        """Delete the source's ledger."""
        ...

    def limit(self, bytes_per_second: int) -> None:
        """How much is copied in a second; 0 is no limit."""
        ...

    def close(self) -> None:
        """Give up what is being copied."""
        ...


class CopyRecords(Protocol):
    """See `connectors.bookkeeper.copy_journal.CopyJournal`."""

    def find(self, ledger_id: int) -> CopyRecord | None:
        """What was journalled of a ledger's copy. Raises CopyJournalError."""
        ...


@dataclass(frozen=True)
class JournaledCopier:
    """A copier from one BookKeeper cluster to another, and the journal of its copies."""

    copier: Copier
    journal: CopyRecords


class CopierPool(Protocol):
    """See `ledger_copiers.LedgerCopiers`."""

    def between(self, source: str, target: str) -> JournaledCopier:
        """The copier from one cluster to another."""
        ...

    def limit(self, bytes_per_second: int) -> None:
        """How much each copies in a second; 0 is no limit."""
        ...

    def close(self) -> None:
        """Give up what is being copied."""
        ...


class LedgerReferences(Protocol):
    """See `attribution.ReferenceZnodes`."""

    def attribute(
        self,
        paths: Iterable[str],
        kind: LedgerKind,
        ledger_id: int,
        owners: Collection[str | None],
        to: str,
        *,
        new_id: int | None = None,
    ) -> Attribution:
        """Attribute a ledger to a cluster in all znodes that name it."""
        ...

    def owners_of(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Whom the znodes that still name a ledger attribute it to. Raises ReferenceZnodeError."""
        ...


class TopicOwners(Protocol):
    """See `rollover.OwnerClient`."""

    def roll_over(self, path: str, target: str, epoch: int) -> RolledOver | TopicNotOwned | RolloverFailed:
        """Have a cursor rolled over by whoever has its topic loaded."""
        ...


@dataclass(frozen=True)
class Dependencies:
    """What a reconciler works with."""

    lease: LeaseHolder
    observations: Observations
    registry_orders: RegistryOrderHandler
    ledger_orders: LedgerOrderHandler
    publish: Callable[[Reading], None]
    """Takes what it says of its lease; must not block."""
    results: ResultOutbox
    metrics: SwitchExecutorMetrics
