"""References to ledgers: schema locators and cursors, which are moved, and all others, which stay and are counted."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.switching.ledgers import NO_LEDGER


class LedgerKind(ClosedEnum):
    """What a ledger is for. Only these are copied; topic ledgers stay where they are and age out."""

    SCHEMA = "schema", "A schema locator, one ledger for each version."
    CURSOR = "cursor", "A subscription's position."


class IdStrategy(StrEnum):
    """How ledgers of a kind come to the target."""

    SAME_ID = "same_id"
    """Copied under the id they have."""
    REMAP = "remap"
    """Under a new id: a schema is copied and mapped, a cursor's owner is asked to roll over."""


class StayingKind(ClosedEnum):
    """What else names ledgers. These stay in their cluster: they are counted, and neither copied nor attributed."""

    TOPIC = "topic", "Messages of a topic."
    OFFLOADED = "offloaded", "Messages of a topic that are in tiered storage, and not yet deleted from BookKeeper."
    TRANSACTION_LOG = "transaction_log", "What a transaction coordinator remembers."
    PENDING_ACK = "pending_ack", "Acknowledgements of transactions that are not over."
    COMPACTED = "compacted", "The messages that a topic's compaction kept."
    DELAYED_INDEX = "delayed_index", "Which messages of a subscription are delayed, and until when."
    LOG = "log", "A segment of a DistributedLog: packages and functions."


ANY_CLUSTER = ""
"""It is not known which cluster holds a ledger: it may be any."""


class StayingLedgers(Struct, array_like=True, frozen=True):
    """Ledgers of one kind in one cluster; of topics there are far too many to list each."""

    kind: StayingKind
    cluster: str
    """That holds them; `ANY_CLUSTER` where only their owner knows."""
    count: int
    greatest_id: int
    """NO_LEDGER where no id is known."""
    samples: tuple[str, ...] = ()
    """Some of the znodes that name them."""


class Reference(Struct, array_like=True, frozen=True):
    """One place that names a ledger."""

    kind: LedgerKind
    path: str
    """Of its znode."""
    ledger_id: int
    attribution: str | None = None
    """Its property ``_pulsar.bookieClusterName``; None in those from before there were several clusters."""
    position: str = ""
    """Where in the znode: ``info``, ``index/3``; empty for a cursor, which names one ledger."""


def owner_of(reference: Reference, bootstrap: str | None) -> str | None:
    """The cluster that holds the ledger: as attributed, else the bootstrap cluster; None when neither is known."""
    return reference.attribution or bootstrap


def with_ledger(references: Iterable[Reference]) -> Iterable[Reference]:
    """Those that name a ledger at all."""
    return (r for r in references if r.ledger_id != NO_LEDGER)
