"""What the doctor reports about the writers of the decided topics."""

from typing import Any

import pytest

from connectors.kafka import probes
from connectors.kafka.authorized import Authorized
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import TopicSettings


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
    found: Any = None if writers is None else frozenset(writers)
    monkeypatch.setattr(Authorized, "writers_of", lambda *_: found)
    each = probes.loop_probes(KafkaConnection(bootstrap_servers="k:9092"), TopicSettings(), ("decide",))
    (result,) = [probe.ask() for probe in each if probe.asks == "writers"]
    assert (result.is_open, detail in result.detail) == (is_open, True), result.detail
