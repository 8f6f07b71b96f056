"""`headgate promise`, `forget` and `adopt`: what is sent, what is awaited, and what is said when nothing comes."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry, Counter
from typer.testing import CliRunner

from deploy.commands.root import app
from deploy.inspection import pausing
from deploy.policy_commands import requests
from deploy.policy_commands.requests import adopt_cluster, forget_log_dir, send_promise
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.isolation import IsolationSettings, IsolationState
from policies.isolation.policy import IsolationPolicy
from policies.isolation.settings import RuleSet
from policies.observations import Observation, Reading
from policies.throttle.fold import AdoptCommand, ForgetCommand
from policies.units import UserError
from streaming.transition import reading_reader
from tests.cases import for_each
from tests.policies.isolation.scenario import GROUPS, START, everything
from tests.policies.scenario import HARD, Run, log_dirs, members, throttle

KAFKA, ZOOKEEPER = {"bootstrap_servers": "127.0.0.1:1"}, {"servers": "127.0.0.1:1"}
SETTINGS = Settings.model_validate({"kafka": KAFKA, "clusters": {"c1": {"zookeeper": ZOOKEEPER, "bookies": {}}}})
WATCHED = Settings.model_validate({"kafka": KAFKA, "clusters": {"payments": {"kafka": {"bootstrap_servers": "b:1"}}}})


class FakeLoop:
    """The query, as the topics show it: steps the policy with what is published, and gives what it decides."""

    def __init__(self, *, is_running: bool = True) -> None:
        self.is_running = is_running
        self.sent: list[dict[str, Any]] = []
        self._policy = IsolationPolicy("c1", IsolationSettings())
        self._state: IsolationState | None = None
        self._placements: dict[str, Decision] = {}
        self._now = START
        self._step(everything(0, "bk1 bk11", GROUPS, {"acme/a": "default"}))

    def _step(self, observations: Sequence[Observation]) -> None:
        step = self._policy.step(self._state, observations, self._now)
        self._state = step.state
        self._placements |= {decision.record_key(): decision for decision in step.decisions}

    def publish(self, topic: str, key: str, record: bytes) -> None:
        self.sent.append({"topic": topic, "key": key, **json.loads(record)})
        if self.is_running:
            event = reading_reader().read(record)
            self._now += timedelta(seconds=1)
            self._step([Observation(event.id, self._now, event.data)])

    def decisions(self) -> list[Decision]:
        return list(self._placements.values())


class FakeReader:
    """The decisions in force."""

    loop: FakeLoop

    def __init__(self, *_given: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing to close."""

    def now(self) -> FakeLoop:
        return self.loop

    poll = now


class FakePublisher(FakeReader):
    """The observed topic."""

    def __init__(self, _connection: Any, published: Counter, **_given: Any) -> None:
        self._published = published

    def publish(self, topic: str, key: str, record: bytes) -> None:
        self._published.labels(topic).inc()
        self.loop.publish(topic, key, record)

    def flush(self, _seconds: float) -> None:
        """All has arrived."""


def published(registry: CollectorRegistry) -> Counter:
    return Counter("headgate_records_published", "As the real one.", ("topic",), registry=registry)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    FakeReader.loop = FakeLoop()
    monkeypatch.setattr(pausing, "InForceReader", FakeReader)
    monkeypatch.setattr(pausing, "Publisher", FakePublisher)
    monkeypatch.setattr(pausing, "PublisherMetrics", published)
    return FakeReader.loop


def test_it_is_sent_with_who_and_why_and_answered_by_the_placement_it_leads_to(loop: FakeLoop) -> None:
    placement = send_promise(SETTINGS, "c1", "acme/a", RuleSet.CURRENT, "until the new bookies are there", 5.0)
    assert (placement.promise, placement.verdict) == ("current", "spills_to_secondary")
    (sent,) = loop.sent
    assert (sent["topic"], sent["key"], sent["subject"]) == ("headgate.observed.bookies", "c1", "c1/acme/a")
    assert (sent["data"]["promise"], sent["data"]["reason"]) == ("current", "until the new bookies are there")
    assert "@" in sent["data"]["actor"]
    assert send_promise(SETTINGS, "c1", "acme/a", None, "", 5.0).promise == "strict"


