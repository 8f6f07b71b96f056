"""What the doctor reports about the writers of the decided topics."""

import time
from typing import Any

import pytest

from connectors.kafka import history, probes
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.probes import Authorized
from connectors.kafka.topics import TopicSettings
from policies.observations import Outcome
from policies.wire import ObservedRecord


@pytest.mark.parametrize(
    ("writers", "is_open", "detail"),
    [
        pytest.param(None, True, "no authorizer", id="no authorizer"),
        pytest.param({"User:*"}, True, "every user may write headgate.decided.alerts", id="all users"),
        pytest.param({"User:decide", "User:mallory"}, True, "User:decide, User:mallory may write", id="a second one"),
        pytest.param({"User:decide"}, False, "no decided topic has a second writer", id="the query alone"),
        pytest.param(set(), False, "no decided topic has a second writer", id="super users only"),
    ],
)
def test_the_doctor_warns_where_others_may_write_decisions(
    monkeypatch: pytest.MonkeyPatch, writers: set[str] | None, is_open: bool, detail: str
) -> None:
    monkeypatch.setattr(probes, "reach", lambda *_, **__: 1)
    monkeypatch.setattr(probes, "find_foreign_records", lambda *_: iter(()))
    found: Any = None if writers is None else frozenset(writers)
    monkeypatch.setattr(Authorized, "writers_of", lambda *_: found)
    each = probes.loop_probes(KafkaConnection(bootstrap_servers="k:9092"), TopicSettings(), ("decide",))
    (result,) = [probe.ask() for probe in each if probe.asks == "writers"]
    assert (result.is_open, detail in result.detail) == (is_open, True), result.detail


def test_the_doctor_names_the_topic_on_which_another_process_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    at_ms = time.time_ns() // 1_000_000
    alert = ObservedRecord("headgate.decided.alerts", 0, 0, at_ms, None)
    junk = [ObservedRecord("headgate.decided.throttle", 0, n, at_ms, b"junk") for n in range(3)]
    monkeypatch.setattr(probes, "reach", lambda *_, **__: 1)
    monkeypatch.setattr(history, "read_history", lambda *_: iter([alert, *junk]))
    each = probes.loop_probes(KafkaConnection(bootstrap_servers="k:9092"), TopicSettings(), ("decide",))
    (result,) = [probe.ask() for probe in each if probe.asks == "writers"]
    assert result.outcome is Outcome.ERROR
    assert result.detail.startswith("headgate.decided.throttle: 3 records of the last 10 min are no decisions")
