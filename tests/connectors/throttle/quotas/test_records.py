"""What is written down of each entity: before it is known, and never twice."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from connectors.throttle.quotas.records import QuotaJournalError, QuotaRecords
from policies.throttle.quota_plan import QuotaRecord
from tests.connectors.actuation.virtual_clock import NOON
from tests.connectors.throttle.quotas.memory import ALICE, ANY, CLUSTER, Journal, applied, order

RECORD = QuotaRecord(held=True, baseline=None, base=1_000_000, rates=(500_000,))


@pytest.fixture
def journal() -> Journal:
    return Journal([])


@pytest.fixture
def records(journal: Journal) -> QuotaRecords:
    return QuotaRecords(CLUSTER, journal.write)


def test_what_was_written_before_this_start_is_known_the_last_counts(records: QuotaRecords) -> None:
    records.recall(applied())
    records.recall(applied(held=False, rates_bytes_per_second=()))
    records.recall(applied(user="alice", client_id=None))
    assert records.held == [ALICE]


def test_a_record_is_written_down_and_then_known(records: QuotaRecords, journal: Journal) -> None:
    records.write({ANY: RECORD, ALICE: None}, order(0.5, sequence=5), NOON)
    assert records.find(ANY) == RECORD
    assert records.find(ALICE) is None
    assert [(note.entity, note.sequence) for _, note in journal.notes] == [(ANY, 5)]


def test_what_is_the_same_but_for_its_order_is_not_written_again(records: QuotaRecords, journal: Journal) -> None:
    records.write({ANY: RECORD}, order(0.5, sequence=5), NOON)
    records.write({ANY: RECORD}, order(0.5, sequence=6), NOON)
    assert len(journal.notes) == 1
    records.write({ANY: replace(RECORD, held=False)}, order(1.0, sequence=7), NOON)
    assert [note.held for _, note in journal.notes] == [True, False]


def test_what_could_not_be_written_down_is_not_known(records: QuotaRecords, journal: Journal) -> None:
    journal.fails = 1
    with pytest.raises(QuotaJournalError):
        records.write({ANY: RECORD}, order(0.5), NOON)
    assert records.find(ANY) is None
    assert records.held == []


def test_its_own_writing_that_comes_back_is_nothing_new(records: QuotaRecords, journal: Journal) -> None:
    records.write({ANY: RECORD}, order(0.5), NOON)
    for event_id, note in journal.notes:
        records.receive(event_id, note)
    with capture_logs() as logs:
        records.read()
    assert logs == []


def test_anothers_writing_counts_and_is_said(records: QuotaRecords) -> None:
    def read() -> Sequence[str]:
        with capture_logs() as logs:
            records.read()
        return [entry["event"] for entry in logs]

    records.receive("theirs", applied())
    assert records.find(ANY) is None, "nothing is taken in before it is asked for"
    assert read() == ["another quota actuator is acting on this cluster"]
    assert records.held == [ANY]
    assert read() == []
