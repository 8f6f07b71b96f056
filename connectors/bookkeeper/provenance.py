"""Finds the ledgers of a target that are Headgate's copies: they carry the token of their journal record."""

from collections.abc import Iterable

from msgspec import structs

from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal, CopyRecord
from connectors.bookkeeper.ledgers import FoundLedgers
from connectors.zookeeper.json_znodes import ZnodeConflictError
from policies.switching.ledgers import Ledger

NOT_OURS = ""


def confirm_provenance(found: FoundLedgers, journal: CopyJournal) -> tuple[dict[int, Ledger], dict[int, CopiedLedger]]:
    """Return the ledgers of a target with their confirmed provenance, and the proved copies.

    It costs one request for each ledger with a provenance property.

    Raises:
        ZnodeError: the journal cannot be read.
    """
    ledgers, proved = {}, {}
    for ledger_id, ledger in found.facts.items():
        mark = found.provenances.get(ledger_id)
        record = None if mark is None else _find(journal, ledger_id)
        is_ours = record is not None and record.provenance == mark
        ledgers[ledger_id] = structs.replace(ledger, provenance=record.source if record and is_ours else NOT_OURS)
        if record is not None and is_ours and record.copied is not None:
            proved[ledger_id] = record.copied
    return ledgers, proved


def deleted_from_target(journal: CopyJournal, missing: Iterable[int]) -> frozenset[int]:
    """Return the missing ledgers that the target once had: they were copied to the source, and then deleted.

    It costs one request if nothing was ever copied that way, else one for each ledger.

    Raises:
        ZnodeError: the journal cannot be read.
    """
    return frozenset(ledger_id for ledger_id in missing if journal.came_from_target(ledger_id))


def _find(journal: CopyJournal, ledger_id: int) -> CopyRecord | None:
    try:
        return journal.find(ledger_id)
    except ZnodeConflictError:  # the record is of another source's ledger
        return None
