"""What is in force, as the topics tell it, and what the audit says of a subject."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from connectors.decided import DecisionsInForce, is_stale
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from deploy.inspection import commands, views
from deploy.inspection.views import Audit
from deploy.settings.application import Settings
from policies.decisions import Alert, Severity
from policies.units import UserError, to_millis
from policies.wire import AUDIT_TYPE, decision_event
from tests.connectors.alertmanager.test_notifier import NOON, alert, resolved
from tests.connectors.exporter.loop import ALERTS, DECIDED, PREFIX, START, Loop, log_dirs, members, standing


@pytest.fixture
def in_force() -> DecisionsInForce:
    return DecisionsInForce()


def record(of: Alert, **changed: Any) -> Record:
    stated = of.model_copy(update={"sequence": to_millis(of.decided_at), **changed})
    return Record(ALERTS, stated.record_key().encode(), decision_event(stated), to_millis(stated.decided_at))


def played(loop: Loop) -> list[Record]:
    loop.step(members(1, cluster=loop.cluster), log_dirs(300, cluster=loop.cluster))
    return [each for each in loop.records if each.topic == DECIDED]


def test_decisions_stand_in_order_of_cluster_policy_and_subject(in_force: DecisionsInForce) -> None:
    for cluster in ("payments", "audit"):
        in_force.fold_records(played(Loop(cluster=cluster)))
    assert [decision.subject for decision in in_force.decisions()] == ["audit", "payments"]


def test_alerts_that_fire_come_the_gravest_and_newest_first(in_force: DecisionsInForce) -> None:
    later = NOON + timedelta(minutes=1)
    old, new = (alert(subject=name, severity=Severity.WARNING) for name in ("old", "new"))
    grave, ended = alert(subject="grave", severity=Severity.CRITICAL), alert(subject="ended")
    in_force.fold_records([record(old), record(new, started_at=later), record(grave), record(ended)])
    in_force.fold_records([record(resolved(later, subject="ended"))])
    assert [each.subject for each in in_force.alerts()] == ["grave", "new", "old"]
    assert {each.subject for each in in_force.alerts(resolved=True)} == {"grave", "new", "old", "ended"}


@pytest.mark.parametrize(("after_seconds", "stale"), [(0, False), (179.9, False), (180, True)])
def test_a_decision_without_a_successor_is_stale_when_its_validity_is_over(
    in_force: DecisionsInForce, after_seconds: float, stale: bool
) -> None:
    in_force.fold_records(played(Loop()))
    (decision,) = in_force.decisions()
    assert is_stale(decision, decision.decided_at + timedelta(seconds=after_seconds)) is stale


def test_who_watches_is_no_decision_and_what_nobody_watches_any_more_is_stale(in_force: DecisionsInForce) -> None:
    in_force.fold_records([*played(Loop()), standing("throttle", START - timedelta(hours=1))])
    (decision,) = in_force.decisions()
    assert in_force.unwatched(START) == {("throttle", "payments")}
    assert is_stale(decision, START, in_force.unwatched(START))
    in_force.fold_records([standing("throttle", START)])
    assert in_force.decisions() == [decision]
    assert not is_stale(decision, START, in_force.unwatched(START))


class Outage:
    """A tail that has read all there is, and then loses Kafka."""

    caught_up = True

    def __init__(self, *_: object) -> None:
        self.problem: str | None = None

    def poll(self, _seconds: float) -> list[Record]:
        return []

    def close(self) -> None:
        """Close nothing."""


def test_what_is_watched_names_an_outage_and_its_ages_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "Tail", Outage)
    monkeypatch.setattr(commands, "reach", lambda *_: None)
    monkeypatch.setattr(commands, "_FRAME_SECONDS", 0.0)
    reader = commands.InForceReader(KafkaConnection(bootstrap_servers="k:1"), PREFIX)
    shown = commands.frames(reader, lambda _in_force, now: f"as of {now:%H:%M:%S.%f}")
    first, second = next(shown), next(shown)
    assert first != second
    reader._tail.problem = "kafka.bootstrap_servers: no answer"  # type: ignore[misc]
    console = Console(file=StringIO(), width=80)
    console.print(next(shown))
    assert "Not up to date: kafka.bootstrap_servers: no answer" in console.file.getvalue()  # type: ignore[attr-defined]


# What the audit says of a subject, and what was last reported on it.

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


@pytest.mark.parametrize(("last", "own", "earlier"), [("c", [], ["applied"]), ("other", ["applied"], [])])
def test_only_what_is_repeated_has_the_report_on_the_decision_before_it(
    monkeypatch: pytest.MonkeyPatch, last: str, own: list[str], earlier: list[str]
) -> None:
    events = [decision(1, "c"), report(1, "old"), decision(2, "c"), report(2, "applied"), decision(3, last)]
    (explained,) = audit(monkeypatch, events, "c").explain()
    shown = explained.as_json()
    assert [[each["outcome"] for each in shown[name]] for name in ("reports", "earlier_reports")] == [own, earlier]


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
    with pytest.raises(UserError, match=r"about c in the day before 2026-11-22T12:00:00\.000Z$"):
        commands.show_explanation(settings, "c", NOON, as_json=False)
