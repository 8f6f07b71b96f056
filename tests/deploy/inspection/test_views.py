"""What a person sees of what is in force, on a terminal of any width."""

import re
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from connectors.decided import DecisionsInForce
from connectors.kafka.connection import KafkaConnection
from deploy.console.terminal import note_settings_file
from deploy.inspection import commands
from deploy.inspection.views import Explanation, alerts_view, decisions_view, explanation_view, status_view
from policies.decisions import Alert
from policies.observations import ReportResult
from policies.switching.state import SwitchStage
from policies.wire import decision_event
from tests.connectors.alertmanager.test_notifier import NOON, alert, resolved
from tests.connectors.exporter.loop import START, Loop, decided, paused, quota, reported
from tests.deploy.inspection.test_in_force import played, record
from tests.policies.switching.wire import WireWorld


def shown(view: RenderableType, width: int = 200, *, crop: bool = True) -> str:
    console = Console(width=width, record=True, file=None, highlight=False, quiet=True)
    console.print(view)
    with console.capture() as capture:
        console.quiet = False
        console.print(view, crop=crop)
    return capture.get()


@pytest.fixture
def in_force() -> DecisionsInForce:
    now = DecisionsInForce()
    now.fold_records(played(Loop()))
    return now


def test_nothing_is_said_to_be_nothing() -> None:
    assert shown(status_view(DecisionsInForce(), START)) == "Nothing is decided yet.\n"
    assert shown(decisions_view([], START)) == "No decision is in force.\n"
    assert shown(alerts_view([], START)) == "No alert fires.\n"


def test_the_status_says_of_each_cluster_the_sentence_in_force_and_what_fires(in_force: DecisionsInForce) -> None:
    in_force.fold_records([record(alert())])
    text = shown(status_view(in_force, START + timedelta(seconds=5)))
    (decision,) = in_force.decisions()
    assert decision.explanation in text
    assert "5 s ago" in text
    assert "critical: volume-below-hard-limit" in text
    assert "stale" not in text


def test_a_dead_loop_shows_as_stale(in_force: DecisionsInForce) -> None:
    later = START + timedelta(hours=1)
    assert "stale (1 of 1)" in shown(status_view(in_force, later))
    assert "stale" in shown(decisions_view(in_force.decisions(), later))


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


def test_a_narrow_terminal_wraps_by_words(in_force: DecisionsInForce) -> None:
    text = shown(status_view(in_force, START), width=60)
    assert max(map(len, text.splitlines())) <= 60
    (decision,) = in_force.decisions()
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


def test_the_status_says_what_is_set_and_that_it_is_paused(in_force: DecisionsInForce) -> None:
    in_force.fold_records([reported(quota(ReportResult.APPLIED, 65_536), START)])
    line = "wanted: factor 0.50; set: 65.5 kB/s a broker for user=alice since 2026-11-21 08:00:00 UTC by the quota"
    assert line in shown(status_view(in_force, START))
    in_force.fold_records([paused(START, START + timedelta(hours=1))])
    text = shown(status_view(in_force, START))
    assert f"PAUSED until 2026-11-21 09:00:00 UTC by alice (disks are swapped); {line}" in text
    (decision,) = in_force.decisions()
    assert decision.explanation in text
    paused_only = DecisionsInForce()
    paused_only.fold_records([paused(START, START + timedelta(hours=1))])
    assert "PAUSED until" in shown(status_view(paused_only, START)), "before the first decision"


def test_an_explanation_begins_with_what_is_wanted_and_what_is_set(in_force: DecisionsInForce) -> None:
    in_force.fold_records([reported(quota(ReportResult.APPLIED, 65_536), START)])
    (found,) = in_force.in_force(START)
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
