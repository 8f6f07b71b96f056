"""Which ledgers of a target are copies of ours: those alone whose mark is the one that the journal holds."""

import pytest

from connectors.bookkeeper.cluster import NOT_OURS, FoundLedgers, confirm_provenance
from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal
from connectors.zookeeper.json_znodes import ZnodeError
from policies.switching.ledgers import Ledger, LedgerState
from tests.connectors.switching.memory_zookeeper import Server

SOURCE, TARGET, LEDGER = "source-id", "target-id", 4_711


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def journal(server: Server) -> CopyJournal:
    return CopyJournal(server.session(), source=SOURCE, target=TARGET)


def found(mark: str | None) -> FoundLedgers:
    ledger = Ledger(ledger_id=LEDGER, state=LedgerState.CLOSED, last_entry_id=0, length_bytes=1)
    return FoundLedgers({LEDGER}, {LEDGER: ledger}, provenances={} if mark is None else {LEDGER: mark})


def test_a_ledger_with_the_mark_that_was_journalled_is_ours(journal: CopyJournal) -> None:
    record = journal.intend(LEDGER)
    ledgers, proved = confirm_provenance(found(record.provenance), journal)
    assert proved == {}, "its copy was not compared"
    assert ledgers[LEDGER].provenance == SOURCE


def test_a_proved_copy_is_told_with_its_digest(journal: CopyJournal) -> None:
    copied = CopiedLedger(length_bytes=1, last_entry_id=0, entries_digest="d", created_ms=5)
    record = journal.complete(journal.intend(LEDGER), copied)
    assert confirm_provenance(found(record.provenance), journal)[1] == {LEDGER: copied}


@pytest.mark.parametrize("mark", [None, f"{SOURCE}/forged", "", "another/token"])
def test_any_other_ledger_under_a_journalled_id_is_not(journal: CopyJournal, mark: str | None) -> None:
    journal.intend(LEDGER)
    assert confirm_provenance(found(mark), journal)[0][LEDGER].provenance == NOT_OURS


def test_a_mark_without_a_record_is_not_ours(journal: CopyJournal) -> None:
    ledgers, _ = confirm_provenance(found(f"{SOURCE}/token"), journal)
    assert ledgers[LEDGER].provenance == NOT_OURS


def test_a_copy_of_another_source_is_not_ours(journal: CopyJournal, server: Server) -> None:
    theirs = CopyJournal(server.session(), source="another", target=TARGET).intend(LEDGER)
    assert confirm_provenance(found(theirs.provenance), journal)[0][LEDGER].provenance == NOT_OURS


def test_a_journal_that_cannot_be_read_is_no_verdict(journal: CopyJournal, server: Server) -> None:
    server.away = OSError("no route to host")
    with pytest.raises(ZnodeError):
        confirm_provenance(found("source-id/token"), journal)
