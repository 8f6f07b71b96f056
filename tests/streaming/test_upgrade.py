"""What an earlier version left behind, in its checkpoint and in the topics, is read by this one and gone on from.

`tests/data/upgrade/first.json` was written by the version before clusters ended with the settings: each policy's own
example, with the state kept for it and every record written. Never write it anew; add another file instead.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from connectors.exporter.loop_view import LoopView
from connectors.kafka.tail import Record
from policies.decisions import Decision
from policies.records import ObservedRecord
from policies.registry import POLICIES, decision_types
from policies.wire import EventReader
from streaming.host import PolicyHost
from streaming.intake import read_record
from streaming.key_state import decode, encode
from streaming.transition import reconcile

FILES = sorted((Path(__file__).parents[1] / "data" / "upgrade").glob("*.json"))
LEFT: list[tuple[str, dict[str, Any]]] = [
    (policy, left) for file in FILES for policy, left in json.loads(file.read_text()).items() if policy in POLICIES
]
of_each = pytest.mark.parametrize(("policy", "left"), LEFT, ids=[policy for policy, _ in LEFT])


def decided(left: dict[str, Any]) -> list[Decision]:
    reader: EventReader[Decision] = EventReader(decision_types())
    return [reader.read(value).data for topic, _, value in left["written"] if topic.startswith("decided.")]


def test_there_is_something_of_every_policy_that_an_earlier_version_had() -> None:
    assert {policy for policy, _ in LEFT} == set(POLICIES) - {"bookie_disks"}


@of_each
def test_state_of_an_earlier_version_is_gone_on_from(policy: str, left: dict[str, Any]) -> None:
    kind = POLICIES[policy]
    host = PolicyHost({policy: kind.examples().settings}, frozenset({left["cluster"]}))
    before = decode(base64.b64decode(left["remembered"]))
    now_ms = left["now_ms"] + 60_000
    last = [
        ObservedRecord(f"headgate.{topic}", 0, n, now_ms - 100, value.encode())
        for n, (topic, value) in enumerate(left["observed"])
    ]
    transition = reconcile(host, "headgate", (policy, left["cluster"]), before, last, now_ms)
    assert transition.key_state is not None
    assert transition.key_state.failures == 0
    assert not [key for topic, key, _ in transition.outputs if topic == "dead-letters"]
    assert decode(encode(transition.key_state)) == transition.key_state
    known = {(d.topic, d.record_key()): d.sequence for d in decided(left)}
    assert known
    again = [d for d in transition.decisions if (d.topic, d.record_key()) in known]
    assert all(d.sequence > known[d.topic, d.record_key()] for d in again)
    assert {d.decision_id for d in transition.decisions}.isdisjoint(d.decision_id for d in decided(left))


@of_each
def test_state_of_an_earlier_version_is_woken_in_time(policy: str, left: dict[str, Any]) -> None:
    host = PolicyHost({policy: POLICIES[policy].examples().settings})
    before = decode(base64.b64decode(left["remembered"]))
    transition = reconcile(host, "headgate", (policy, left["cluster"]), before, [], left["now_ms"] + 86_400_000)
    assert transition.wake_ms is not None, "a timer, so that a cluster that is watched no longer ends"


@of_each
def test_records_of_an_earlier_version_are_read(policy: str, left: dict[str, Any]) -> None:
    for topic, value in left["observed"]:
        assert read_record(value.encode(), topic).data.cluster == left["cluster"]
    view = LoopView("headgate", {policy: POLICIES[policy].examples().settings})
    records = [Record(f"headgate.{t}", k.encode(), v.encode(), left["now_ms"]) for t, k, v in left["written"]]
    taken = view.fold([r for r in records if not r.topic.endswith("audit")], live=False)
    assert len(taken) == len(decided(left))
    assert list(view.process_samples()) == []
    assert view.metrics(left["now_ms"])


def test_dead_letters_of_an_earlier_version_are_counted() -> None:
    view = LoopView("headgate", {})
    written = [each for file in FILES for each in json.loads(file.read_text())["dead-letters"]["written"]]
    view.fold([Record(f"headgate.{t}", k.encode(), v.encode(), 0) for t, k, v in written], live=True)
    assert sum(s.value for s in view.samples(0) if s.family.name == "headgate_dead_letters_total") == len(written)
