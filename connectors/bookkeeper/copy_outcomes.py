"""Outcomes of copying or deleting a ledger: closed enums, what BookKeeper's codes mean, what the policy is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policies.switching.ledgers import Ledger
from policies.switching.readings import LedgerOutcome


class CopyOutcome(StrEnum):
    """How a copy ended."""

    COPIED = "copied"
    """Written now, closed, read back and equal."""
    BUILT = "built"
    """An earlier copy of ours stands there, complete and equal."""
    OWN_PARTIAL = "own_partial"
    """An earlier copy of ours stands there, and is not the whole: delete it and copy again."""
    FOREIGN_CONFLICT = "foreign_conflict"
    """Something stands there that we did not make, or the id is journalled for another source. It was not touched."""
    SOURCE_OPEN = "source_open"
    """It has a writer still, or its recovery is under way: its owner must close it first."""
    SOURCE_MISSING = "source_missing"
    SOURCE_UNREADABLE = "source_unreadable"
    """Its metadata are there, but not all of its entries."""
    SOURCE_UNREACHABLE = "source_unreachable"
    """Its ZooKeeper does not answer, or its bookies have too much to do."""
    TARGET_UNREACHABLE = "target_unreachable"
    NOT_ENOUGH_BOOKIES = "not_enough_bookies"
    """The target has too few writable bookies for the ensemble."""
    TARGET_FAILED = "target_failed"
    """The target refused: its ledger was fenced, changed or could not be read back."""
    COPY_DIFFERS = "copy_differs"
    """It was written and closed, and what was read back is not the same."""
    JOURNAL_FAILED = "journal_failed"
    """What must not be forgotten could not be written down. Before creation: nothing was created."""
    TIMED_OUT = "timed_out"
    """It made no progress for too long, and was given up."""
    JVM_DIED = "jvm_died"
    INTERNAL_ERROR = "internal_error"


class DeleteOutcome(StrEnum):
    """How a deletion ended."""

    DELETED = "deleted"
    """Its metadata are removed; the bookies drop the entries by and by."""
    ABSENT = "absent"
    """There is no such ledger; counts as deleted."""
    NOT_RECORDED = "not_recorded"
    """The journal does not know it as ours (or not as copied to its end): nothing was touched."""
    REFUSED = "refused"
    """What stands there is not what the journal knows: nothing was touched."""
    FAILED = "failed"
    """It could not be done, or no answer came; ask again."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What came of a copy."""

    ledger_id: int
    outcome: CopyOutcome
    source: Ledger | None = None
    """As far as it was read; with the digest of its entries once all were."""
    target: Ledger | None = None
    """Without our provenance property, so that it can be compared with the source."""
    entries: int = 0
    bytes: int = 0
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What came of a deletion."""

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
"""What the switching policy is told of each outcome."""

_NO_BOOKIE, _NOT_ENOUGH, _NO_LEDGER, _ZOOKEEPER = -3, -6, -7, -9
_META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _NO_METADATA, _BUSY = -18, -21, -23, -25, -105
_MISSING = frozenset({_NO_LEDGER, _NO_METADATA})
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}


def outcome_of_failure(phase: str, code: int | None) -> CopyOutcome:
    """What a failure in Java means.

    Args:
        phase: where it happened: `source-…` or `target-…`.
        code: of `BKException.Code`; None for any other exception.
    """
    side, _, step = phase.partition("-")
    match side:
        case "source":
            return _of_source(step, code)
        case "target":
            return _of_target(step, code)
    return CopyOutcome.INTERNAL_ERROR


def _of_source(step: str, code: int | None) -> CopyOutcome:
    if code in _MISSING:
        return CopyOutcome.SOURCE_MISSING
    if step == "connect" or code in (_UNREACHABLE if step == "read" else _SILENT):
        return CopyOutcome.SOURCE_UNREACHABLE
    return CopyOutcome.SOURCE_UNREADABLE


def _of_target(step: str, code: int | None) -> CopyOutcome:
    if code in (_NO_BOOKIE, _NOT_ENOUGH):
        return CopyOutcome.NOT_ENOUGH_BOOKIES
    if step == "connect" or code in _SILENT:
        return CopyOutcome.TARGET_UNREACHABLE
    return CopyOutcome.TARGET_FAILED
