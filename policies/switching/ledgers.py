"""What is known of a ledger, and whether two clusters' ledgers with the same id are the same ledger.

Equal length and last entry id prove nothing: one-entry ledgers collide. A ledger in the target is *ours* only if its
copy was journalled before it was created, from the same source; every other one is foreign and never touched. Where an
executor has compared the ledger with its journal, that result decides; elsewhere the times do.
"""

from collections.abc import Mapping

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.units import InstantMs

NO_LEDGER = -1
"""The id in a cursor that keeps no ledger."""


class LedgerState(ClosedEnum):
    """A ledger's state in its metadata."""

    OPEN = "open", "Somebody writes to it."
    IN_RECOVERY = "in_recovery", "Somebody is closing it for a writer that is gone."
    CLOSED = "closed", "Its last entry is known, and stays so."


class Ledger(Struct, array_like=True, frozen=True, kw_only=True):
    """A ledger as its metadata and its entries have it. None: not known."""

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
    """Of all entries, in order; None when they were not read."""
    created_ms: InstantMs | None = None
    """When ZooKeeper made the metadata, by its own clock."""
    provenance: str | None = None
    """Instance id of the cluster that an executor copied it from, as its journal confirms; empty: it copied it not."""


class CopyIntent(Struct, array_like=True, frozen=True):
    """A journalled intent to create a ledger, written before it was created."""

    ledger_id: int
    """In the source; in the target as well, unless it gets a new one there."""
    source: str
    """Instance id of the cluster it is copied from."""
    target: str
    """Instance id of the cluster it is created in."""
    at_ms: InstantMs
    """When the intent was first journalled."""
    remap: bool = False
    """Whether it gets a new id in the target, which the executor's journal knows: it says nothing of its own id."""


Journal = Mapping[int, CopyIntent]
"""Intents by the ledger id in the target."""


class HitClass(ClosedEnum):
    """What a ledger is that exists in the target under an id to import."""

    OURS_COMPLETE = "ours_complete", "Headgate's own copy, and it holds what the source has."
    OURS_PARTIAL = "ours_partial", "Headgate's own copy, and it is not complete."
    FOREIGN = "foreign", "Somebody else's: never touched."


def same_ledger(source: Ledger, target: Ledger) -> bool:
    """Whether the target's ledger holds exactly what the source's does; an unread digest proves nothing."""
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


def is_ours(target: Ledger, intent: CopyIntent | None, source_instance: str, target_instance: str) -> bool:
    """Whether headgate made a ledger: by a journalled intent for these clusters, older than the ledger itself.

    What its executor says of that needs no two clocks to agree. A ledger of which it says nothing, and whose time of
    creation is unknown, could be older than the intent, so it is not ours.
    """
    if intent is None or (intent.ledger_id, intent.source, intent.target) != (
        target.ledger_id, source_instance, target_instance,
    ):  # fmt: skip
        return False
    if target.provenance is not None:
        return target.provenance == source_instance
    return target.created_ms is not None and target.created_ms >= intent.at_ms


def hit_of(
    source: Ledger | None, target: Ledger, intent: CopyIntent | None, source_instance: str, target_instance: str
) -> HitClass:
    """What a ledger in the target is, given what the source has under the same id (None: unknown)."""
    if not is_ours(target, intent, source_instance, target_instance):
        return HitClass.FOREIGN
    return HitClass.OURS_COMPLETE if source is not None and same_ledger(source, target) else HitClass.OURS_PARTIAL
