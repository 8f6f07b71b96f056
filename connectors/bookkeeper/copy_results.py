"""The results of copying and deleting ledgers, parsed from Java's answers, and mapped to the policy's outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from connectors.bookkeeper.copy_journal import PROVENANCE, CopyRecord
from policies.switching.ledgers import Ledger, LedgerState, same_ledger
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
    SOURCE_UNREADABLE = "source_unreadable"
    """The ledger does not exist, or not all of its entries can be read."""
    COPY_DIFFERS = "copy_differs"
    """The copy was written and closed, and differs from the source when read back."""
    FAILED = "failed"
    """A cluster, the journal or the JVM does not answer, or refuses: to be tried again."""


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
    CopyOutcome.SOURCE_UNREADABLE: LedgerOutcome.SOURCE_UNREADABLE,
    CopyOutcome.SOURCE_OPEN: LedgerOutcome.FAILED,
    CopyOutcome.FAILED: LedgerOutcome.FAILED,
}
"""The outcome that the switching policy receives."""

_ZOOKEEPER, _META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _BUSY = -9, -18, -21, -23, -105
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}


def outcome_of_failure(phase: str, code: int | None) -> CopyOutcome:
    """Return the outcome for a failure in Java: a source that answers and cannot be read is not tried again.

    `phase` is `source-…` or `target-…`; `code` is the `BKException.Code`, 0 or None for any other exception.
    """
    side, _, step = phase.partition("-")
    is_unreachable = step == "connect" or code in (_UNREACHABLE if step == "read" else _SILENT)
    return CopyOutcome.SOURCE_UNREADABLE if side == "source" and not is_unreachable else CopyOutcome.FAILED


class LedgerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger's metadata."""

    ledger_id: int
    state: LedgerState
    last_entry_id: int
    length_bytes: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    created_ms: int | None
    custom_metadata: dict[str, str]
    """Name and base64 value."""
    entries_digest: str | None = None

    def ledger(self) -> Ledger:
        """Return the policy's form, without our provenance property."""
        custom = tuple(sorted((name, value) for name, value in self.custom_metadata.items() if name != PROVENANCE))
        return Ledger(**(msgspec.structs.asdict(self) | {"custom_metadata": custom}))


class JavaResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request."""

    status: str
    source: LedgerFacts | None = None
    target: LedgerFacts | None = None
    phase: str | None = None
    code: int | None = None
    detail: str | None = None
    new_id: int | None = None


_OURS = frozenset({"copied", "own_closed", "own_partial"})
"""States in which Java found the journalled provenance in the target's ledger."""


def copy_result(record: CopyRecord, answer: JavaResult) -> CopyResult:
    """Make the result of a copy from Java's answer, by the policy's own rule for equal ledgers.

    But for the id in the target, which may be another one, everything must be equal.
    """
    source = answer.source.ledger() if answer.source else None
    target = answer.target.ledger() if answer.target else None
    if target is not None:
        target = msgspec.structs.replace(target, provenance=record.source if answer.status in _OURS else "")
    outcome = _outcome(answer, source, target, record.id_in_target)
    detail = ": ".join(filter(None, (answer.phase, answer.detail)))
    return CopyResult(record.ledger_id, outcome, source=source, target=target, detail=detail)


def _outcome(answer: JavaResult, source: Ledger | None, target: Ledger | None, target_id: int) -> CopyOutcome:
    equal = (
        source is not None
        and target is not None
        and target.ledger_id == target_id
        and same_ledger(source, msgspec.structs.replace(target, ledger_id=source.ledger_id))
    )
    match answer.status:
        case "copied":
            return CopyOutcome.COPIED if equal else CopyOutcome.COPY_DIFFERS
        case "own_closed":
            return CopyOutcome.BUILT if equal else CopyOutcome.OWN_PARTIAL
        case "own_partial":
            return CopyOutcome.OWN_PARTIAL
        case "foreign":
            return CopyOutcome.FOREIGN_CONFLICT
        case "source_open":
            return CopyOutcome.SOURCE_OPEN
    return outcome_of_failure(answer.phase or "", answer.code)
