"""References to ledgers: schema locators and cursors move to the target; all others stay, and are counted."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.switching.ledgers import NO_LEDGER


class LedgerKind(ClosedEnum):
    """The kinds of ledgers that are copied. Topic ledgers stay in their cluster and age out."""

    SCHEMA = "schema", "A schema locator, one ledger for each version."
    CURSOR = "cursor", "A subscription's position."


class IdStrategy(StrEnum):
    """How ledgers of a kind get to the target."""

    SAME_ID = "same_id"
    """A copy keeps the ledger's id."""
    REMAP = "remap"
    """A copy gets a new id: a schema is copied and mapped; a cursor's owner is asked to roll over."""


class StayingKind(ClosedEnum):
    """The kinds of ledgers that stay in their cluster: they are counted, and neither copied nor attributed."""

    TOPIC = "topic", "Messages of a topic."
    OFFLOADED = "offloaded", "Messages of a topic that are in tiered storage, and not yet deleted from BookKeeper."
    TRANSACTION_LOG = "transaction_log", "The log of a transaction coordinator."
    PENDING_ACK = "pending_ack", "Acknowledgements of transactions that are not over."
    COMPACTED = "compacted", "The messages that a topic's compaction kept."
    DELAYED_INDEX = "delayed_index", "The index of a subscription's delayed messages."
    LOG = "log", "A segment of a DistributedLog: packages and functions."


ANY_CLUSTER = ""
"""The name that stands for an unknown cluster: any may hold the ledger."""


class StayingLedgers(Struct, array_like=True, frozen=True):
    """Ledgers of one kind in one cluster; of topics there are far too many to list each."""

    kind: StayingKind
    cluster: str
    """The cluster that holds them; `ANY_CLUSTER` if only their owner knows it."""
    count: int
    greatest_id: int
    """The greatest id; NO_LEDGER if none is known."""
    samples: tuple[str, ...] = ()
    """Some of the znodes that name them."""


class Reference(Struct, array_like=True, frozen=True):
    """One place that names a ledger."""

    kind: LedgerKind
    path: str
    """The path of its znode."""
    ledger_id: int
    attribution: str | None = None
    """Its property ``_pulsar.bookieClusterName``; None in references older than the second cluster."""
    position: str = ""
    """The place in the znode: ``info``, ``index/3``; empty for a cursor, which names one ledger."""


def find_owner(reference: Reference, bootstrap: str | None) -> str | None:
    """Return the cluster that holds the ledger: the attributed one, else the bootstrap cluster; None if not known."""
    return reference.attribution or bootstrap


def with_ledger(references: Iterable[Reference]) -> Iterable[Reference]:
    """Return the references that name a ledger."""
    return (r for r in references if r.ledger_id != NO_LEDGER)
