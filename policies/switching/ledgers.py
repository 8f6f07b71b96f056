"""Ledgers, and whether the ledgers of two clusters with one id are the same ledger.

Equal length and last entry id prove nothing: ledgers with one entry collide. A ledger in the target is *ours* only if
its copy was journalled before it was created, from the same source. The executor keeps this journal, and compares each
ledger with it. Every other ledger is foreign, and never touched.
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.units import InstantMs

NO_LEDGER = -1
"""The ledger id of a cursor that has no ledger."""


class LedgerState(ClosedEnum):
    """A ledger's state in its metadata."""

    OPEN = "open", "A client writes to it."
    IN_RECOVERY = "in_recovery", "A client is closing it for a writer that is gone."
    CLOSED = "closed", "Its last entry is known and final."


class Ledger(Struct, array_like=True, frozen=True, kw_only=True):
    """A ledger by its metadata and its entries. None: not known."""

    ledger_id: int
    state: LedgerState
    last_entry_id: int
    """-1 for an empty or open ledger."""
    length_bytes: int
    custom_metadata: tuple[tuple[str, str], ...] = ()
    """Name and base64 value, sorted by name."""
    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    entries_digest: str | None = None
    """Digest of all entries, in order; None if they were not read."""
    created_ms: InstantMs | None = None
    """When ZooKeeper made the metadata, by ZooKeeper's clock."""
    provenance: str | None = None
    """Instance id of the cluster from which an executor copied it, by the executor's journal; empty: it is no copy."""


class HitClass(ClosedEnum):
    """The class of a ledger that exists in the target under an id to import."""

    OURS_COMPLETE = "ours_complete", "Headgate's own copy, equal to the source's ledger."
    OURS_PARTIAL = "ours_partial", "Headgate's own copy, not complete."
    FOREIGN = "foreign", "Not made by Headgate: never touched."


def same_ledger(source: Ledger, target: Ledger) -> bool:
    """Whether the target's ledger has the same content as the source's; an unread digest proves nothing."""
    return (
        source.ledger_id == target.ledger_id
        and source.state is LedgerState.CLOSED  # an open one may still grow
        and target.state is LedgerState.CLOSED
        and source.last_entry_id == target.last_entry_id
        and source.length_bytes == target.length_bytes
        and source.custom_metadata == target.custom_metadata
        and source.entries_digest is not None
        and source.entries_digest == target.entries_digest
    )


def is_ours(target: Ledger, source_instance: str) -> bool:
    """Whether Headgate copied a ledger from this source; it did not if the executor has not compared it."""
    return bool(source_instance) and target.provenance == source_instance


def has_id(ids: Sequence[int], ledger_id: int) -> bool:
    """Whether sorted ids contain one."""
    at = bisect_left(ids, ledger_id)
    return at < len(ids) and ids[at] == ledger_id
