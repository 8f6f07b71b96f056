"""`headgate promise`: what is sent, what is awaited, and what is said when nothing comes."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

import pytest
from prometheus_client import CollectorRegistry, Counter

from deploy.inspection import pausing
from deploy.policy_commands.placement import PromiseRequest, send_promise
from deploy.settings.application import Settings
from policies.decisions import Decision
from policies.isolation import IsolationSettings, IsolationState
from policies.isolation.policy import IsolationPolicy
from policies.isolation.settings import RuleSet
from policies.observations import Observation
from policies.units import UserError
from streaming.intake import reading_reader
from tests.policies.isolation.scenario import GROUPS, START, everything

SETTINGS = Settings.model_validate(
    {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "clusters": {"c1": {"zookeeper": {"servers": "127.0.0.1:1"}, "bookies": {}}},
    }
)


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
    request = PromiseRequest("c1", "acme/a", RuleSet.CURRENT, "until the new bookies are there", 5.0)
    placement = send_promise(SETTINGS, request)
    assert (placement.promise, placement.verdict) == ("current", "spills_to_secondary")
    (sent,) = loop.sent
    assert (sent["topic"], sent["key"], sent["subject"]) == ("headgate.observed.bookies", "c1", "c1/acme/a")
    assert (sent["data"]["promise"], sent["data"]["reason"]) == ("current", "until the new bookies are there")
    assert "@" in sent["data"]["actor"]
    assert send_promise(SETTINGS, PromiseRequest("c1", "acme/a", None, "", 5.0)).promise == "strict"


def test_where_nothing_is_decided_that_is_said(loop: FakeLoop) -> None:
    with pytest.raises(UserError, match=r"nothing was decided on acme/none by this promise within 0\.1 s"):
        send_promise(SETTINGS, PromiseRequest("c1", "acme/none", RuleSet.CURRENT, "", 0.1))
    assert len(loop.sent) == 1


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (PromiseRequest("c1", "acme", None), "--namespace: 'acme' is no namespace: write it as tenant/namespace"),
        (PromiseRequest("c1", "acme/", None), "--namespace: 'acme/' is no namespace"),
        (PromiseRequest("c1", "", None), "--namespace: '' is no namespace"),
        (PromiseRequest("c1", f"acme/{'a' * 600}", None), "--namespace: String should have at most 512 characters"),
        (PromiseRequest("c1", "acme/a", None, "x" * 3000), "--reason: String should have at most"),
    ],
)
def test_what_no_record_takes_is_a_mistake_and_nothing_is_sent(
    loop: FakeLoop, request_: PromiseRequest, said: str
) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        send_promise(SETTINGS, request_)
    assert loop.sent == []


def test_a_cluster_that_the_settings_do_not_name_is_refused(loop: FakeLoop) -> None:
    with pytest.raises(UserError, match="--cluster: the settings name no cluster 'c2'"):
        send_promise(SETTINGS, PromiseRequest("c2", "acme/a", RuleSet.CURRENT))
    assert loop.sent == []
