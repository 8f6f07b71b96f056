"""The quota actuator: a real cluster's quotas, as Kafka's own tool sees them; `test_closed_loop` has producers."""

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.quotas import QuotaClient
from connectors.kafka.topics import TopicSettings
from deploy.embedded.kafka import LOOPBACK, EmbeddedKafka
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.settings.application import default_cache_dir
from policies.decisions import Mode, deterministic_id
from policies.free_space.gate import FactorVerdict
from policies.throttle import ThrottleFactor
from policies.throttle.decisions import ThrottleReason, VolumeCounts
from policies.throttle.settings import DEFAULT, Entity
from policies.units import UserError
from policies.wire import decision_event
from tests.system.brokers import kill_broker
from tests.system.loop import Headgate, Topic, await_ready, http_get, produce, write_settings
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

CLUSTER = "payments"
MEGABYTE = 1_000_000
ANONYMOUS, APP = Entity(user="ANONYMOUS"), Entity(client_id="app")
ANY_CLIENT, ANY_USER, ALICE = Entity(client_id=DEFAULT), Entity(user=DEFAULT), Entity(user="alice", client_id="app")
EACH, NAMED_DEFAULT = Entity(DEFAULT, DEFAULT), Entity(client_id="default")
MIRROR, BOB = Entity("CN=mirror,O=io.strimzi"), Entity("bob")
_RIVAL_SECONDS = 6.0
COUNTS = VolumeCounts(counted=0, stale=0, departed=0)


@pytest.fixture
def unused_port() -> int:
    """A port for a broker that must know it beforehand."""
    return free_port()


class Watched:
    """The watched cluster, with a client of its quotas and with Kafka's own tool."""

    def __init__(self, kafka: EmbeddedKafka, jars: tuple[Path, ...]) -> None:
        self.kafka = kafka
        self._jars = jars
        self._client = QuotaClient(KafkaConnection(bootstrap_servers=kafka.bootstrap_servers), 5.0)

    def close(self) -> None:
        self._client.close()

    def rate(self, entity: Entity) -> int | None:
        self._client.describe()
        return self._client.read().rates.get(entity)

    def set(self, entity: Entity, rate: int | None) -> None:
        self.order(entity, rate)
        eventually(f"{entity} has {rate}", lambda: self.rate(entity) == rate)

    def order(self, entity: Entity, rate: int | None) -> None:
        """Set a quota that an actuator may have put back before anyone can read it."""
        self._client.describe()
        assert self._client.alter({entity: rate}) == {}

    def tool(self, *arguments: str) -> str:
        """What kafka-configs.sh says."""
        classes = ":".join(map(str, self._jars))
        servers = self.kafka.bootstrap_servers
        small = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        called = ("-cp", classes, "kafka.admin.ConfigCommand", "--bootstrap-server", servers, *arguments)
        command = [str(find_java()), *small, *called]
        tool = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert tool.returncode == 0, tool.stdout
        return tool.stdout.strip()


