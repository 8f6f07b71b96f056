"""Bookies on small real disks, a real Pulsar and a real Java producer, which each kind of limit slows down.

The collector, the policy and the actuator's worker run here without the loop, on real servers; `test_loop_isolation`
shows that the query routes shared readings, and `tests/connectors/bookie_disks` the rest of the actuator.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from connectors.bookie_disks.collector import BookieDisksCollector, WatchedBookieDisks
from connectors.bookie_disks.publishing.limits import BrokerLimits, NamespaceLimits, PublishAdmin, ResourceGroupLimits
from connectors.bookie_disks.publishing.reports import PublishMetrics
from connectors.bookie_disks.publishing.worker import PublishWorker, WatchedPublishing
from connectors.collection.poll_metrics import PollMetrics
from connectors.pulsar.connection import PulsarAdmin
from deploy import cli
from policies.bookie_disks import BookieDisksPolicy, BookieDisksState, BookieThrottle
from policies.bookie_disks.publish_settings import PublishSettings
from policies.free_space.orders import FactorOrder
from policies.observations import Observation, Reading
from tests.policies.bookie_disks.scenario import settings
from tests.system.disks import small_disk, why_not_mountable
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import call, create_namespace
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

MB = 1_000_000
BASE = 6 * MB
DISK_MEBIBYTES = 300
MESSAGE_BYTES = 100_000
NAMESPACE = "acme/orders"
KINDS: Mapping[str, Any] = {"broker": BrokerLimits, "namespace": NamespaceLimits, "resource_group": ResourceGroupLimits}


class Stack:
    """Three bookies with a disk each, one broker, and the settings that watch them."""

    def __init__(self, cluster: PulsarCluster, urls: Mapping[str, str], jars: Sequence[Path]) -> None:
        self.cluster = cluster
        self.jars = jars
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

    @contextmanager
    def worker(self, by: str) -> Iterator[PublishWorker]:
        with ExitStack() as stack:
            kinds = {name: make(PublishAdmin(self.pulsar)) for name, make in KINDS.items()}
            for each in kinds.values():
                stack.callback(each.close)
            limits, block = kinds.pop(by), PublishSettings.model_validate({"by": by, "base": BASE})
            watched = WatchedPublishing("messaging", block, settings())
            metrics = PublishMetrics(CollectorRegistry())
            yield PublishWorker(watched, limits, lambda *_: None, metrics, tuple(kinds.values()))


class Producer:
    """A Java producer that sends 6 MB/s as long as the broker takes them."""

    def __init__(self, gateway: JavaGateway, url: str, topic: str) -> None:
        builder = gateway.jvm.org.apache.pulsar.client.api.PulsarClient.builder()
        self._client = builder.serviceUrl(url).build()
        made, wait, batch = self._client.newProducer().topic(f"persistent://{topic}"), True, False
        self._producer = made.maxPendingMessages(20).blockIfQueueFull(wait).enableBatching(batch).create()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.refused = ""
        self._thread.start()

    def _run(self) -> None:
        payload, due = b"x" * MESSAGE_BYTES, time.monotonic()
        while not self._stop.is_set():
            try:
                self._producer.sendAsync(payload)
            except Exception as error:  # of the client: it is shown where the test looks
                self.refused = str(error)
                return
            self.sent += MESSAGE_BYTES
            due = max(due + MESSAGE_BYTES / BASE, time.monotonic() - 1)
            self._stop.wait(max(0.0, due - time.monotonic()))

    def rate(self, seconds: float = 5.0) -> float:
        """Bytes a second that were sent, over some seconds."""
        before, since = self.sent, time.monotonic()
        time.sleep(seconds)
        return (self.sent - before) / (time.monotonic() - since)

    def close(self) -> None:
        self._stop.set()
        self._client.closeAsync()


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
                    "isForceGCAllowWhenNoSpace": "true",
                    "logSizeLimit": 8 * 1024 * 1024,
                }
            )
            urls[bookie.bookie_id] = f"http://127.0.0.1:{port}"
        cluster.add_broker(
            properties={
                "managedLedgerMaxEntriesPerLedger": 100,
                "allowAutoTopicCreation": "true",
                "backlogQuotaDefaultLimitGB": -1,
            }
        )
        create_namespace(cluster, NAMESPACE)
        watched = Stack(cluster, urls, jars)
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
    port = launch_gateway(
        classpath=":".join(map(str, pulsar_jars)),
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield java
    java.shutdown()


@contextmanager
def producing(pulsar: Stack, gateway: JavaGateway, topic: str) -> Iterator[Producer]:
    producer = Producer(gateway, f"pulsar://127.0.0.1:{pulsar.cluster.brokers[0].service_port}", f"{NAMESPACE}/{topic}")
    try:
        yield producer
    finally:
        producer.close()


class Headgate:
    """Collector, policy and worker, step by step."""

    def __init__(self, pulsar: Stack, worker: PublishWorker, **block: Any) -> None:
        self.pulsar = pulsar
        self.worker = worker
        self.policy = BookieDisksPolicy("messaging", settings(**block))
        self.state: BookieDisksState | None = None
        self.last: BookieThrottle | None = None

    def step(self) -> float:
        """Read, decide and act once; returns the factor."""
        now = datetime.now(UTC)
        seen = [Observation(f"{r.bookie}-{now.timestamp()}", now, r) for r in self.pulsar.read()]
        step = self.policy.step(self.state, seen, now)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, BookieThrottle):
                self.last = decision
                self.worker.receive(FactorOrder.build(decision), now)
        self.worker.reconcile(Event())
        assert self.last is not None
        return self.last.factor


@pytest.mark.parametrize("by", list(KINDS))
def test_each_kind_of_limit_slows_a_real_producer_and_is_put_back(
    pulsar: Stack, gateway: JavaGateway, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The present use is between the limits: the factor is 0.5, and then 1.0.
    tight = {"soft": {"available_ratio_below": 1.0}, "hard": {"available_ratio_below": 0.0}, "min_hold": "0s"}
    with pulsar.worker(by) as worker, producing(pulsar, gateway, f"slow-{by}") as producer:
        eventually("the producer writes", lambda: producer.rate(1.0) > 0.5 * BASE)
        slowed = Headgate(pulsar, worker, fallback_factor=0.1, **tight)
        slowed.step()
        assert slowed.last is not None
        order = FactorOrder.build(slowed.last.model_copy(update={"factor": 0.1, "sequence": slowed.last.sequence + 1}))
        worker.receive(order, datetime.now(UTC))
        worker.reconcile(Event())
        eventually("the producer is slowed", lambda: producer.rate(3.0) < 0.25 * BASE)
        # Killed here: nothing but the cluster knows the originals. The command needs no loop.
        assert release(pulsar, by, monkeypatch) == 0
        eventually("the producer is back", lambda: producer.rate(2.0) > 0.5 * BASE)
    assert call(pulsar.cluster, "GET", "/admin/v2/brokers/configuration/values").json() == {}
    assert call(pulsar.cluster, "GET", f"/admin/v2/namespaces/{NAMESPACE}/properties").json() == {}
    assert call(pulsar.cluster, "GET", "/admin/v2/resourcegroups").json() == []
    call(pulsar.cluster, "DELETE", f"/admin/v2/persistent/{NAMESPACE}/slow-{by}?force=true")


def release(pulsar: Stack, by: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `headgate act --release`; returns its exit status."""
    block = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "clusters": {
            "messaging": {
                "pulsar": {"admin_url": pulsar.cluster.admin_url},
                "publish": {"by": by, "base": BASE},
            }
        },
    }
    file = pulsar.cluster.folder / "settings.yaml"
    file.write_text(yaml.safe_dump(block))
    monkeypatch.setattr("sys.argv", ["headgate", "act", "--release", "--settings", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
