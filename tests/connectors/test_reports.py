"""Reading the actuators' reports: the last one of each key, until its record is deleted."""

from datetime import UTC, datetime, timedelta

from connectors.decided import ReportReader
from connectors.kafka.tail import Record
from policies.effects import report_key
from policies.free_space.levels import LimitReason, LimitVerdict
from policies.observations import ReportResult
from policies.throttle.readings import QuotaApplication
from policies.units import to_millis
from policies.wire import actuator_event

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ALICE, BOB = "user=alice", "user=bob"


def applied(entity: str, rate: int, minute: int) -> Record:
    event = QuotaApplication(
        cluster="payments", entity=entity, decision_id=None, sequence=None, factor=0.5, verdict=LimitVerdict.SET,
        reason=LimitReason.DECIDED, rate_bytes_per_second=rate, previous_bytes_per_second=None,
        outcome=ReportResult.APPLIED, attempt=1,
    )  # fmt: skip
    at = NOON + timedelta(minutes=minute)
    value = actuator_event(event, id=f"{entity}-{minute}", at=at)
    return Record("headgate.applied.reports", report_key(value).encode(), value, to_millis(at))


def deleted(record: Record) -> Record:
    return record._replace(value=None)


def rates(*records: Record) -> dict[str, float | None]:
    reader = ReportReader(lambda _: True)
    for record in records:
        reader.fold(record)
    return {effect.target: effect.number for effect in reader.book.effects("throttle", "payments")}


def test_a_cluster_that_comes_back_keeps_its_new_reports_whatever_the_order_of_partitions() -> None:
    alice, bob, again = applied(ALICE, 1, 0), applied(BOB, 2, 0), applied(ALICE, 3, 10)
    one_partition, other = [alice, deleted(alice), again], [bob, deleted(bob)]
    assert rates(*one_partition, *other) == rates(*other, *one_partition) == {ALICE: 3}


def test_a_deleted_report_leaves_nothing_behind() -> None:
    reader = ReportReader(lambda _: True)
    for record in (first := applied(ALICE, 1, 0), applied(ALICE, 2, 1), deleted(first)):
        reader.fold(record)
    assert list(reader.book.reported()) == []