def test_where_nothing_is_decided_that_is_said(loop: FakeLoop) -> None:
    said = r"nothing was decided on acme/none by this promise within 0\.1 s: the query may not be running, or the names"
    with pytest.raises(UserError, match=said):
        send_promise(SETTINGS, "c1", "acme/none", RuleSet.CURRENT, "", 0.1)
    assert len(loop.sent) == 1


@for_each(
    ("cluster", "namespace", "reason", "said"),
    [
        ("c1", "acme", "", "--namespace: 'acme' is no namespace: write it as tenant/namespace"),
        ("c1", f"acme/{'a' * 600}", "", "--namespace: String should have at most 512 characters"),
        ("c1", "acme/a", "x" * 3000, "--reason: String should have at most"),
        ("c2", "acme/a", "", "--cluster: the settings name no cluster 'c2'"),
    ],
)
def test_what_no_record_takes_is_a_mistake_and_nothing_is_sent(
    loop: FakeLoop, cluster: str, namespace: str, reason: str, said: str
) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        send_promise(SETTINGS, cluster, namespace, None, reason, 1.0)
    assert loop.sent == []


def test_it_is_answered_by_the_factor_that_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    (decision,) = Run(throttle(HARD)).see(log_dirs(0, 1, 0)).decisions
    sent: list[Reading] = []

    def ask(_: Settings, policy: str, command: Reading, kind: type[Decision], answers: Any, **__: Any) -> Decision:
        sent.append(command)
        assert (policy, kind) == ("throttle", type(decision))
        assert [answers(decision.model_copy(update={"evidence": of}), "id") for of in ((), ("id",))] == [False, True]
        return decision

    monkeypatch.setattr(requests, "ask", ask)
    assert forget_log_dir(WATCHED, "payments", 7, "/disk2", "replaced", 1.0).factor == 0.0
    (command,) = sent
    assert isinstance(command, ForgetCommand)
    assert (command.policy, command.broker, command.log_dir, command.reason) == ("throttle", 7, "/disk2", "replaced")
    assert "@" in command.actor


def test_a_mistake_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UserError, match="settings name no cluster 'orders'; there is payments"):
        forget_log_dir(WATCHED, "orders", 7, "/a", "", 1.0)
    with pytest.raises(UserError, match="--log-dir: String"):
        forget_log_dir(WATCHED, "payments", 7, "", "", 1.0)
    assert CliRunner().invoke(app, ["forget", "--cluster", "payments", "--broker", "7"]).exit_code == 2


def test_there_is_nothing_to_adopt_unless_the_alert_names_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [members(0, 1), log_dirs(0, 1, 0), log_dirs(60, 1, 0)]
    of = [o.reading.model_copy(update={"cluster_id": i}) for o, i in zip(known, ("old", "old", "new"), strict=True)]
    alerts = Run(throttle(HARD)).feed([replace(o, reading=r) for o, r in zip(known, of, strict=True)]).alerts
    reader, asked = MagicMock(), list[Reading]()
    monkeypatch.setattr(requests, "InForceReader", reader)
    monkeypatch.setattr(requests, "ask", lambda _s, _p, command, *_, **__: asked.append(command))
    now = reader.return_value.__enter__.return_value.now.return_value
    now.alerts.return_value = [a for a in alerts if a.alert != "cluster-replaced"]
    with pytest.raises(UserError, match="the alert cluster-replaced does not fire for payments"):
        adopt_cluster(WATCHED, "payments", "", 1.0)
    now.alerts.return_value = alerts
    adopt_cluster(WATCHED, "payments", "set up again", 1.0)
    (command,) = asked
    assert isinstance(command, AdoptCommand)
    assert (command.cluster_id, command.reason) == ("new", "set up again")
