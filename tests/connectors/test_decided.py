"""What is in force by the decided topics, as one fold has it for all who list it."""

from datetime import timedelta
from typing import Any

import pytest

from connectors.decided import DecisionsInForce, InForceChange
from connectors.kafka.tail import Record
from policies.decisions import Alert, AlertStatus, Severity
from policies.effects import report_key
from policies.free_space.levels import LimitReason, LimitVerdict
from policies.observations import ReportResult
from policies.throttle.readings import QuotaApplication
from policies.units import to_millis
from policies.wire import actuator_event, decision_event
from tests.connectors.alertmanager.test_notifier import NOON, alert
from tests.connectors.exporter.loop import ALERTS, Loop
from tests.deploy.inspection.test_views import played

FIRST = alert(sequence=to_millis(NOON))
KEY = (ALERTS, FIRST.record_key())


def record(of: Alert, key: str | None = None) -> Record:
    return Record(ALERTS, (key or of.record_key()).encode(), decision_event(of), to_millis(NOON))


@pytest.fixture
def in_force() -> DecisionsInForce:
    in_force = DecisionsInForce()
    in_force.fold_records([record(FIRST)])
    return in_force


def test_a_successor_takes_the_place(in_force: DecisionsInForce) -> None:
    second = FIRST.model_copy(update={"sequence": FIRST.sequence + 1, "summary": "fuller"})
    (change,) = in_force.fold_records([record(second)])
    assert change == InForceChange(second, FIRST)
    assert [each.sequence for each in in_force.alerts()] == [second.sequence]


@pytest.mark.parametrize(
    "nothing_new",
    [
        record(FIRST),
        record(FIRST.model_copy(update={"sequence": FIRST.sequence - 1})),
        record(FIRST.model_copy(update={"sequence": FIRST.sequence + 1, "valid_until": NOON + timedelta(days=400)})),
        record(FIRST, key="throttle/another/key"),
        Record(ALERTS, KEY[1].encode(), b"no event", to_millis(NOON)),
        Record(ALERTS, b"never/heard/of", None, to_millis(NOON)),
    ],
    ids=["repeated", "late", "forged", "under another key", "garbage", "a tombstone of nothing"],
)
def test_nothing_else_changes_anything(in_force: DecisionsInForce, nothing_new: Record) -> None:
    assert in_force.fold_records([nothing_new]) == []
    assert [each.sequence for each in in_force.alerts()] == [FIRST.sequence]


def test_a_tombstone_deletes_what_it_names(in_force: DecisionsInForce) -> None:
    gone = Record(*KEY[:1], KEY[1].encode(), None, to_millis(NOON))
    assert in_force.fold_records([gone]) == [InForceChange(None, FIRST)]
    assert in_force.alerts() == []


def at_minute(of: Alert, minute: float) -> Record:
    """The record of an alert that is decided and appended then."""
    at = NOON + timedelta(minutes=minute)
    of = of.model_copy(update={"decided_at": at})
    return Record(ALERTS, of.record_key().encode(), decision_event(of), to_millis(at))


LATER = NOON + timedelta(hours=23)
RESOLVED = {"status": AlertStatus.RESOLVED, "verdict": "resolved", "ended_at": NOON}


@pytest.mark.parametrize(
    "forged",
    [
        {**RESOLVED, "valid_until": None},
        {**RESOLVED, "valid_until": LATER},
        {"severity": Severity.INFO, "valid_until": LATER},
    ],
    ids=["an end for good", "an end that expires", "a lesser severity"],
)
def test_a_forged_alert_hides_the_true_one_until_its_next_repeat_only(
    in_force: DecisionsInForce, forged: dict[str, Any]
) -> None:
    in_force.fold_records([at_minute(FIRST.model_copy(update={**forged, "sequence": to_millis(LATER)}), 1)])
    assert FIRST.sequence not in [each.sequence for each in in_force.alerts()]
    older, repeat = (FIRST.model_copy(update={"sequence": FIRST.sequence + count}) for count in (1, 2))
    old_record = at_minute(older, 0)._replace(appended_ms=to_millis(NOON + timedelta(minutes=2)))
    assert in_force.fold_records([old_record]) == [], "a repetition of an older record is not believed"
    in_force.fold_records([at_minute(repeat, 240)])
    assert [each.sequence for each in in_force.alerts()] == [repeat.sequence]


def test_one_policy_alone_may_be_folded() -> None:
    all_of_them, some = DecisionsInForce(), DecisionsInForce(policy="isolation")
    for folded in (all_of_them, some):
        folded.fold_records(played(Loop()))
    assert len(all_of_them.decisions()) == 1
    assert some.decisions() == []


# Reading the actuators' reports: the last one of each key, until its record is deleted.


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
    reader = DecisionsInForce()
    for record in records:
        reader.fold(record)
    return {effect.target: effect.number for effect in reader.book.effects("throttle", "payments")}


def test_a_cluster_that_comes_back_keeps_its_new_reports_whatever_the_order_of_partitions() -> None:
    alice, bob, again = applied(ALICE, 1, 0), applied(BOB, 2, 0), applied(ALICE, 3, 10)
    one_partition, other = [alice, deleted(alice), again], [bob, deleted(bob)]
    assert rates(*one_partition, *other) == rates(*other, *one_partition) == {ALICE: 3}


def test_a_deleted_report_leaves_nothing_behind() -> None:
    reader = DecisionsInForce()
    for record in (first := applied(ALICE, 1, 0), applied(ALICE, 2, 1), deleted(first)):
        reader.fold(record)
    assert list(reader.book.reported()) == []
