"""Clusters that are watched no longer: what was decided about them ends, once, and nothing else does."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from connectors.decided import delete_left, find_left
from connectors.kafka.tail import Record
from policies.decisions import Alert, AlertStatus
from policies.units import to_millis
from policies.wire import EventReader, decision_event
from streaming.host import PolicyHost
from tests.policies.scenario import GB, SOFT_AND_HARD, at, log_dirs, throttle

HOST = PolicyHost({"throttle": throttle(SOFT_AND_HARD)})
LATER = datetime(2027, 1, 1, tzinfo=UTC)
Written = list[tuple[str, str, bytes | None]]


def decided(cluster: str) -> Iterator[Record]:
    """What a cluster at its hard limit comes to, as it lies in the topics."""
    stepped = HOST.step("throttle", cluster, None, [log_dirs(0, 3, GB // 2)], at(0))
    for topic, key, value in stepped.outputs:
        if topic != "audit":
            yield Record(f"headgate.{topic}", key.encode(), value, to_millis(at(0)))


def retired(*records: Record, clusters: frozenset[str] = frozenset({"payments"})) -> Written:
    written: Written = []
    delete_left(
        find_left(records, clusters), "headgate", lambda topic, key, value: written.append((topic, key, value)), LATER
    )
    return written


def alerts(written: Written) -> list[Alert]:
    return [
        EventReader([Alert]).read(value).data
        for topic, _, value in written
        if topic == "headgate.decided.alerts" and value is not None
    ]


FIRING = alerts([(record.topic, "", record.value) for record in decided("orders")])


def test_a_cluster_that_nobody_names_ends_with_resolutions_and_tombstones() -> None:
    written = retired(*decided("orders"), *decided("payments"))
    resolved = alerts(written)
    assert {(a.status, a.ended_at) for a in resolved} == {(AlertStatus.RESOLVED, LATER)}
    assert [a.alert_id for a in resolved] == [a.alert_id for a in FIRING]
    assert all(after.sequence > before.sequence for before, after in zip(FIRING, resolved, strict=True))
    assert all("orders is not in the settings any more" in a.explanation for a in resolved)
    assert {(topic, key) for topic, key, value in written if value is None} == {
        ("headgate.decided.throttle", "orders"),
        *(("headgate.decided.alerts", a.record_key()) for a in FIRING),
    }
    assert {key for topic, key, _ in written if topic == "headgate.audit"} == {"orders"}


def test_an_alert_is_resolved_before_it_is_deleted_and_after_a_crash_only_deleted() -> None:
    before = retired(*decided("orders"))
    assert [value is None for _, key, value in before if key == FIRING[0].record_key()] == [False, True]
    records = [Record(topic, key.encode(), value, 0) for topic, key, value in before]
    again = retired(*decided("orders"), *(r for r in records if r.value is not None and r.topic != "headgate.audit"))
    assert alerts(again) == []
    assert {value for _, _, value in again} == {None}
    assert retired(*decided("orders"), *records) == [], "what is ended stays ended"
    others = alerts(retired(*decided("orders")))
    assert list(map(decision_event, alerts(before))) == list(map(decision_event, others)), "whoever makes it"


@pytest.mark.parametrize("value", [b"garbage", b"{}", None])
def test_what_cannot_be_read_is_left_alone(value: bytes | None) -> None:
    assert retired(Record("headgate.decided.throttle", b"orders", value, 0)) == []


def test_a_forged_decision_that_cannot_be_written_down_again_ends_nothing() -> None:
    alert = next(record for record in decided("orders") if record.topic == "headgate.decided.alerts")
    event = json.loads(alert.value or b"")
    event["data"]["policy"] = "x" * 5000
    assert retired(alert._replace(value=json.dumps(event).encode())) == []
