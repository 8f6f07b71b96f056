"""The parts of a process: its connections, which collectors and actuators the settings ask for, and what it exports."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.component import Component
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.membership import PartitionLease
from connectors.policy_io import ActuatorContext
from connectors.registration import PolicyConnectors
from connectors.zookeeper.session import NotConnectedError, ZooKeeperSession, describe_zookeeper_error
from deploy.processes import parts
from deploy.processes.parts import Connections, Process, acting, collecting, exporting
from deploy.processes.shared_components import Work
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


SESSIONS = {**ZOOKEEPER, "sessions": {}}
BOOKIE_URL, MEMBER_URL = {"bookie_url": "http://{host}:8000"}, {"member_url": "http://{member}"}


def collectors(settings: Settings, connections: Connections) -> Work:
    return collecting(settings, CollectorRegistry(), lambda *_: None, connections)


def collector_names(clusters: dict[str, Any]) -> list[str]:
    """Of the parts that collect."""
    settings = Settings.model_validate({"clusters": clusters})
    with Connections(settings) as connections, ExitStack() as opened:
        work, no_lease = collectors(settings, connections), cast("PartitionLease", None)
        held = work.of_shares(frozenset(range(SHARE_COUNT)))
        units = [work.open(cluster, held, no_lease) for cluster in settings.clusters if cluster in held]
        return [part.name for unit in units for part in opened.enter_context(unit)]


COLLECTED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a Kafka cluster": (KAFKA, ["collector of c1"]),
    "bookies by ZooKeeper": (BOOKIES, ["bookie collector of c1"]),
    "bookies by Pulsar": ({**PULSAR, "pulsar_bookies": BOOKIE_URL}, ["bookie collector of c1"]),
    "sessions": (SESSIONS, ["session collector of c1"]),
    "ownership": ({**SESSIONS, "ownership": {}}, ["session collector of c1", "ownership collector of c1"]),
    "health": ({**SESSIONS, **PULSAR, "health": MEMBER_URL}, ["session collector of c1", "health collector of c1"]),
}


@for_each(("cluster", "expected"), COLLECTED.values(), ids=COLLECTED)
def test_each_block_of_a_cluster_asks_for_its_collector(cluster: dict[str, Any], expected: list[str]) -> None:
    assert collector_names({"c1": cluster}) == expected


def test_every_cluster_has_collectors_of_its_own() -> None:
    assert collector_names({"payments": KAFKA, "orders": KAFKA}) == ["collector of payments", "collector of orders"]


@pytest.mark.parametrize("clusters", [{}, {"c1": ZOOKEEPER}, {"c1": PULSAR}], ids=["no cluster", "ZooKeeper", "Pulsar"])
def test_to_know_where_a_cluster_is_does_not_mean_to_watch_it(clusters: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="clusters: nothing is watched"):
        collector_names(clusters)


def test_a_process_collects_the_clusters_of_its_shares_each_by_itself() -> None:
    names_of_clusters = [f"c{number}" for number in range(30)]
    settings = Settings.model_validate({"clusters": dict.fromkeys(names_of_clusters, KAFKA)})
    with Connections(settings) as connections:
        work = collectors(settings, connections)
    shares = [frozenset(range(5)), frozenset(range(5, SHARE_COUNT))]
    held = [work.of_shares(each) for each in shares]
    assert held[0] | held[1] == set(names_of_clusters)
    assert not held[0] & held[1]
    assert all(share_of(cluster) in shares[0] for cluster in held[0])
    assert work.units(held[0]) == {cluster: {cluster} for cluster in held[0]}


def test_processes_share_only_with_those_that_collect_the_same() -> None:
    def group(**clusters: dict[str, Any]) -> str:
        settings = Settings.model_validate({"clusters": clusters})
        with Connections(settings) as connections:
            return collectors(settings, connections).group.name

    log_dirs = group(c1=KAFKA, c2=KAFKA)
    assert log_dirs == group(c2=KAFKA, c1=KAFKA)
    assert log_dirs == group(c1=KAFKA, c2=KAFKA, c3={}), "watched by others"
    others = [group(c1=KAFKA), group(c1=KAFKA, c3=KAFKA), group(c1=BOOKIES, c2=BOOKIES)]
    assert len({log_dirs, *others}) == 4


def watching(**clusters: dict[str, Any]) -> Settings:
    return Settings.model_validate({"clusters": clusters})


def test_all_who_ask_for_a_cluster_share_one_and_what_its_settings_do_not_name_is_none() -> None:
    with Connections(watching(c1={**ZOOKEEPER, **PULSAR}, c2=ZOOKEEPER, c3=KAFKA)) as connections:
        zookeeper, pulsar = connections.zookeeper("c1"), connections.pulsar("c1")
        assert zookeeper is not None
        assert pulsar is not None
        assert (connections.zookeeper("c1"), connections.pulsar("c1")) == (zookeeper, pulsar)
        assert connections.zookeeper("c2") not in (zookeeper, None)
        assert (connections.zookeeper("c3"), connections.pulsar("c3")) == (None, None)
    assert ended(zookeeper)


def ended(session: ZooKeeperSession | None) -> bool:
    assert session is not None
    with pytest.raises(NotConnectedError) as raised:
        session.client()
    return describe_zookeeper_error(raised.value) == "c1: our session has ended"


def test_a_clusters_end_with_the_last_who_uses_them_and_begin_anew_with_the_next() -> None:
    quick = watching(c1={"zookeeper": {"servers": NOWHERE, "timeout": "50ms"}})
    with Connections(quick) as connections:
        with connections.using(["c1"]):
            with connections.using(["c1"]):
                first = connections.zookeeper("c1")
            assert not ended(first)
        assert ended(first)
        with connections.using(["c1"]):
            assert connections.zookeeper("c1") is not first


@pytest.mark.parametrize("problem", [None, "the query failed and is being restarted: the JVM is gone"])
def test_the_metric_shows_the_problem_that_health_has(problem: str | None) -> None:
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    exporting(settings, registry := CollectorRegistry(), healthy=lambda: problem)
    assert registry.get_sample_value("headgate_loop_alive") == (0 if problem else 1)
