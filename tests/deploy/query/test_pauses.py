"""The pauses that a query without a checkpoint takes over."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from connectors.kafka.tail import Record
from deploy.query.pauses import find_pauses
from policies.decisions import Issuer, Mode
from policies.pauses import PauseCommand, PolicyPause
from policies.units import to_millis
from policies.wire import observation_event
from streaming.heartbeat import LastHeartbeat, emit_heartbeat

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


@pytest.mark.parametrize(
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
