"""Bookies on small real disks, a real Pulsar and a real Java producer, which each kind of limit slows down.

The collector, the policy and the actuator's worker run here without the loop, on real servers; `test_loop_isolation`
shows that the query routes shared readings, and `tests/connectors/bookie_disks` the rest of the actuator.

The sizes matter. Each disk has 300 MiB and gets 4 MB/s, so the 28 MiB from Headgate's default hard limit (0.88) to 0.90
are less than the loop's dead time and the unevenness of three bookies (0.905 was seen). The gate of this test therefore
closes at 0.75. A topic's data shares each entry log of 16 MiB with another topic, as in the 1 GiB logs of real bookies.
The last test leaves the disks full: no later test can use these servers.
"""

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry
from py4j.java_gateway import JavaGateway

from connectors.bookie_disks.collector import BookieDisksCollector
from connectors.bookie_disks.publishing import (
    BrokerLimits,
    NamespaceLimits,
    PublishAdmin,
    PublishMetrics,
    PublishWorker,
)
from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import PollMetrics
from connectors.pulsar.settings import PulsarAdmin
from deploy import cli
from policies.bookie_disks import BookieThrottle
from policies.bookie_disks.alerts import BELOW_SOFT, READ_ONLY, SUSPENDED
from policies.bookie_disks.policy import BookieDisksPolicy
from policies.bookie_disks.settings import PublishSettings
from policies.decisions import Alert, AlertStatus
from policies.free_space.levels import FactorDecision
from policies.observations import Observation, Reading
from tests.policies.bookie_disks.scenario import settings
from tests.policies.scenario import decide
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted
from tests.system.disks import small_disk, why_not_mountable
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_load import PulsarLoad, pulsar_clients
from tests.system.pulsar_topics import call, create_namespace
from tests.system.runbooks import Operator, commands_of
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

KINDS: Mapping[str, Any] = {"broker": BrokerLimits, "namespace": NamespaceLimits}


def _ignore(*_: object) -> None:
    """Nobody reads the reports and readings."""


@contextmanager
def publish_worker(pulsar: PulsarAdmin, by: str, base: int, floor: int = 65_536) -> Iterator[PublishWorker]:
    """A worker of one kind of limits; its reports go nowhere, and its connections are closed at the end."""
    block = PublishSettings.model_validate({"by": by, "base": base, "floor_bytes_per_second": floor})
    with ExitStack() as stack:
        kinds = {name: make(PublishAdmin(pulsar)) for name, make in KINDS.items()}
        for each in kinds.values():
            stack.callback(each.close)
        limits = kinds.pop(by)
        metrics, others = PublishMetrics(CollectorRegistry()), tuple(kinds.values())
        yield PublishWorker("messaging", block, settings(), limits, _ignore, _ignore, metrics, others)


MB = 1_000_000
BASE = 6 * MB
DISK_MEBIBYTES = 300
NAMESPACE = "acme/orders"
FLOOR = 200_000
_WINDOW_SECONDS = 5.0
"""A rate is measured over this time, so that the burst after a change of the limit does not count for much."""
_EARLY_GATE = {"soft": {"available_ratio_below": 0.35}, "hard": {"available_ratio_below": 0.25}}
"""Publishing is slowed as soon as there is data, and stopped much later."""


