"""What is in force and what the audit says, as a person sees them on a terminal of any width."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from connectors.decided import DecisionsInForce, is_stale
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record
from deploy.console.terminal import note_settings_file
from deploy.inspection import commands, views
from deploy.inspection.views import Audit, Explanation, alerts_view, decisions_view, explanation_view, status_view
from deploy.settings.application import Settings
from policies.decisions import Alert, Severity
from policies.observations import ReportResult
from policies.switching.state import SwitchStage
from policies.units import UserError, to_millis
from policies.wire import AUDIT_TYPE, decision_event
from tests.connectors.alertmanager.test_notifier import NOON, alert, resolved
from tests.connectors.exporter.loop import (
    ALERTS,
    DECIDED,
    PREFIX,
    START,
    Loop,
    decided,
    log_dirs,
    members,
    paused,
    quota,
    reported,
    standing,
)
from tests.policies.switching.wire import WireWorld


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


def audited(number: int, subject: str) -> dict[str, Any]:
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
    events = [audited(number, subject) for number, subject in enumerate(subjects)]
    assert [each.decision["subject"] for each in audit(monkeypatch, events, asked).explain()] == found


@pytest.mark.parametrize(("last", "own", "earlier"), [("c", [], ["applied"]), ("other", ["applied"], [])])
def test_only_what_is_repeated_has_the_report_on_the_decision_before_it(
    monkeypatch: pytest.MonkeyPatch, last: str, own: list[str], earlier: list[str]
) -> None:
    events = [audited(1, "c"), report(1, "old"), audited(2, "c"), report(2, "applied"), audited(3, last)]
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
    about_group, about_alert, about_disks = audited(1, "c/g1"), audited(2, "c/g1"), audited(3, "c")
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


# What a person sees of it.


def shown(view: RenderableType, width: int = 200, *, crop: bool = True) -> str:
    console = Console(width=width, record=True, file=None, highlight=False, quiet=True)
    console.print(view)
    with console.capture() as capture:
        console.quiet = False
        console.print(view, crop=crop)
    return capture.get()


@pytest.fixture
def decided_once() -> DecisionsInForce:
    now = DecisionsInForce()
    now.fold_records(played(Loop()))
    return now


def test_nothing_is_said_to_be_nothing() -> None:
    assert shown(status_view(DecisionsInForce(), START)) == "Nothing is decided yet.\n"
    assert shown(decisions_view([], START)) == "No decision is in force.\n"
    assert shown(alerts_view([], START)) == "No alert fires.\n"


def test_the_status_says_of_each_cluster_the_sentence_in_force_and_what_fires(decided_once: DecisionsInForce) -> None:
    decided_once.fold_records([record(alert())])
    text = shown(status_view(decided_once, START + timedelta(seconds=5)))
    (decision,) = decided_once.decisions()
    assert decision.explanation in text
    assert "5 s ago" in text
    assert "critical: volume-below-hard-limit" in text
    assert "stale" not in text


def test_a_dead_loop_shows_as_stale(decided_once: DecisionsInForce) -> None:
    later = START + timedelta(hours=1)
    assert "stale (1 of 1)" in shown(status_view(decided_once, later))
    assert "stale" in shown(decisions_view(decided_once.decisions(), later))


def test_of_many_subjects_the_verdicts_are_counted() -> None:
    now = DecisionsInForce()
    (template,) = played(Loop())
    for number in range(4):
        text = f"Producers of number {number} may write freely"
        decision = _decision_in(template).model_copy(update={"subject": f"payments/{number}", "explanation": text})
        key = decision.record_key().encode()
        now.fold_records([template._replace(key=key, value=decision_event(decision))])
        few = shown(status_view(now, START))
        assert text in few or number == 3
        assert few.count("Producers of number") == (number + 1) % 4, "each of up to three has its sentence"
    assert "4 " in shown(status_view(now, START))


def _decision_in(of: Any) -> Any:
    now = DecisionsInForce()
    now.fold_records([of])
    return now.decisions()[0]


def test_steps_give_way_to_what_tells_them_as_a_whole() -> None:
    now, switch = DecisionsInForce(), WireWorld()
    switch.to(SwitchStage.BUILD)
    now.fold_records([decided(each) for each in switch.published if not isinstance(each, Alert)])
    assert {type(each).__name__ for each in now.decisions()} == {"SwitchDecision", "SwitchRecord"}
    text = shown(status_view(now, START))
    assert text.count("switching") == 1
    assert "The switch of " in text


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    hostile = alert(summary="[bold]name[/bold] [/nonsense]", subject="[red]x")
    assert "[bold]name[/bold] [/nonsense]" in shown(alerts_view([hostile], NOON))


def test_a_narrow_terminal_wraps_by_words(decided_once: DecisionsInForce) -> None:
    text = shown(status_view(decided_once, START), width=60)
    assert max(map(len, text.splitlines())) <= 60
    (decision,) = decided_once.decisions()
    assert [word for word in decision.explanation.split() if word not in text.split()] == []


def explanation(**fields: Any) -> Explanation:
    (decided,) = played(Loop())
    decision = _decision_in(decided).model_dump(mode="json")
    given = {"decision_type": "headgate.throttle-factor.v1", "decision": decision, "numbers": {}, **fields}
    return Explanation(**given)


def test_an_explanation_is_the_sentence_the_meaning_of_its_words_and_what_it_rests_on() -> None:
    observation = {"id": "o2", "time": "2026-11-21T08:00:00Z", "subject": "payments/1", "data": {"outcome": "ok"}}
    report = {
        "type": "t", "source": "headgate/actuator/quotas", "time": "08:00:01", "outcome": "applied",
        "explanation": "The quota was set.",
    }  # fmt: skip
    explained = explanation(numbers={"usable_bytes": 300}, observations=(observation,), reports=(report,))
    text = shown(explanation_view(explained))
    assert str(explained.decision["explanation"]) in text
    assert re.search(r"usable_bytes +300 B", text)
    assert "payments/1  outcome ok" in text
    assert "headgate/actuator/quotas: outcome applied; The quota was set." in text
    assert f"{explained.decision['verdict']}: " in text


def test_evidence_that_is_no_longer_kept_is_named() -> None:
    explained = explanation()
    assert explained.missing == list(explained.decision["evidence"])
    assert "readings that the topics no longer contain" in shown(explanation_view(explained))
    assert explained.as_json()["evidence_no_longer_kept"] == explained.missing


def test_of_a_decision_that_is_repeated_the_report_on_the_one_before_it_is_shown() -> None:
    report = {"type": "t", "source": "headgate/actuator/quotas", "time": "08:00:01", "outcome": "applied"}
    text = shown(explanation_view(explanation(earlier_reports=(report,))))
    assert "this decision changed nothing that is set; the last report is on an earlier one" in text
    assert "headgate/actuator/quotas: outcome applied" in text


def test_what_nobody_reported_is_said_to_be_so_but_of_an_alert_which_nobody_carries_out() -> None:
    assert "no actuator has reported on it" in shown(explanation_view(explanation()))
    about = explanation(decision=alert().model_dump(mode="json"))
    assert not [word for word in ("carried out", "no actuator") if word in shown(explanation_view(about))]


SERVERS = ",".join(f"kafka-{number}.example.org:9092" for number in range(1, 6))


def runbook(**own: str) -> str:
    """What is shown of an alert about a volume `/d e`, given the values of the decision in force."""
    labels = {"broker": "3", "log_dir": "/d e"}
    about = alert(alert="volume-below-hard-limit", labels=labels).model_dump(mode="json")
    decision: Any = SimpleNamespace(policy="throttle", cluster=about["cluster"], runbook_values=lambda: own)
    cluster = SimpleNamespace(kafka=KafkaConnection(bootstrap_servers=SERVERS))
    settings: Any = SimpleNamespace(clusters={about["cluster"]: cluster})
    values = commands._runbook_values(about, settings, [decision])
    return shown(explanation_view(explanation(decision=about, runbook_values=values)), width=60, crop=False)


def test_the_commands_of_a_runbook_are_for_this_alert_and_no_terminal_breaks_them() -> None:
    note_settings_file(None)  # another test's command may have named one
    text = runbook(topic="or ders", broker="not the alert's")
    assert f"  kafka-configs.sh --bootstrap-server {SERVERS} \\\n  --alter --entity-type topics " in text
    assert "--entity-name 'or ders' \\\n  --add-config retention.ms=3600000\n" in text
    assert re.search(r"\n  headgate forget --cluster \S+ --broker 3 --log-dir '/d e'\n", text)
    assert "--entity-name TOPIC" in runbook(), "what fills it is not known"


def test_an_ended_alert_says_when_it_ended() -> None:
    text = shown(alerts_view([resolved(NOON)], NOON + timedelta(minutes=3)))
    assert "resolved: volume-below-hard-limit" in text
    assert "3 min ago" in text


def test_on_80_columns_an_alert_has_a_line_for_its_name_and_paths_stay_whole() -> None:
    path = "/var/lib/kafka-data-of-the-third-volume/broker-1/logs/kafka-logs-0001"
    text = shown(alerts_view([alert(summary=f"broker 3 {path} has 1.0 GB free")], NOON), width=80)
    first, *rest = text.splitlines()
    assert first.split()[:2] == ["critical:", "volume-below-hard-limit"]
    assert path in [word for line in rest for word in line.split()]


def test_the_status_says_what_is_set_and_that_it_is_paused(decided_once: DecisionsInForce) -> None:
    decided_once.fold_records([reported(quota(ReportResult.APPLIED, 65_536), START)])
    line = "wanted: factor 0.50; set: 65.5 kB/s a broker for user=alice since 2026-11-21 08:00:00 UTC by the quota"
    assert line in shown(status_view(decided_once, START))
    decided_once.fold_records([paused(START, START + timedelta(hours=1))])
    text = shown(status_view(decided_once, START))
    assert f"PAUSED until 2026-11-21 09:00:00 UTC by alice (disks are swapped); {line}" in text
    (decision,) = decided_once.decisions()
    assert decision.explanation in text
    paused_only = DecisionsInForce()
    paused_only.fold_records([paused(START, START + timedelta(hours=1))])
    assert "PAUSED until" in shown(status_view(paused_only, START)), "before the first decision"


def test_an_explanation_begins_with_what_is_wanted_and_what_is_set(decided_once: DecisionsInForce) -> None:
    decided_once.fold_records([reported(quota(ReportResult.APPLIED, 65_536), START)])
    (found,) = decided_once.in_force(START)
    text = shown(explanation_view(replace(explanation(), in_force=found)))
    first, second, third = text.splitlines()[:3]
    assert first == "throttle: factor 0.50 (soft_limit)"
    assert second.startswith("wanted: factor 0.50; set: 65.5 kB/s a broker for user=alice since")
    assert third.startswith("Producers of payments should be slowed to 0.50")


def test_numbers_are_tables_and_not_json() -> None:
    volumes = [
        {"broker": 1, "log_dir": "/a", "usable_bytes": 300_000, "seconds_to_full": 90.0},
        {"broker": 2, "log_dir": "[b]/b", "usable_bytes": 5_000, "seconds_to_full": None},
    ]
    numbers = {
        "raw_factor": 0.123456,
        "copied": 123_456,
        "copied_in_ms": 90_000,
        "hard": {"available_bytes_below": 100},
        "soft": None,
        "volumes": volumes,
    }
    lines = [line.split() for line in shown(explanation_view(explanation(numbers=numbers))).splitlines()]
    assert ["raw_factor", "0.123"] in lines
    assert ["copied", "123456"] in lines
    assert ["copied_in_ms", "90", "s"] in lines
    assert ["hard.available_bytes_below", "100", "B"] in lines
    assert ["broker", "log", "dir", "usable", "bytes", "seconds", "to", "full"] in lines
    assert ["1", "/a", "300", "kB", "90", "s"] in lines
    assert ["2", "[b]/b", "5.0", "kB", "-"] in lines


def test_rows_that_do_not_fit_the_terminal_are_lines() -> None:
    volumes = [{"broker": 1, "log_dir": f"/var/lib/{'kafka/' * 8}logs", "usable_bytes": 300_000, "standing": "fresh"}]
    text = " ".join(shown(explanation_view(explanation(numbers={"volumes": volumes})), width=80).split())
    assert "broker 1, log_dir" in text
    assert "usable_bytes 300 kB" in text
