"""What the Java side of a ledger copy answers, as JSON, and what that means."""

import msgspec

from connectors.bookkeeper.copy_journal import PROVENANCE
from connectors.bookkeeper.copy_outcomes import CopyOutcome, CopyResult, outcome_of_failure
from policies.switching.ledgers import Ledger, LedgerState, same_ledger


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger as its metadata have it."""

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
        """The same as the policy has it, without our provenance property."""
        custom = tuple(sorted((name, value) for name, value in self.custom_metadata.items() if name != PROVENANCE))
        return Ledger(
            ledger_id=self.ledger_id,
            state=self.state,
            last_entry_id=self.last_entry_id,
            length_bytes=self.length_bytes,
            custom_metadata=custom,
            ensemble_size=self.ensemble_size,
            write_quorum=self.write_quorum,
            ack_quorum=self.ack_quorum,
            entries_digest=self.entries_digest,
            created_ms=self.created_ms,
        )


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of something, or how far it is."""

    status: str
    entries: int = 0
    bytes: int = 0
    source: Facts | None = None
    target: Facts | None = None
    phase: str | None = None
    code: int | None = None
    detail: str | None = None


def copy_result(ledger_id: int, answer: Answer, seconds: float) -> CopyResult:
    """What an answer from Java means, by the policy's own rule of when two ledgers are the same."""
    source = answer.source.ledger() if answer.source else None
    target = answer.target.ledger() if answer.target else None
    return CopyResult(
        ledger_id,
        _outcome(answer, source, target),
        source=source,
        target=target,
        entries=answer.entries,
        bytes=answer.bytes,
        seconds=seconds,
        detail=answer.detail or "",
    )


def _outcome(answer: Answer, source: Ledger | None, target: Ledger | None) -> CopyOutcome:
    equal = source is not None and target is not None and same_ledger(source, target)
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