class Stack:
    """Three bookies with a disk each, one broker, and the settings that watch them."""

    def __init__(self, cluster: PulsarCluster, urls: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.pulsar = PulsarAdmin(admin_url=cluster.admin_url)
        self.watched = WatchedBookieDisks(bookie_url=next(iter(urls.values())), urls=dict(urls))
        self.readings: list[Any] = []
        metrics = PollMetrics(CollectorRegistry())
        self.collector = BookieDisksCollector("messaging", self.watched, self.pulsar, self._take, metrics)

    def _take(self, reading: Reading) -> None:
        self.readings.append(reading)

    def read(self) -> list[Any]:
        """Poll the bookies once."""
        self.readings.clear()
        self.collector.poll_once()
        return list(self.readings)

    def used(self) -> float:
        """The used share of the fullest disk."""
        return self.shares()[0]

    def shares(self) -> list[float]:
        """The used share of each disk, the fullest first."""
        return sorted((1 - d.usable_bytes / d.total_bytes for each in self.read() for d in each.dirs), reverse=True)

    def read_only(self) -> int:
        """The number of bookies that take no new data."""
        return sum(reading.read_only for reading in self.read())


def slow_order(factor: float) -> FactorDecision:
    """A decision about all bookies that holds for an hour."""
    about: dict[str, Any] = {"cluster": "messaging", "subject": "messaging/default"}
    return decide(factor, decided_at=datetime.now(UTC), valid_seconds=3600.0, **about)


def slow_to_a_tenth(admin_url: str, by: str) -> None:
    """Keep the factor at 0.1 until this process is killed."""
    with publish_worker(PulsarAdmin(admin_url=admin_url), by, BASE) as worker:
        worker.receive(slow_order(0.1), datetime.now(UTC))
        worker.run(Event())


@contextmanager
def small_pulsar(folder: Path, jars: Sequence[Path]) -> Iterator[Stack]:
    """Three bookies of 300 MiB with default thresholds, ensembles of 2."""
    with ExitStack() as stack:
        cluster = stack.enter_context(PulsarCluster(folder, jars, jars, bookies=0))
        urls = {}
        for number in range(3):
            port, disk = (
                free_port(),
                stack.enter_context(small_disk(folder / f"disk-{number}", mebibytes=DISK_MEBIBYTES)),
            )
            bookie = cluster.add_bookie(
                properties={
                    "httpServerEnabled": "true",
                    "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
                    "httpServerHost": "127.0.0.1",
                    "httpServerPort": port,
                    "ledgerDirectories": disk / "ledgers",
                    "indexDirectories": disk / "ledgers",
                    "diskUsageThreshold": "0.95",
                    "diskUsageWarnThreshold": "0.90",
                    "diskCheckInterval": 500,
                    "gcWaitTime": 1000,
                    "minorCompactionInterval": 2,
                    "majorCompactionInterval": 3,
                    "logSizeLimit": 16 * 1024 * 1024,
                }
            )
            urls[bookie.bookie_id] = f"http://127.0.0.1:{port}"
        cluster.add_broker(
            properties={
                "managedLedgerMaxEntriesPerLedger": 10,
                # Small ledgers, on the bookies with the most room: chance fills no bookie much more than the others.
                "bookkeeperDiskWeightBasedPlacementEnabled": "true",
                "bookkeeperClientGetBookieInfoIntervalSeconds": 1,
                "allowAutoTopicCreation": "true",
                "backlogQuotaDefaultLimitGB": -1,
                "retentionCheckIntervalInSeconds": 1,
            }
        )
        create_namespace(cluster, NAMESPACE)
        set_retention(cluster, -1)
        watched = Stack(cluster, urls)
        with closing(watched.collector):
            yield watched


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory, pulsar_jars: tuple[Path, ...]) -> Iterator[Stack]:
    if (why := why_not_mountable()) is not None:
        pytest.skip(why)
    with small_pulsar(tmp_path_factory.mktemp("disks"), pulsar_jars) as stack:
        yield stack


@pytest.fixture(scope="module")
def gateway(pulsar_jars: tuple[Path, ...]) -> Iterator[JavaGateway]:
    with pulsar_clients(pulsar_jars) as java:
        yield java


@pytest.fixture(scope="module")
def operator(pulsar: Stack, pulsar_admin_jars: tuple[Path, ...]) -> Operator:
    operator = Operator(pulsar.cluster.folder / "tools")
    operator.install_pulsar_admin(pulsar_admin_jars, pulsar.cluster.admin_url)
    return operator


def producing(pulsar: Stack, gateway: JavaGateway, topic: str) -> PulsarLoad:
    """A producer that wants to write 6 MB/s."""
    service_url = f"pulsar://127.0.0.1:{pulsar.cluster.brokers[0].service_port}"
    return PulsarLoad(gateway, service_url, f"{NAMESPACE}/{topic}", BASE)


class Headgate:
    """Collector, policy and worker, step by step."""

    def __init__(self, pulsar: Stack, worker: PublishWorker, **block: Any) -> None:
        self.pulsar = pulsar
        self.worker = worker
        self.worst_used = 0.0
        self.policy = BookieDisksPolicy("messaging", settings(**block))
        self.kept = NEVER_STEPPED
        self.last: BookieThrottle | None = None
        self.alerts: dict[str, Alert] = {}

    def fires(self, alert: str) -> bool:
        """Step once; returns whether an alert fires."""
        self.step()
        return alert in self.alerts and self.alerts[alert].status is AlertStatus.FIRING

    def step(self) -> float:
        """Read, decide and act once; returns the factor."""
        now = datetime.now(UTC)
        self.worst_used = max(self.worst_used, self.pulsar.used())
        seen = [Observation(f"{r.bookie}-{now.timestamp()}", now, r) for r in self.pulsar.readings]
        self.kept, step = step_hosted(self.policy, self.kept, seen, now)
        for decision in step.decisions:
            if isinstance(decision, Alert):
                self.alerts[decision.alert] = decision
            if isinstance(decision, BookieThrottle):
                self.last = decision
                self.worker.receive(decision, now)
        self.worker.reconcile(Event())
        assert self.last is not None
        return self.last.factor

    def steer(self, producer: PulsarLoad) -> float:
        """Step for some seconds; returns the bytes a second that were sent meanwhile."""
        sent, since = producer.sent_bytes, time.monotonic()
        while time.monotonic() < since + _WINDOW_SECONDS:
            self.step()
        return (producer.sent_bytes - sent) / (time.monotonic() - since)