@pytest.fixture(scope="module")
def cluster(kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with EmbeddedKafka(tmp_path_factory.mktemp("watched"), kafka_jars, heap_mebibytes=160) as kafka:
        watched = Watched(kafka, kafka_jars)
        yield watched
        watched.close()


@pytest.fixture
def watched(cluster: Watched) -> Watched:
    for entity in (ANY_CLIENT, ANY_USER, ALICE, ANONYMOUS, APP, EACH, NAMED_DEFAULT, MIRROR, BOB):
        if cluster.rate(entity) is not None:
            cluster.set(entity, None)
    return cluster


class Decider:
    """Stands in for the query: publishes decisions."""

    def __init__(self, servers: str, prefix: str) -> None:
        self.servers = servers
        self.prefix = prefix
        self._sequence = 0

    def decide(self, factor: float, cluster: str = CLUSTER) -> ThrottleFactor:
        self._sequence += 1
        now = datetime.now(UTC)
        decision = ThrottleFactor(
            decision_id=deterministic_id("throttle", cluster, self._sequence, uuid.uuid4()),
            policy="throttle",
            cluster=cluster,
            subject=cluster,
            sequence=self._sequence,
            verdict=FactorVerdict.LOWER,
            reason=ThrottleReason.SOFT_LIMIT,
            explanation="as the test wants it",
            decided_at=now,
            mode=Mode.ACTIVE,
            settings_hash="x",
            factor=factor,
            previous_factor=None,
            raw_factor=factor,
            limiting=None,
            volumes=COUNTS,
            brokers=COUNTS,
            seconds_to_full=None,
            valid_until=now + timedelta(hours=6),
        )
        produce(self.servers, f"{self.prefix}.decided.throttle", (cluster, decision_event(decision)))
        return decision


@pytest.fixture
def decider(loop_kafka: str) -> Decider:
    return new_decider(loop_kafka)


def new_decider(loop_kafka: str) -> Decider:
    """With topics of its own."""
    prefix = f"q{uuid.uuid4().hex[:8]}"
    create_topics(KafkaConnection(bootstrap_servers=loop_kafka), TopicSettings(prefix=prefix))
    return Decider(loop_kafka, prefix)


def settings_of(
    decider: Decider, watched: Watched, folder: Path, port: int, entities: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Settings of an actuator: by cluster, the entity whose quota it sets."""
    kafka = {"bootstrap_servers": watched.kafka.bootstrap_servers, "timeout": "10s"}
    return {
        "kafka": {"bootstrap_servers": decider.servers},
        "topics": {"prefix": decider.prefix},
        "data_dir": str(folder / "data"),
        "http": {"port": port},
        "clusters": {
            cluster: {
                "kafka": {**kafka},
                "quotas": {
                    "entities": [{"base": 2 * MEGABYTE, **entity}],
                    "verify_interval": "1s",
                    "max_told_wait": "none",
                },
            }
            for cluster, entity in entities.items()
        },
        "policies": {"throttle": {"hard": {"available_bytes_below": 1}, "fallback_factor": 0.25}},
    }


@pytest.fixture
def settings(watched: Watched, decider: Decider, tmp_path: Path, free_port: int) -> dict[str, Any]:
    return settings_of(decider, watched, tmp_path, free_port, {CLUSTER: {"client_id": "default"}})


@contextmanager
def acting(settings: dict[str, Any], tmp_path: Path) -> Iterator[Headgate]:
    """`headgate act`, ready; it must end well and without a traceback."""
    file = write_settings(tmp_path / "headgate.yaml", **settings)
    with Headgate(["act", "-s", str(file)], tmp_path / "act.log") as headgate:
        await_ready(headgate, settings["http"]["port"])
        yield headgate
        if headgate.process.poll() is None:
            assert headgate.stop() == 0, headgate.output()
        assert "Traceback" not in headgate.output(), headgate.output()


def has(watched: Watched, entity: Entity, rate: int | None) -> float:
    """Await a rate; how long it took."""
    started = time.monotonic()
    eventually(f"{entity} has {rate}", lambda: watched.rate(entity) == rate)
    return time.monotonic() - started


def said(decider: Decider, **fields: Any) -> dict[str, Any]:
    """Await an application with these fields in the audit."""
    with Topic(decider.servers, f"{decider.prefix}.audit") as audit:

        def found() -> dict[str, Any] | None:
            return next((d for d in audit.data() if fields.items() <= d.items()), None)

        return eventually(f"an application with {fields}", found)


def metric(settings: dict[str, Any], name: str) -> dict[str, float]:
    """The series of one metric by their labels."""
    answer = http_get(settings["http"]["port"], "/metrics")
    assert answer is not None
    return {labels: float(value) for labels, value in re.findall(rf"^{name}({{.*}}) (\S+)$", answer[1], re.MULTILINE)}


# --- one actuator, of which each test has a cluster, and the client id of the same name


@dataclass
class Acted:
    """A cluster on which the shared actuator acts."""

    watched: Watched
    decider: Decider
    settings: dict[str, Any]
    cluster: str

    @property
    def client(self) -> Entity:
        return Entity(client_id=self.cluster)

    def decide(self, factor: float) -> ThrottleFactor:
        return self.decider.decide(factor, self.cluster)

    def has(self, rate: int | None) -> None:
        has(self.watched, self.client, rate)

    def rate(self) -> int | None:
        return self.watched.rate(self.client)

    def said(self, **fields: Any) -> dict[str, Any]:
        return said(self.decider, cluster=self.cluster, **fields)

    def metric(self, name: str) -> dict[str, float]:
        found = metric(self.settings, name)
        return {labels: value for labels, value in found.items() if f'cluster="{self.cluster}"' in labels}


OF_ONE_ACTUATOR = FACTOR, BY_HAND = ("factor", "by-hand")


@pytest.fixture(scope="module")
def shared(cluster: Watched, loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acted]:
    decider, folder = new_decider(loop_kafka), tmp_path_factory.mktemp("act")
    entities = {name: {"client_id": name} for name in OF_ONE_ACTUATOR}
    settings = settings_of(decider, cluster, folder, free_port(), entities)
    for block in settings["clusters"].values():
        block["quotas"]["cover"] = "listed"  # these clusters are one Kafka, and each has its own client id
    with acting(settings, folder):
        yield Acted(cluster, decider, settings, CLUSTER)


@pytest.fixture
def acted(shared: Acted, watched: Watched, request: pytest.FixtureRequest) -> Acted:
    """With the cluster that the test names."""
    return replace(shared, watched=watched, cluster=request.param)


@pytest.mark.parametrize("acted", [FACTOR], indirect=True)
def test_a_factor_is_a_quota_and_at_one_there_is_none_again(acted: Acted) -> None:
    decision = acted.decide(0.5)
    acted.has(MEGABYTE)
    seen = acted.watched.tool("--describe", "--entity-type", "clients", "--entity-name", FACTOR)
    assert f"client-id '{FACTOR}'" in seen
    assert "producer_byte_rate=1000000.0" in seen
    series = f'{{cluster="{FACTOR}",entity="client-id={FACTOR}"}}'
    eventually("its series", lambda: acted.metric("headgate_quota_bytes_per_second") == {series: MEGABYTE})
    applied = acted.said(verdict="set", rate_bytes_per_second=MEGABYTE)
    assert applied | {
        "entity": f"client-id={FACTOR}", "factor": 0.5, "sequence": decision.sequence,
        "decision_id": decision.decision_id, "reason": "decided", "previous_bytes_per_second": None,
        "outcome": "applied", "attempt": 1,
    } == applied  # fmt: skip
    acted.decide(0.0)
    acted.has(65_536)
    acted.decide(1.0)
    acted.has(None)
    acted.said(verdict="restore", rate_bytes_per_second=None)
    eventually("no series", lambda: acted.metric("headgate_quota_bytes_per_second") == {})
    labels = f'{{cluster="{FACTOR}",outcome="applied"}}'
    eventually("all are counted", lambda: acted.metric("headgate_quota_applications_total").get(labels) == 3)


@pytest.mark.parametrize("acted", [BY_HAND], indirect=True)
def test_a_change_by_hand_is_what_is_put_back_in_the_end(acted: Acted) -> None:
    acted.decide(0.5)
    acted.has(MEGABYTE)
    acted.said(verdict="set", reason="decided")
    acted.watched.set(acted.client, 1_700_000)
    acted.has(MEGABYTE)
    assert acted.said(reason="changed_by_hand")["previous_bytes_per_second"] == 1_700_000
    acted.decide(1.0)
    acted.has(1_700_000)


# --- actuators of their own


def test_what_was_there_before_is_put_back_exactly(
    watched: Watched, decider: Decider, settings: dict[str, Any], tmp_path: Path
) -> None:
    before = {ANY_USER: 3_333_333, ALICE: 2**63, ANY_CLIENT: None, NAMED_DEFAULT: 40 * MEGABYTE, MIRROR: 8 * MEGABYTE}
    # What else an entity has must not be touched.
    watched.tool(
        "--alter", "--entity-type", "users", "--entity-default",
        "--add-config", "producer_byte_rate=3333333,consumer_byte_rate=777",
    )  # fmt: skip
    for entity in (ALICE, NAMED_DEFAULT, MIRROR):
        watched.set(entity, before[entity])
    settings["clusters"][CLUSTER]["quotas"]["entities"] = [
        {"user": "default"},
        {"user": "alice", "client_id": "app", "base": "4MB"},
        {"client_id": "default", "base": "2MB"},
    ]
    with acting(settings, tmp_path):
        decider.decide(0.25)
        has(watched, ANY_CLIENT, 500_000)
        has(watched, ANY_USER, 833_333)
        has(watched, ALICE, MEGABYTE)
        has(watched, NAMED_DEFAULT, 10 * MEGABYTE)
        has(watched, MIRROR, 2 * MEGABYTE)
        decider.decide(1.0)
        for entity, rate in before.items():
            has(watched, entity, rate)
        seen = watched.tool("--describe", "--entity-type", "users", "--entity-default")
        assert "consumer_byte_rate=777.0" in seen
        assert "producer_byte_rate=3333333.0" in seen
    watched.tool("--alter", "--entity-type", "users", "--entity-default", "--delete-config", "consumer_byte_rate")


def test_nobody_escapes_a_stop_and_another_process_without_its_topics_restores_it(
    watched: Watched, decider: Decider, loop_kafka: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    originals = dict.fromkeys((ANONYMOUS, ANY_USER, APP), 50 * MEGABYTE) | {ANY_CLIENT: 3 * MEGABYTE}
    for entity, rate in originals.items():
        watched.set(entity, rate)
    settings["clusters"][CLUSTER]["quotas"]["verify_interval"] = "1h"
    with acting(settings, tmp_path) as headgate:
        decider.decide(0.0)
        for entity in originals:
            has(watched, entity, 65_536)
        _assert_a_rival_opens_it_for_moments_only(watched, decider)
        headgate.kill()
    settings["topics"]["prefix"] = new_decider(loop_kafka).prefix
    file = write_settings(tmp_path / "headgate.yaml", **settings)
    with Headgate(["act", "--release", "-s", str(file)], tmp_path / "release.log") as headgate:
        assert headgate.wait() == 0, headgate.output()
    assert "payments: client-id=<default> has 3.0 MB/s again" in headgate.output()
    assert {entity: watched.rate(entity) for entity in originals} == originals
    records = watched.tool("--describe", "--entity-type", "clients")
    assert not any(f"headgate.original:{entity}" in records for entity in ("user=ANONYMOUS", "client-id=<default>"))

    watched.set(MIRROR, 65_536)
    with Headgate(["act", "--release", "-s", str(file)], tmp_path / "again.log") as headgate:
        assert headgate.wait() == 2, headgate.output()
    assert "Not put back on payments: user=CN=mirror,O=io.strimzi: " in headgate.output()
    command = re.search(r"headgate (act --release --forget \S+)", headgate.output())
    assert command is not None, "what is printed can be pasted"
    with Headgate([*shlex.split(command[1]), "-s", str(file)], tmp_path / "forget.log") as headgate:
        assert headgate.wait() == 0, headgate.output()
    assert "user=CN=mirror,O=io.strimzi has 65.5 kB/s, which counts as its original" in headgate.output()


def _assert_a_rival_opens_it_for_moments_only(watched: Watched, decider: Decider) -> None:
    """An operator such as Strimzi's puts the quota back again and again; the next ordinary look is an hour away."""
    with Topic(decider.servers, f"{decider.prefix}.observed.quotas") as readings:
        for _ in range(4):
            time.sleep(_RIVAL_SECONDS)
            watched.order(ANONYMOUS, 50 * MEGABYTE)
            has(watched, ANONYMOUS, 65_536)
        told = eventually("it is told", lambda: next((r for r in reversed(readings.data()) if r["contested"]), None))
    (rival,) = told["contested"]
    assert (rival["entity"], rival["bytes_per_second"]) == ("user=ANONYMOUS", 50 * MEGABYTE)
    assert rival["period_seconds"] >= _RIVAL_SECONDS


def test_while_the_watched_cluster_is_away_it_is_reported_and_tried_again_with_its_own_quota_window(
    kafka_jars: tuple[Path, ...], decider: Decider, settings: dict[str, Any], tmp_path: Path
) -> None:
    window = {"quota.window.num": 61}
    first_step = ceil(2 * MEGABYTE * 61 / (61 + 0.75 * 30))
    with EmbeddedKafka(tmp_path / "mortal", kafka_jars, heap_mebibytes=128, server_properties=window) as kafka:
        block = settings["clusters"][CLUSTER]
        block["kafka"] |= {"bootstrap_servers": kafka.bootstrap_servers, "timeout": "5s"}
        block["quotas"]["max_told_wait"] = "30s"
        mortal = Watched(kafka, kafka_jars)
        try:
            with acting(settings, tmp_path):
                decider.decide(0.9)
                has(mortal, ANY_CLIENT, 1_800_000)
                kill_broker(kafka, 1)
                decider.decide(0.0)
                failed = said(decider, outcome="failed")
                assert failed["attempt"] == 5
                eventually("it fails", lambda: set(metric(settings, "headgate_quota_failing").values()) == {1})
                kafka.start_broker(1)
                has(mortal, ANY_CLIENT, first_step)
                assert said(decider, rate_bytes_per_second=first_step)["reason"] == "stepping"
                eventually("well again", lambda: set(metric(settings, "headgate_quota_failing").values()) == {0})
        finally:
            mortal.close()


def refused(settings: dict[str, Any], tmp_path: Path) -> str:
    """What `headgate act` says when it does not start."""
    file = write_settings(tmp_path / "headgate.yaml", **settings)
    with Headgate(["act", "-s", str(file)], tmp_path / "refused.log") as headgate:
        assert headgate.wait() == 2, headgate.output()
    assert "Traceback" not in headgate.output()
    return headgate.output()


def test_a_cluster_with_a_quota_callback_is_refused(
    kafka_jars: tuple[Path, ...], settings: dict[str, Any], tmp_path: Path, unused_port: int
) -> None:
    try:
        plugin = ensure_jars("quotas-plugin", default_cache_dir())
    except UserError as error:
        pytest.skip(f"the plugin's jars are not to be had: {error}")
    callback = "io.strimzi.kafka.quotas.StaticQuotaCallback"
    properties: dict[str, str | int] = {
        "client.quota.callback.class": callback,
        "client.quota.callback.static.kafka.admin.bootstrap.servers": f"{LOOPBACK}:{unused_port}",
        "client.quota.callback.static.storage.check-interval": 5,
        "client.quota.callback.static.storage.per.volume.limit.min.available.bytes": 1,
    }
    kafka = EmbeddedKafka(
        tmp_path / "plugged",
        (*kafka_jars, *plugin),
        ports=[unused_port],
        server_properties=properties,
        heap_mebibytes=128,
    )
    with kafka:
        settings["clusters"][CLUSTER]["kafka"]["bootstrap_servers"] = kafka.bootstrap_servers
        answer = refused(settings, tmp_path)
    assert f"clusters.payments.quotas: broker 1 has client.quota.callback.class={callback}" in answer
