"""What is watched, in older versions: readings, quotas, placements and sessions, each on real servers of theirs.

The oldest Kafka and the oldest ZooKeeper run with the other system tests, the rest with `make compatibility`. Every
check notes what it saw when `HEADGATE_NOTE_COMPATIBILITY` is set, for the table in `docs/compatibility.md`.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import httpx
import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry
from py4j.java_gateway import JavaGateway

from connectors.collection import PollMetrics
from connectors.isolation.collector import BookieCollector, ZooKeeperBookies
from connectors.isolation.registration import WatchedBookies
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.kafka.quotas import QuotaClient
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.registration import WatchedSessions
from connectors.sessions.zookeeper_sessions import SessionCollector
from connectors.zookeeper.bookies import GoodNodes, read_affinity
from connectors.zookeeper.session import ZooKeeperSession
from connectors.zookeeper.settings import ZooKeeperConnection
from deploy.java.jars import ensure_jars
from deploy.java.jvm import find_java
from deploy.settings.application import default_cache_dir
from policies.bookie_readings import BookieRacks, Bookies
from policies.observations import Outcome, Reading
from policies.sessions.readings import SessionState, ZkSession
from policies.throttle.readings import LogDirs
from policies.throttle.settings import DEFAULT, Entity
from policies.units import UserError
from tests.system import older
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.doctor import examined
from tests.system.loop import UNHURRIED, Headgate, Topic, await_ready, make_topics, write_settings
from tests.system.older import OlderKafka, ensure_older_jars, of_today, older_cache
from tests.system.pulsar import CLUSTER, PulsarBroker, set_up_metadata
from tests.system.pulsar_jars import PULSAR_VERSION, ensure_pulsar_jars
from tests.system.pulsar_load import PulsarLoad, pulsar_clients
from tests.system.pulsar_topics import owner_of
from tests.system.test_bookie_disks import publish_worker, slow_order
from tests.system.waiting import eventually, within
from tests.system.zookeeper import ZooKeeper, free_port


def versions(*each: str, in_ci: str) -> list[object]:
    """All of them as parameters; those that only `make compatibility` runs carry its marker."""
    return [each if each == in_ci else pytest.param(each, marks=pytest.mark.compatibility) for each in each]


KAFKA_VERSION, ZOOKEEPER_VERSION = of_today("kafka_2.13"), of_today("zookeeper")
KAFKAS = versions("3.3.2", "3.6.2", "3.9.1", "4.0.0", KAFKA_VERSION, in_ci="3.3.2")
ZOOKEEPERS = versions("3.6.4", "3.7.2", "3.8.4", "3.9.3", ZOOKEEPER_VERSION, in_ci="3.6.4")
PULSARS = versions("2.10.5", "3.0.7", "4.0.7", PULSAR_VERSION, in_ci="")

OF_TODAY: dict[str, Callable[[], tuple[Path, ...]]] = {
    f"kafka-{KAFKA_VERSION}": lambda: ensure_jars("kafka", default_cache_dir()),
    f"zookeeper-{ZOOKEEPER_VERSION}": lambda: ensure_jars("bookkeeper", default_cache_dir()),
    f"pulsar-{PULSAR_VERSION}": lambda: ensure_pulsar_jars(default_cache_dir().parent),
}
"""Those of all other tests, for the whole table."""

Note = Callable[..., None]


def jars_of(name: str) -> tuple[Path, ...]:
    try:
        find_java()
        of_today = OF_TODAY.get(name)
        return of_today() if of_today else ensure_older_jars(name, older_cache())
    except UserError as error:
        pytest.skip(str(error))


def noting(product: str, version: str) -> Note:
    def note(tried: str, seen: str = "works") -> None:
        if os.environ.get("HEADGATE_NOTE_COMPATIBILITY"):
            older.record(product, version, tried, seen)

    return note


# Kafka


@pytest.fixture(scope="module", params=KAFKAS)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OlderKafka, Note]]:
    jars = jars_of(f"kafka-{request.param}")
    with OlderKafka(tmp_path_factory.mktemp("kafka"), jars) as broker:
        yield broker, noting("Kafka", request.param)


def test_an_older_kafka_tells_of_its_volumes_and_takes_quotas(kafka: tuple[OlderKafka, Note]) -> None:
    broker, note = kafka
    watched = WatchedKafka(bootstrap_servers=broker.bootstrap_servers)
    readings: list[Reading] = []
    collector = LogDirsCollector("c", watched, readings.append, PollMetrics(CollectorRegistry()))
    with closing(collector):
        collector.poll_once()
    (log_dirs,) = [each for each in readings if isinstance(each, LogDirs)]
    assert log_dirs.outcome is Outcome.OK, log_dirs.detail
    assert [(volume.total_bytes or 0) > (volume.usable_bytes or 0) > 0 for volume in log_dirs.volumes or ()] == [True]
    note("readings of volumes")

    entity = Entity(client_id=DEFAULT)
    with closing(QuotaClient(watched, 10.0)) as client:
        client.describe()
        assert client.alter({entity: 1_000_000}) == {}
        eventually("the quota is in force", lambda: client.read().rates.get(entity) == 1_000_000)
        assert client.alter({entity: None}) == {}
        eventually("it is taken away", lambda: client.read().rates.get(entity) is None)
        assert not any(each.callback for each in client.broker_settings().values())
    note("quotas")

    kafka_settings = {"bootstrap_servers": broker.bootstrap_servers}
    quotas = {"entities": [{"client_id": "default", "base": "10MB"}]}
    answers = examined({"clusters": {"c": {"kafka": kafka_settings, "quotas": quotas}}})
    assert {asked: each.detail for asked, each in answers.items() if not each.is_good} == {}
    note("doctor")


def test_an_older_kafka_has_the_topics_of_the_loop_itself(kafka: tuple[OlderKafka, Note], tmp_path: Path) -> None:
    broker, note = kafka
    port, own = free_port(), {"bootstrap_servers": broker.bootstrap_servers}
    file = write_settings(
        tmp_path / "headgate.yaml",
        data_dir=str(tmp_path / "data"),
        kafka=own,
        clusters={"c": {"kafka": {**own, "poll_interval": "1s"}}},
        policies={"throttle": {"hard": {"available_bytes_below": "1MB"}}},
        http={"port": port},
        stream=UNHURRIED,
    )
    make_topics(file)
    with (
        Headgate(["run", "--settings", str(file)], tmp_path / "log") as loop,
        Topic(broker.bootstrap_servers, "headgate.decided.throttle") as decided,
    ):
        await_ready(loop, port)
        eventually("the loop has decided", decided.entries)
    note("topics of the loop")


# ZooKeeper, with a bookie of today


@pytest.fixture(scope="module", params=ZOOKEEPERS)
def zookeeper(
    request: pytest.FixtureRequest, bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ZooKeeper, Note]]:
    jars = jars_of(f"zookeeper-{request.param}")
    folder = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeper(folder / "zk", jars) as server:
        init_cluster(folder / "init", bookkeeper_jars, server.servers)
        with Bookie(folder / "bookie", bookkeeper_jars, server.servers):
            yield server, noting("ZooKeeper", request.param)


def test_an_older_zookeeper_tells_of_bookies_and_their_groups(zookeeper: tuple[ZooKeeper, Note]) -> None:
    server, note = zookeeper
    with server.client() as client:
        client.create("/bookies", b'{"g": {"127.0.0.1:1": {"rack": "/r"}}}')
        client.ensure_path("/loadbalance/brokers")
    readings: list[Reading] = []
    with closing(ZooKeeperSession("c", ZooKeeperConnection(servers=server.servers))) as session:
        metrics = PollMetrics(CollectorRegistry())
        collector = BookieCollector(ZooKeeperBookies("c", WatchedBookies(), session), readings.append, metrics)
        collector.poll_once()
    found = {type(each): each for each in readings}
    assert {each.outcome for each in readings} == {Outcome.OK}
    bookies, racks = found[Bookies], found[BookieRacks]
    assert isinstance(bookies, Bookies)
    assert isinstance(racks, BookieRacks)
    assert len(bookies.writable or ()) == 1
    note("readings of bookies and groups")
    answers = examined(
        {
            "clusters": {
                "c": {
                    "zookeeper": {"servers": server.servers},
                    "bookies": {},
                    "sessions": {"admin_url": server.admin_url},
                }
            },
            "policies": {"isolation": {"quarantine": "on"}},
        }
    )
    assert {asked: each.detail for asked, each in answers.items() if not each.is_good} == {}
    note("doctor")


def test_an_older_zookeeper_tells_of_sessions_and_their_end(zookeeper: tuple[ZooKeeper, Note]) -> None:
    server, note = zookeeper
    member = KazooClient(server.servers, timeout=5.0)
    member.start()
    member.create("/loadbalance/brokers/broker-1:8080", ephemeral=True, makepath=True)
    readings: list[Reading] = []
    connection = ZooKeeperConnection(servers=server.servers)
    collector = SessionCollector(
        "c", WatchedSessions(admin_url=server.admin_url), connection, readings.append, PollMetrics(CollectorRegistry())
    )

    def state() -> SessionState | None:
        collector.poll_once()
        of_member = [each for each in readings if isinstance(each, ZkSession) and each.member == "broker-1:8080"]
        assert all(each.outcome is Outcome.OK for each in readings), readings[-1]
        return of_member[-1].state if of_member else None

    with closing(collector):
        eventually("it is connected", lambda: state() is SessionState.CONNECTED)
        server.expire(member.client_id[0])
        eventually("its session has ended", lambda: state() in (SessionState.EXPIRED, SessionState.CLOSED))
        member.stop()
        member.close()
    note("sessions")


# Pulsar, with ZooKeeper and bookies of today


@pytest.fixture(scope="module", params=PULSARS)
def pulsar(
    request: pytest.FixtureRequest, bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PulsarBroker, ZooKeeper, Note]]:
    jars = jars_of(f"pulsar-{request.param}")
    folder = tmp_path_factory.mktemp("pulsar")
    with ZooKeeper(folder / "zk", bookkeeper_jars) as server:
        set_up_metadata(folder / "set-up", jars, server.servers)
        with (
            Bookie(folder / "bookie", bookkeeper_jars, server.servers),
            PulsarBroker(folder / "broker", jars, server.servers, ensemble_size=1, properties=_NO_CARD) as broker,
        ):
            yield broker, server, noting("Pulsar", request.param)


_NO_CARD = {"loadBalancerOverrideBrokerNicSpeedGbps": 1}
"""Older brokers do not start where no network card tells its speed, as in a virtual machine."""


def test_an_older_pulsar_tells_of_bookies_policies_and_bundles(pulsar: tuple[PulsarBroker, ZooKeeper, Note]) -> None:
    broker, server, note = pulsar
    connection = {"servers": server.servers}
    admin_settings = {"admin_url": broker.admin_url}
    with closing(AdminApi(PulsarAdmin.model_validate(admin_settings))) as admin:
        assert len(admin.known_bookies()) == 1
        (bookie,) = admin.known_bookies()
        admin.set_rack(bookie, "g", "/r")
        eventually("its group", lambda: set(admin.racks().get("g", {})) == {bookie})
        assert admin.brokers(CLUSTER) == (broker.broker_id,)
        note("placements by REST")
        affinity = eventually("namespaces", lambda: _affinity(server))
        assert affinity
        note("placements by ZooKeeper")
        put(broker, "tenants/acme", {"allowedClusters": [CLUSTER]})
        put(broker, "namespaces/acme/orders", {"bundles": {"numBundles": 1}})
        assert eventually("an owner", lambda: owner_of(broker.admin_url, "acme/orders/t")).startswith("pulsar://")
        admin.unload("acme/orders", "0x00000000_0xffffffff")
        note("unloads")
    # Its first check of itself makes the topic for it, which on a busy machine takes longer than a collector waits.
    eventually("it says that it is well", lambda: _is_well(broker))
    answers = examined(
        {
            "clusters": {
                "c": {
                    "zookeeper": connection,
                    "pulsar": admin_settings,
                    "bookies": {},
                    "sessions": {"admin_url": server.admin_url},
                    "ownership": {},
                    "health": {},
                    "unload": {},
                }
            }
        }
    )
    assert {asked: each.detail for asked, each in answers.items() if not each.is_good} == {}
    note("sessions, ownership and health")


@pytest.mark.parametrize("by", ["broker", "namespace"])
def test_an_older_pulsar_slows_a_producer_and_lets_it_go(
    pulsar: tuple[PulsarBroker, ZooKeeper, Note], clients: JavaGateway, by: str
) -> None:
    """An older broker may let more through, or keep a producer muted: that is noted, and no failure of Headgate."""
    broker, _, note = pulsar
    namespace, url = f"{by.replace('_', '-')}/orders", f"pulsar://127.0.0.1:{broker.service_port}"
    put(broker, f"tenants/{namespace.split('/')[0]}", {"allowedClusters": [CLUSTER]})
    put(broker, f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    with (
        publish_worker(PulsarAdmin(admin_url=broker.admin_url), by, FULL_RATE) as worker,
        PulsarLoad(clients, url, f"{namespace}/t", FULL_RATE) as producer,
    ):
        eventually("it writes", lambda: producer.rate(1.0) > 0.5 * FULL_RATE)
        worker.receive(slow_order(0.02), datetime.now(UTC))
        worker.reconcile(Event())
        rates: list[float] = []

        def is_slowed() -> bool:
            rates.append(producer.rate(3.0))
            return rates[-1] < 0.25 * FULL_RATE

        is_slow = within(30.0, is_slowed)
        assert worker.release() == []
        since = time.monotonic()
        is_back = within(120.0, lambda: producer.rate(1.0) > 0.5 * FULL_RATE)
        back = f"full rate again after {time.monotonic() - since:.0f} s" if is_back else "not back within 120 s"
    seen = "works" if is_slow and is_back else f"{min(rates) / 1e6:.1f} MB/s passed a limit of 100 kB/s; {back}"
    print(f"publish limit by {by}: {min(rates):.0f} bytes a second; {back}")  # noqa: T201 - for the page's text
    note(f"publish limit by {by}", seen)


FULL_RATE = 5_000_000


@pytest.fixture
def clients() -> Iterator[JavaGateway]:
    with pulsar_clients(jars_of(f"pulsar-{PULSAR_VERSION}")) as gateway:
        yield gateway


def put(broker: PulsarBroker, path: str, body: dict[str, object]) -> None:
    httpx.put(f"{broker.admin_url}/admin/v2/{path}", json=body, timeout=30).raise_for_status()


def _is_well(broker: PulsarBroker) -> bool:
    return httpx.get(f"{broker.admin_url}/admin/v2/brokers/health", timeout=60).is_success


def _affinity(server: ZooKeeper) -> bool:
    with closing(ZooKeeperSession("c", ZooKeeperConnection(servers=server.servers))) as session:
        return read_affinity(session.reader(lambda: 5.0), "c", GoodNodes()).outcome is Outcome.OK
