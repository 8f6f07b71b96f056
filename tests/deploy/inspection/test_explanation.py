"""What the audit says of a subject: by its end where only one ends so, and what was last reported on it."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from deploy.inspection import commands, views
from deploy.inspection.views import Audit
from deploy.settings.application import Settings
from policies.units import UserError, to_millis
from policies.wire import AUDIT_TYPE

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
KAFKA = KafkaConnection(bootstrap_servers="127.0.0.1:1")


def decision(number: int, subject: str) -> dict[str, Any]:
    decided = {
        "decision_id": f"d{number}", "policy": "throttle", "subject": subject, "cluster": "c", "evidence": [],
        "decided_at": (NOON - timedelta(minutes=10 - number)).isoformat(),
    }  # fmt: skip
    return {"type": AUDIT_TYPE, "data": {"decision_type": "headgate.throttle-factor.v1", "decision": decided}}


def report(number: int, outcome: str) -> dict[str, Any]:
    return {"type": "headgate.quota-applied.v1", "data": {"decision_id": f"d{number}", "outcome": outcome}}


def audit(monkeypatch: pytest.MonkeyPatch, events: Sequence[dict[str, Any]], subject: str) -> Audit:
    def read(*_: Any) -> Iterator[Record]:
        for number, event in enumerate(events):
            yield Record("headgate.audit", None, json.dumps(event).encode(), to_millis(NOON), 0, number)

    monkeypatch.setattr(views, "read_history", read)
    return Audit(KAFKA, "headgate", subject, NOON)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("messaging/acme/orders", ["messaging/acme/orders"]),
        ("acme/orders", ["messaging/acme/orders"]),
        ("stray:3181", ["messaging/stray:3181"]),
        ("payments", ["payments"]),
        ("orders", []),
        ("cme/orders", []),
        ("messaging", []),
        ("", []),
    ],
)
def test_a_subject_is_found_by_its_end_if_unique(monkeypatch: pytest.MonkeyPatch, asked: str, found: list[str]) -> None:
    subjects = ["messaging/acme/orders", "other/tenant/orders", "messaging/stray:3181", "payments", "archive/payments"]
    events = [decision(number, subject) for number, subject in enumerate(subjects)]
    assert [each.decision["subject"] for each in audit(monkeypatch, events, asked).explain()] == found


def test_what_is_repeated_has_the_report_on_the_decision_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [decision(1, "c"), report(1, "old"), decision(2, "c"), report(2, "applied"), decision(3, "c")]
    (explained,) = audit(monkeypatch, events, "c").explain()
    assert explained.reports == ()
    assert [each["outcome"] for each in explained.earlier_reports] == ["applied"]
    assert explained.as_json()["earlier_reports"][0]["outcome"] == "applied"


def test_what_was_reported_on_it_is_all_there_is_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [decision(1, "c"), report(1, "old"), decision(2, "c"), report(2, "applied"), decision(3, "other")]
    (explained,) = audit(monkeypatch, events, "c").explain()
    assert [each["outcome"] for each in explained.reports] == ["applied"]
    assert explained.earlier_reports == ()


def publish_report(target: str, minutes: float, outcome: str) -> dict[str, Any]:
    """One of the publish actuator, which carries out the decisions about all groups together and so names none."""
    return {
        "type": "headgate.publish-application.v1", "source": "headgate/actuator/publishing",
        "subject": f"c/{target}", "time": (NOON + timedelta(minutes=minutes)).isoformat(),
        "data": {"cluster": "c", "target": target, "outcome": outcome},
    }  # fmt: skip


def test_a_report_that_names_no_decision_is_on_all_of_its_policy_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    about_group, about_alert, about_disks = decision(1, "c/g1"), decision(2, "c/g1"), decision(3, "c")
    for each in (about_group, about_alert):
        each["data"]["decision"]["policy"] = "bookie_disks"
    about_alert["data"]["decision"]["alert"] = "ensemble-at-risk"
    said = (("a/b", -5, "failed"), ("a/b", -4, "applied"), ("a/c", 5, "no"))
    reports = [publish_report(*each) for each in said]
    events = [about_group, about_alert, about_disks, *reports]
    explained = audit(monkeypatch, events, "g1").explain()
    assert [[each["outcome"] for each in one.reports] for one in explained] == [["applied"], []]
    (throttled,) = audit(monkeypatch, events, "c").explain()
    assert throttled.reports == ()


def test_where_nothing_was_decided_the_time_that_was_asked_about_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "read_history", lambda *_: iter(()))
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    with pytest.raises(UserError, match=r"about c in the day before 2026-11-21T12:00:00\.000Z$"):
        commands.show_explanation(settings, "c", NOON, as_json=False)
