"""Who refers to a ledger: schema locators and cursors in the brokers' ZooKeeper, each saying which cluster holds it."""

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
