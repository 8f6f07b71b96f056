"""The interfaces that the reconciler and the ledger orders use, so that tests can replace each of them."""

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
from policies.observations import Reading
from policies.switching.decisions import SwitchDecision
from policies.switching.readings import (
    SwitchBrokers,
    SwitchCluster,
    SwitchLedger,
    SwitchPrecheck,
    SwitchProgress,
    SwitchStatus,
)
from policies.switching.references import LedgerKind


class LeaseHolder(Protocol):
    """See `lease.Lease`."""

    def renew(self) -> HeldLease | None:
        """Take or keep the lease; None while another process has it. Raises RegistryError if that is unknown."""

    def release(self) -> None:
        """Give up the lease."""


class RegistryReader(Protocol):
    """See `registry.Registry`."""

    def read(self, *, contested_too: bool = False) -> RegistryView:
        """Read the registry; with `contested_too` also if two clusters are active. Raises RegistryError."""

    def read_progress(self) -> SwitchProgress | None:
        """Read the progress of the last switch. Raises RegistryError."""


class Observer(Protocol):
    """See `cluster_reader.ClusterReader`."""

    def brokers(self) -> SwitchBrokers:
        """Read the registered brokers."""

    def clusters(self) -> Iterator[SwitchCluster]:
        """Read all BookKeeper clusters."""

    def precheck(self, source: str, target: str, bootstrap: str) -> SwitchPrecheck:
        """Run a precheck."""

    def inventory(
        self, bootstrap: str, source: str = "", target: str = "", *, valid_ms: int = 0, moved_too: bool = False
    ) -> Iterator[Reading]:
        """Yield the parts of an inventory, and its manifest last."""


class RegistryOrderHandler(Protocol):
    """See `registry_orders.RegistryOrders`."""

    def write_proposed(self) -> None:
        """Write missing entries in the format of PIP-477. Raises RegistryError: try again."""

    def carry_out(self, order: SwitchDecision) -> SwitchStatus | None:
        """Carry out an order. Raises RegistryError: try again."""


class LedgerOrderHandler(Protocol):
    """See `ledger_orders.LedgerOrders`."""

    def make_ready(self, source: str, target: str) -> None:
        """Start the copier before the first copy, which reports every failure."""

    def carry_out(self, decision: SwitchDecision) -> SwitchLedger:
        """Carry out an order; every failure is a result."""

    def limit(self, bytes_per_second: int) -> None:
        """Limit the copied bytes per second; 0: no limit."""

    def close(self) -> None:
        """Abort all copies."""


class Observations(Protocol):
    """See `observation_publisher.ObservationPublisher`."""

    def publish(self, *, unchanged_too: bool) -> None:
        """Publish the readings that are quick."""

    def publish_all_next(self) -> None:
        """Publish everything again next time."""

    def publish_precheck(self, source: str, target: str) -> None:
        """Publish a precheck's report."""

    def publish_inventory(self, source: str, target: str, *, moved_too: bool = False) -> bool:
        """Publish all references. Returns whether all could be read."""


class LedgerLookup(Protocol):
    """See `cluster_sessions.ClusterSessions`."""

    def find_ledgers(self, name: str, ledger_ids: Collection[int]) -> FoundLedgers:
        """Look up ledgers of a BookKeeper cluster. Raises UnreadError, NotConnectedError, UserError."""


class Copier(Protocol):
    """See `connectors.bookkeeper.copier.LedgerCopier`."""

    def make_ready(self) -> None:
        """Start the JVM and its clients. Raises JvmDiedError, JavaError."""

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy a ledger."""

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete the copy of a ledger."""

    def delete_old(self, ledger_id: int) -> DeleteResult:
        """Delete the source's ledger."""

    def limit(self, bytes_per_second: int) -> None:
        """Limit the copied bytes per second; 0: no limit."""

    def close(self) -> None:
        """Abort all copies."""


class CopyRecords(Protocol):
    """See `connectors.bookkeeper.copy_journal.CopyJournal`."""

    def find(self, ledger_id: int) -> CopyRecord | None:
        """Return the journal's record of a ledger's copy. Raises CopyJournalError."""


@dataclass(frozen=True)
class JournaledCopier:
    """A copier from one BookKeeper cluster to another, and the journal of its copies."""

    copier: Copier
    journal: CopyRecords


class CopierPool(Protocol):
    """See `ledger_copiers.LedgerCopiers`."""

    def get(self, source: str, target: str) -> JournaledCopier:
        """Return the copier from one cluster to another."""

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes per second of each copier; 0: no limit."""

    def close(self) -> None:
        """Abort all copies."""


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

    def read_owners(self, paths: Iterable[str], kind: LedgerKind, ledger_id: int) -> frozenset[str | None]:
        """Return the clusters that znodes attribute a ledger to. Raises ReferenceZnodeError."""


@dataclass(frozen=True)
class Dependencies:
    """The parts of a reconciler."""

    lease: LeaseHolder
    observations: Observations
    registry_orders: RegistryOrderHandler
    ledger_orders: LedgerOrderHandler
    read_epoch: Callable[[], int | None]
    """Reads the epoch of the directive in force from ZooKeeper; 0: there is none, None: it cannot be read."""
    keep_progress: Callable[[SwitchProgress], None]
    """Keeps the progress of a switch beside the registry. Raises RegistryError: try again."""
    publish: Callable[[Reading], None]
    """Publishes readings of the lease; must not block."""
    results: ResultOutbox
    metrics: SwitchExecutorMetrics
