"""Which actuators the settings ask for: none unless a block allows it, and one for all clusters alike."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.component import Component
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.policy_io import ActuatorContext
from connectors.registration import PolicyConnectors
from deploy.processes import parts
from deploy.processes.parts import Connections, Process, acting
from deploy.settings.application import Settings
from policies.units import UserError
from policies.wire import SHARE_COUNT, share_of
from tests.cases import for_each

NOWHERE = "127.0.0.1:1"
KAFKA = {"kafka": {"bootstrap_servers": NOWHERE}}
ZOOKEEPER = {"zookeeper": {"servers": NOWHERE}}
PULSAR = {"pulsar": {"admin_url": f"http://{NOWHERE}"}}
QUOTAS = {**KAFKA, "quotas": {"entities": [{"client_id": "default", "base": 1_000_000}]}}
BOOKIES = {**ZOOKEEPER, "bookies": {}}
SWITCHING = {**ZOOKEEPER, "bookkeeper": {"bootstrap": "old", "clusters": {"old": {}}}, "switching": {}}
ON = {"quarantine": "on"}
QUARANTINE_ON = {"isolation": ON}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher(KafkaConnection(bootstrap_servers=NOWHERE), PublisherMetrics(CollectorRegistry())) as publisher:
        yield publisher


def names(
    publisher: Publisher, tmp_path: Path, clusters: dict[str, Any], policies: dict[str, Any] | None = None
) -> list[str]:
    """Of the parts that carry decisions out, each of which can say whether it is ready."""
    settings = Settings.model_validate(
        {"kafka": KAFKA["kafka"], "data_dir": str(tmp_path), "clusters": clusters, "policies": policies or {}}
    )
    with Connections(settings) as connections, ExitStack() as opened:
        work = acting(Process(settings, CollectorRegistry(), publisher, connections))
        if work is None:
            return []
        units = work.units(work.of_shares(frozenset(range(SHARE_COUNT))))
        lease: Any = SimpleNamespace(holds=lambda _share: True)
        parts = [part for unit in units.items() for part in opened.enter_context(work.open(*unit, lease))]
        assert all(part.ready is not None and part.ready() is not None for part in parts), "none has read anything yet"
        return [part.name for part in parts]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "quotas": ({"c1": QUOTAS}, {}, ["quota actuator"]),
    "quotas of two clusters": ({"c1": QUOTAS, "c2": QUOTAS}, {}, ["quota actuator"]),
    "bookies with quarantine on": ({"c1": BOOKIES}, QUARANTINE_ON, ["quarantine actuator"]),
    "unload": ({"c1": {**PULSAR, "unload": {}}}, {}, ["unload actuator"]),
    "switching": ({"c1": SWITCHING}, {}, ["switch executor"]),
    "all of them": (
        {"c1": QUOTAS, "c2": BOOKIES, "c3": {**PULSAR, "unload": {}}, "c4": SWITCHING},
        QUARANTINE_ON,
        ["quota actuator", "quarantine actuator", "unload actuator", "switch executor"],
    ),
    "no cluster": ({}, {}, []),
    "Kafka alone": ({"c1": KAFKA}, {}, []),
    "quarantine off": ({"c1": BOOKIES}, {}, []),
    "quarantine off for this one": (
        {"c1": BOOKIES},
        {"isolation": {**ON, "clusters": {"c1": {"quarantine": "off"}}}},
        [],
    ),
    "Pulsar alone": ({"c1": PULSAR}, {}, []),
    "BookKeeper alone": ({"c1": {**SWITCHING, "switching": None}}, {}, []),
}


@for_each(("clusters", "policies", "expected"), CASES.values(), ids=CASES)
def test_each_kind_has_one_actuator_for_all_clusters_that_allow_it(
    publisher: Publisher, tmp_path: Path, clusters: dict[str, Any], policies: dict[str, Any], expected: list[str]
) -> None:
    assert names(publisher, tmp_path, clusters, policies) == expected


def test_quotas_of_what_is_no_kafka_cluster_are_a_mistake(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises((UserError, ValidationError), match=r"needs kafka\.bootstrap_servers"):
        names(publisher, tmp_path, {"c1": {**ZOOKEEPER, "quotas": QUOTAS["quotas"]}})


def test_actuators_are_made_anew_only_where_a_cluster_of_theirs_changes(publisher: Publisher, tmp_path: Path) -> None:
    clusters = {f"k{n}": QUOTAS for n in range(20)} | {f"u{n}": {**PULSAR, "unload": {}} for n in range(2)}
    settings = Settings.model_validate({"kafka": KAFKA["kafka"], "data_dir": str(tmp_path), "clusters": clusters})
    with Connections(settings) as connections:
        work = acting(Process(settings, CollectorRegistry(), publisher, connections))
        assert work is not None
    everything = frozenset(range(SHARE_COUNT))
    unloaded = {share_of(name) for name in clusters if name.startswith("u")}
    given_up = next(share_of(name) for name in clusters if share_of(name) not in unloaded)
    before, after = (work.units(work.of_shares(shares)) for shares in (everything, everything - {given_up}))
    assert before["sessions"] == after["sessions"] == {"u0", "u1"}
    assert before["throttle"] > after["throttle"]
    assert "isolation" not in before


def test_actuators_know_what_is_theirs(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ActuatorContext] = []

    def noted(context: ActuatorContext) -> Iterator[Component]:
        seen.append(context)
        yield from ()

    connectors = PolicyConnectors(actuators=noted, acts_with=("quotas",))
    monkeypatch.setattr(parts, "connectors_of", lambda _kind: connectors)
    settings = Settings.model_validate(
        {"kafka": KAFKA["kafka"], "data_dir": str(tmp_path), "clusters": {"c1": QUOTAS, "c2": QUOTAS, "c3": KAFKA}}
    )
    lease: Any = SimpleNamespace(holds=lambda share: share == share_of("c1"))
    with Connections(settings) as connections:
        work = acting(Process(settings, CollectorRegistry(), publisher, connections))
        assert work is not None
        with work.open("throttle", frozenset({"c1"}), lease):
            (context,) = seen
    assert set(context.clusters) == {"c1"}
    assert [context.may_act(name) for name in ("c1", "c2")] == [True, False]


class Recorder:
    """A publisher, and the one that it makes to be patient."""

    def __init__(self, name: str, took: list[tuple[str, str]]) -> None:
        self._name, self._took = name, took

    def publish(self, topic: str, key: str, value: bytes | None) -> None:
        self._took.append((self._name, topic))

    @contextmanager
    def patient(self) -> Iterator["Recorder"]:
        yield Recorder("until Kafka takes it", self._took)


def test_reports_and_answers_wait_until_kafka_takes_them_and_readings_do_not() -> None:
    """A report that was given up would be missing until the next change."""
    took: list[tuple[str, str]] = []
    publisher: Any = Recorder("for seconds", took)
    with parts.publishing_reports(publisher, lambda topic: f"h.{topic}") as (publish, publish_answer):
        for topic in ("audit", "applied.reports", "applied.quotas", "observed.quotas", "observed.switches"):
            publish(f"h.{topic}", "c1", b"")
        publish_answer("h.observed.switches", "c1", b"")
    assert [topic for how, topic in took if how == "for seconds"] == ["h.observed.quotas", "h.observed.switches"]
    assert len(took) == 6
