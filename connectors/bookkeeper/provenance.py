"""Which ledgers of a target are Headgate's copies: those that carry the token that its journal recorded before."""

from collections.abc import Iterable

from msgspec import structs

from connectors.bookkeeper.copy_journal import CopyJournal, CopyJournalConflictError, CopyRecord
from connectors.bookkeeper.ledgers import FoundLedgers
from policies.switching.ledgers import CopyIntent, Ledger

NOT_OURS = ""


def confirmed(found: FoundLedgers, journal: CopyJournal) -> tuple[dict[int, Ledger], dict[int, CopyIntent]]:
    """What was found in a target, each ledger with its confirmed provenance, and the intents that are journalled.

    Costs a request for each ledger that carries a mark.

    Raises:
        CopyJournalError: the journal cannot be read.
    """
    ledgers, intents = {}, {}
    for ledger_id, ledger in found.facts.items():
        mark = found.provenances.get(ledger_id)
        record = None if mark is None else _find(journal, ledger_id)
        is_ours = record is not None and record.provenance == mark
        ledgers[ledger_id] = structs.replace(ledger, provenance=record.source if record and is_ours else NOT_OURS)
        if record is not None:
            intents[ledger_id] = CopyIntent(ledger_id, record.source, record.target, record.at_ms)
    return ledgers, intents


def deleted_from_target(journal: CopyJournal, missing: Iterable[int]) -> frozenset[int]:
    """Of ledgers that the target lacks those that it once had: they came from there to the source, and were deleted.

    Costs one request where nothing was ever copied the other way, else one for each ledger.

    Raises:
        CopyJournalError: the journal cannot be read.
    """
    return frozenset(ledger_id for ledger_id in missing if journal.came_from_target(ledger_id))


def _find(journal: CopyJournal, ledger_id: int) -> CopyRecord | None:
    try:
        return journal.find(ledger_id)
    except CopyJournalConflictError:  # another source's: not a copy of this ledger
        return None