@pytest.mark.parametrize("by", list(KINDS))
def test_each_kind_of_limit_slows_a_real_producer_and_is_released_without_a_loop(
    pulsar: Stack, gateway: JavaGateway, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with producing(pulsar, gateway, f"slow-{by}") as producer:
        eventually("the producer writes", lambda: producer.rate(1.0) > 0.5 * BASE)
        actuator = multiprocessing.get_context("spawn").Process(
            target=slow_to_a_tenth, args=(pulsar.cluster.admin_url, by)
        )
        actuator.start()
        eventually("the producer is slowed", lambda: producer.rate(3.0) < 0.25 * BASE)
        actuator.kill()
        actuator.join()
        # Nothing but the cluster has the originals now.
        assert release(pulsar, by, monkeypatch) == 0
        eventually("the producer is back", lambda: producer.rate(2.0) > 0.5 * BASE)
    assert_nothing_is_left(pulsar)
    delete_topic(pulsar, f"slow-{by}")


def test_by_the_commands_of_its_alerts_a_bookie_is_writable_again_and_collects_garbage(
    pulsar: Stack, operator: Operator
) -> None:
    url = next(iter(pulsar.watched.urls.values()))
    httpx.put(f"{url}/api/v1/bookie/state/readonly", json={"readOnly": True}, timeout=30).raise_for_status()
    with publish_worker(pulsar.pulsar, "namespace", BASE) as worker:
        headgate = Headgate(pulsar, worker)
        eventually("it is an alert", lambda: headgate.fires(READ_ONLY))
        assert headgate.alerts[READ_ONLY].reason == "by_hand"
        address = {"bookie_http": url.removeprefix("http://")}
        operator.run(commands_of("bookie_disks", READ_ONLY, **address))
        eventually("the alert ends", lambda: not headgate.fires(READ_ONLY))
    assert pulsar.read_only() == 0
    assert "Triggered GC" in operator.run(commands_of("bookie_disks", SUSPENDED, **address))


def test_publishing_is_slowed_before_any_bookie_stops_to_compact_and_shorter_retention_frees_it_again(
    pulsar: Stack, gateway: JavaGateway, operator: Operator
) -> None:
    """The commands of the alert shorten retention. The disks are small: 20 MB of a topic are kept in place of 1 GB."""
    with producing(pulsar, gateway, "old"), producing(pulsar, gateway, "new") as producer:
        eventually("the disks are at 0.55", lambda: pulsar.used() > 0.55)
    with (
        publish_worker(pulsar.pulsar, "namespace", BASE, FLOOR) as worker,
        producing(pulsar, gateway, "new") as producer,
    ):
        headgate = Headgate(pulsar, worker, min_hold="5s", stop_time="2s", **_EARLY_GATE)
        eventually("publishing is slowed", lambda: headgate.step() < 0.3)
        eventually("publishing goes on, slowed", lambda: 0 < headgate.steer(producer) < 0.5 * BASE)
        assert headgate.fires(BELOW_SOFT)
        before = operator.run(commands_of("bookie_disks", BELOW_SOFT, namespace=NAMESPACE), {"--size 1G": "--size 20M"})
        assert json.loads(before) == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        eventually("the space is free", lambda: headgate.step() == 1.0)
        eventually("the alert ends", lambda: not headgate.fires(BELOW_SOFT))
        eventually("the producer is back", lambda: producer.rate(2.0) > 0.5 * BASE)
    assert headgate.worst_used < 0.90
    assert pulsar.read_only() == 0
    assert_nothing_is_left(pulsar)
    set_retention(pulsar.cluster, -1)
    delete_topic(pulsar, "old")
    delete_topic(pulsar, "new")


def assert_nothing_is_left(pulsar: Stack) -> None:
    """The cluster is as it was before Headgate."""
    assert call(pulsar.cluster, "GET", "/admin/v2/brokers/configuration/values").json() == {}
    assert call(pulsar.cluster, "GET", f"/admin/v2/namespaces/{NAMESPACE}/properties").json() == {}
    rate = call(pulsar.cluster, "GET", f"/admin/v2/namespaces/{NAMESPACE}/publishRate").text
    assert rate in ("", "null")


def set_retention(cluster: PulsarCluster, minutes: int) -> None:
    """Keep data that nobody subscribes to; -1: for ever."""
    kept = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": minutes}
    call(cluster, "POST", f"/admin/v2/namespaces/{NAMESPACE}/retention", kept)


def delete_topic(pulsar: Stack, topic: str) -> None:
    call(pulsar.cluster, "DELETE", f"/admin/v2/persistent/{NAMESPACE}/{topic}?force=true")


def release(pulsar: Stack, by: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `headgate act --release`; returns its exit status."""
    block = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "clusters": {
            "messaging": {"pulsar": {"admin_url": pulsar.cluster.admin_url}, "publish": {"by": by, "base": BASE}}
        },
    }
    file = pulsar.cluster.folder / "settings.yaml"
    file.write_text(yaml.safe_dump(block))
    monkeypatch.setattr("sys.argv", ["headgate", "act", "--release", "--settings", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
