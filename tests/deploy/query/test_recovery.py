"""The pauses and firing alerts that a query without a checkpoint takes over."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from connectors.kafka.tail import Record
from deploy.query.recovery import find_open_alerts, find_pauses
from policies.decisions import AlertStatus, Issuer, Mode
from policies.pauses import PauseCommand, PolicyPause
from policies.recovery import OpenAlerts
from policies.units import to_millis
from policies.wire import decision_event, observation_event
from streaming.key_state import LastHeartbeat, emit_heartbeat
from tests.cases import for_each
from tests.policies.scenario import GB, HARD, Run, log_dirs, throttle

ALERTS = Run(throttle(HARD)).see(log_dirs(0, 3, GB // 2)).alerts
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
MONTH_END = NOON + 29 * DAY
PAUSED = PolicyPause(to_millis(MONTH_END), actor="alice", reason="upgrade")


def heartbeat(quiet: PolicyPause | None) -> Record:
    issuer = Issuer("throttle", "payments", Mode.ACTIVE, "cafe")
    _, (topic, key, value) = emit_heartbeat(issuer, LastHeartbeat(), to_millis(NOON), quiet)
    return Record(topic, key.encode(), value, to_millis(NOON))


def command(at: datetime, until: datetime | None) -> Record:
    reading = PauseCommand(cluster="payments", policy="throttle", until=until, actor="bob")
    return Record("commands", b"", observation_event(reading, id="c", source="cli", time=at), to_millis(at))


@for_each(
    ("quiet", "commands", "now", "found"),
    [
        pytest.param(PAUSED, [], NOON + DAY, True, id="its command is no longer kept"),
        pytest.param(PAUSED, [command(NOON - DAY / 2, MONTH_END)], NOON, False, id="its command is kept, and is read"),
        pytest.param(PAUSED, [command(NOON + DAY, None)], NOON + DAY, False, id="resumed since, and not read yet"),
        pytest.param(PAUSED, [command(NOON - SECOND, None)], NOON + DAY, False, id="the same, by a clock behind"),
        pytest.param(PAUSED, [], MONTH_END, False, id="over"),
        pytest.param(None, [], NOON, False, id="not paused"),
    ],
)
def test_a_pause_goes_on_without_the_checkpoint(
    quiet: PolicyPause | None, commands: list[Record], now: datetime, found: bool
) -> None:
    given = list(find_pauses([heartbeat(quiet)], commands, now))
    assert [(each.actor, each.reason, each.until, each.keep) for each in given] == (
        [("alice", "upgrade", MONTH_END, True)] if found else []
    )


@pytest.mark.parametrize(
    "forged",
    [{"paused_by": "x" * 5000}, {"pause_reason": "x" * 5000}, {"policy": ""}, {"policy": "x" * 500}, {"cluster": ""}],
)
def test_a_forged_heartbeat_keeps_no_query_from_starting(forged: dict[str, str]) -> None:
    record = heartbeat(PAUSED)
    event = json.loads(record.value or b"")
    event["data"] |= forged
    assert list(find_pauses([record._replace(value=json.dumps(event).encode())], [], NOON + DAY)) == []


def alert_record(status: str, cluster: str = "payments", sequence: int = 1) -> Record:
    (fired,) = [each for each in ALERTS if each.status.value == "firing"][:1]
    ended = {"status": AlertStatus.RESOLVED, "verdict": "resolved", "ended_at": NOON, "valid_until": None}
    alert = fired.model_copy(update={"cluster": cluster, "sequence": sequence, **(ended if status != "firing" else {})})
    return Record("alerts", alert.record_key().encode(), decision_event(alert), to_millis(NOON))


@pytest.mark.parametrize(
    ("alerts", "earlier", "found"),
    [
        pytest.param([alert_record("firing")], [], [1], id="one fires"),
        pytest.param([alert_record("firing"), alert_record("resolved", sequence=2)], [], [], id="it has ended"),
        pytest.param([alert_record("firing", "gone")], [], [], id="of a cluster that is not watched"),
        pytest.param([], [OpenAlerts(cluster="payments", policy="throttle")], [0], id="an earlier command is kept"),
    ],
)
def test_what_fires_is_taken_over(alerts: list[Record], earlier: list[OpenAlerts], found: list[int]) -> None:
    commands = [
        Record("commands", b"", observation_event(each, id="o", source="query", time=NOON), 0) for each in earlier
    ]
    given = list(find_open_alerts(alerts, commands, {"payments"}.__contains__))
    assert [len(each.alerts) for each in given] == found
