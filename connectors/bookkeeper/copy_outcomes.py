"""Outcomes of copying or deleting a ledger: closed enums, mapped from BookKeeper's codes and to the policy's."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policies.switching.ledgers import Ledger
from policies.switching.readings import LedgerOutcome


class CopyOutcome(StrEnum):
    """The outcome of a copy."""

    COPIED = "copied"
    """The copy was written, closed, read back, and is equal."""
    BUILT = "built"
    """Our earlier copy exists, complete and equal."""
    OWN_PARTIAL = "own_partial"
    """Our earlier copy exists and is incomplete: delete it and copy again."""
    FOREIGN_CONFLICT = "foreign_conflict"
    """The id belongs to a ledger of somebody else, or is journalled for another source. It was not changed."""
    SOURCE_OPEN = "source_open"
    """The ledger has a writer, or is in recovery: its owner must close it first."""
    SOURCE_MISSING = "source_missing"
    SOURCE_UNREADABLE = "source_unreadable"
    """The metadata exist, but not all entries can be read."""
    SOURCE_UNREACHABLE = "source_unreachable"
    """The source's ZooKeeper does not answer, or its bookies are overloaded."""
    TARGET_UNREACHABLE = "target_unreachable"
    NOT_ENOUGH_BOOKIES = "not_enough_bookies"
    """The target has too few writable bookies for the ensemble."""
    TARGET_FAILED = "target_failed"
    """The target's ledger was fenced, changed, or could not be read back."""
    COPY_DIFFERS = "copy_differs"
    """The copy was written and closed, and differs from the source when read back."""
    JOURNAL_FAILED = "journal_failed"
    """The journal could not be written. If that was the intent, nothing was created."""
    TIMED_OUT = "timed_out"
    """The copy made no progress for too long, and was given up."""
    JVM_DIED = "jvm_died"
    INTERNAL_ERROR = "internal_error"


class DeleteOutcome(StrEnum):
    """The outcome of a deletion."""

    DELETED = "deleted"
    """The metadata are removed; the bookies delete the entries later."""
    ABSENT = "absent"
    """The ledger does not exist; it counts as deleted."""
    NOT_RECORDED = "not_recorded"
    """The journal does not have it as our copy, or as a complete copy. Nothing was changed."""
    REFUSED = "refused"
    """The existing ledger is not the journalled one. Nothing was changed."""
    FAILED = "failed"
    """The deletion failed or was not answered; try again."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy."""

    ledger_id: int
    outcome: CopyOutcome
    source: Ledger | None = None
    """The source's facts, as far as they were read; with the digest of its entries once all were read."""
    target: Ledger | None = None
    """The target's facts without our provenance property, for comparison with the source."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion."""

    ledger_id: int
    outcome: DeleteOutcome
    detail: str = ""


POLICY_OUTCOMES: Mapping[CopyOutcome, LedgerOutcome] = {
    CopyOutcome.COPIED: LedgerOutcome.COPIED,
    CopyOutcome.COPY_DIFFERS: LedgerOutcome.COPIED,  # the policy compares, and orders the copy deleted and made again
    CopyOutcome.BUILT: LedgerOutcome.EXISTS,
    CopyOutcome.OWN_PARTIAL: LedgerOutcome.EXISTS,
    CopyOutcome.FOREIGN_CONFLICT: LedgerOutcome.EXISTS,
    CopyOutcome.SOURCE_MISSING: LedgerOutcome.SOURCE_UNREADABLE,
    CopyOutcome.SOURCE_UNREADABLE: LedgerOutcome.SOURCE_UNREADABLE,
    **dict.fromkeys(
        (
            CopyOutcome.SOURCE_OPEN,
            CopyOutcome.SOURCE_UNREACHABLE,
            CopyOutcome.TARGET_UNREACHABLE,
            CopyOutcome.NOT_ENOUGH_BOOKIES,
            CopyOutcome.TARGET_FAILED,
            CopyOutcome.JOURNAL_FAILED,
            CopyOutcome.TIMED_OUT,
            CopyOutcome.JVM_DIED,
            CopyOutcome.INTERNAL_ERROR,
        ),
        LedgerOutcome.FAILED,  # to be tried again
    ),
}
"""The outcome that the switching policy receives."""

_NO_BOOKIE, _NOT_ENOUGH, _NO_LEDGER, _ZOOKEEPER = -3, -6, -7, -9
_META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _NO_METADATA, _BUSY = -18, -21, -23, -25, -105
_MISSING = frozenset({_NO_LEDGER, _NO_METADATA})
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}


def outcome_of_failure(phase: str, code: int | None) -> CopyOutcome:
    """Return the outcome for a failure in Java.

    `phase` is `source-…` or `target-…`; `code` is the `BKException.Code`, None for any other exception.
    """
    side, _, step = phase.partition("-")
    if side == "source":
        if code in _MISSING:
            return CopyOutcome.SOURCE_MISSING
        is_unreachable = step == "connect" or code in (_UNREACHABLE if step == "read" else _SILENT)
        return CopyOutcome.SOURCE_UNREACHABLE if is_unreachable else CopyOutcome.SOURCE_UNREADABLE
    if side == "target":
        if code in (_NO_BOOKIE, _NOT_ENOUGH):
            return CopyOutcome.NOT_ENOUGH_BOOKIES
        is_unreachable = step == "connect" or code in _SILENT
        return CopyOutcome.TARGET_UNREACHABLE if is_unreachable else CopyOutcome.TARGET_FAILED
    return CopyOutcome.INTERNAL_ERROR
