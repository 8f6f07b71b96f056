"""Parses the JSON results of the Java side of a ledger copy."""

import msgspec

from connectors.bookkeeper.copy_journal import PROVENANCE
from connectors.bookkeeper.copy_outcomes import CopyOutcome, CopyResult, outcome_of_failure
from policies.switching.ledgers import Ledger, LedgerState, same_ledger


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
    """The result of a request, or its progress."""

    status: str
    name: str = ""
    """The task's name."""
    entries: int = 0
    source: LedgerFacts | None = None
    target: LedgerFacts | None = None
    phase: str | None = None
    code: int | None = None
    detail: str | None = None
    new_id: int | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it is only progress."""
        return self.status in ("queued", "running")


_OURS = frozenset({"copied", "own_closed", "own_partial"})
"""States in which Java found the journalled provenance in the target's ledger."""


def copy_result(ledger_id: int, answer: JavaResult, source_instance: str, target_id: int | None = None) -> CopyResult:
    """Make the result of a copy from Java's answer, by the policy's own rule for equal ledgers.

    `target_id` is the id in the target, if it is another one; everything else must be equal.
    """
    source = answer.source.ledger() if answer.source else None
    target = answer.target.ledger() if answer.target else None
    if target is not None:
        target = msgspec.structs.replace(target, provenance=source_instance if answer.status in _OURS else "")
    return CopyResult(
        ledger_id,
        _outcome(answer, source, target, ledger_id if target_id is None else target_id),
        source=source,
        target=target,
        detail=answer.detail or "",
    )


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
        case "cancelled":
            return CopyOutcome.TIMED_OUT
    return outcome_of_failure(answer.phase or "", answer.code)
