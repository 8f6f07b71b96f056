"""Recorded events of each policy give the decisions that stand beside them, byte for byte.

A change of behaviour shows here as a difference to read. When it is meant, write the decisions anew and look at the
difference before it is committed::

    python -m tests.streaming.test_golden_replays
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from deploy.settings.file import load_settings
from policies import registry
from policies.decisions import Alert
from policies.wire import decision_event
from streaming.replay import Recorded, Replay

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "replay"
POLICIES = sorted(path.name.removesuffix(".events.jsonl") for path in DATA.glob("*.events.jsonl"))
UNTIL = datetime(2026, 11, 21, 8, 8, tzinfo=UTC)
"""Some minutes after the last event: validity ends, holds end, heartbeats go on."""


def events(policy: str) -> list[bytes]:
    return (DATA / f"{policy}.events.jsonl").read_bytes().splitlines()


def decided(policy: str) -> bytes:
    """What `headgate replay` prints of the recorded events."""
    return b"".join(decision + b"\n" for decision in _decided(policy))


def _decided(policy: str) -> Iterator[bytes]:
    replay = Replay(load_settings(DATA / "settings.yaml").policy_host())
    records = [Recorded(f"{policy}:{number}", event) for number, event in enumerate(events(policy), 1)]
    yield from map(decision_event, replay.run(records, UNTIL))
    assert not replay.rejected


@pytest.mark.parametrize("policy", POLICIES)
def test_recorded_events_give_the_recorded_decisions(policy: str) -> None:
    ours, recorded = decided(policy).splitlines(), (DATA / f"{policy}.decided.jsonl").read_bytes().splitlines()
    for number, (one, other) in enumerate(zip(ours, recorded, strict=False), 1):
        assert one == other, f"{policy}.decided.jsonl:{number}"
    assert len(ours) == len(recorded)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_recorded_is_what_consumers_are_given_schemas_of(policy: str) -> None:
    schemas = ROOT / "docs/reference/schemas"
    lines = [*events(policy), *(DATA / f"{policy}.decided.jsonl").read_bytes().splitlines()]
    for event in map(json.loads, lines):
        schema = json.loads((schemas / f"{event['type']}.json").read_text())
        Draft202012Validator(schema).validate(event)
        named = schema["$defs"][schema["properties"]["data"]["$ref"].rpartition("/")[2]]["properties"]
        assert event["data"].keys() <= named.keys(), event["type"]


def test_every_alert_of_the_recorded_decisions_is_declared_with_its_severity() -> None:
    declared = {
        (kind.name, alert.name, each)
        for kind in registry.POLICIES.values()
        for alert in kind.alerts
        for each in alert.severities
    }
    lines = (line for policy in POLICIES for line in (DATA / f"{policy}.decided.jsonl").read_bytes().splitlines())
    alerts = [event["data"] for event in map(json.loads, lines) if event["type"] == Alert.event_type]
    raised = {(alert["policy"], alert["alert"], alert["severity"]) for alert in alerts}
    assert raised, "no alert is recorded: this shows nothing"
    assert raised <= declared


if __name__ == "__main__":
    for policy in POLICIES:
        (DATA / f"{policy}.decided.jsonl").write_bytes(decided(policy))
