"""The quarantine actuator on a real ZooKeeper: beside other writers, expired; and end to end over Kafka."""

import json
import multiprocessing
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import Actuator, LoopTopics
from connectors.isolation.groups import RacksSnapshot, RackStore, ZooKeeperRacks
from connectors.isolation.quarantine import QuarantineMetrics, QuarantineWorker
from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.kafka.topics import TopicSettings
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.bookie_readings import BookieAffinity, NamespaceAffinity
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK, BookieQuarantine
from policies.isolation.settings import IsolationSettings
from policies.observations import Outcome
from policies.wire import decision_event
from tests.connectors.isolation.orders import CLUSTER, decision
from tests.system.isolation import Metadata
from tests.system.loop import Topic, produce
from tests.system.waiting import DEADLINE_SECONDS, eventually
from tests.system.zookeeper import ZooKeeper

DEFAULT = {"bk1:3181": {"rack": "/r1", "hostname": "bk1", "since": 1.10}}
MANY = 1_000_000


def now_decided(bookie: str, **fields: Any) -> BookieQuarantine:
    """A decision of this moment."""
    now = datetime.now(UTC)
    times = {"decided_at": now, "registered_at": now, "valid_until": now + timedelta(minutes=5)}
    return decision(bookie, **{**times, **fields})


class Bookies(Metadata):
    """The metadata of one cluster, below a chroot, and those who change it."""

    def __init__(self, server: ZooKeeper, client: KazooClient, chroot: str) -> None:
        super().__init__(client)
        self.server = server
        self.connection = connection(server.servers + chroot)

    def join(self, *bookies: str) -> None:
        for bookie in bookies:
            self.register(bookie)


def connection(servers: str) -> ZooKeeperConnection:
    return ZooKeeperConnection.model_validate({"servers": servers, "timeout": "2s", "session_timeout": "4s"})


@contextmanager
def cluster_on(server: ZooKeeper) -> Iterator[Bookies]:
    chroot = f"/q{uuid.uuid4().hex[:8]}"
    with server.client() as root:
        root.ensure_path(chroot)
    with server.client(chroot=chroot) as client:
        client.ensure_path("/ledgers/available/readonly")
        client.create("/bookies", json.dumps({"default": DEFAULT}).encode())
        yield Bookies(server, client, chroot)


@pytest.fixture
def bookies(zookeeper: ZooKeeper) -> Iterator[Bookies]:
    with cluster_on(zookeeper) as bookies:
        yield bookies


@pytest.fixture
def mortal(bookkeeper_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[Bookies]:
    """On a ZooKeeper that may be harmed."""
    # It keeps its last 500 writes in memory, here of a whole `/bookies` each.
    server = ZooKeeper(tmp_path / "zookeeper", bookkeeper_jars, flags=("-Xmx160m",))
    with server, cluster_on(server) as bookies:
        yield bookies


@dataclass
class Meddled:
    """A store beside which something else happens, once each time, between reading and writing."""

    store: RackStore
    meddle: list[Callable[[], None]] = field(default_factory=list)

    def read_groups(self, bookie: str) -> RacksSnapshot:
        snapshot = self.store.read_groups(bookie)
        if self.meddle:
            self.meddle.pop(0)()
        return snapshot

    def close(self) -> None:
        self.store.close()


class UnhurriedWorker(QuarantineWorker):
    """One that may do as much as it can; that others pause between actions is tested with their clock."""

    most_a_minute = MANY


class Acting:
    """One cluster's worker at work in a thread of its own."""

    def __init__(
        self,
        store: RackStore,
        kind: type[QuarantineWorker] = QuarantineWorker,
        namespaces: dict[str, NamespaceAffinity] | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.said: list[dict[str, Any]] = []
        metrics = QuarantineMetrics(self.registry)
        settings, namespaces = IsolationSettings(max_quarantined=MANY), namespaces or {}
        self.worker = kind(
            CLUSTER,
            store,
            settings,
            lambda: BookieAffinity(cluster=CLUSTER, outcome=Outcome.OK, namespaces=namespaces),
            lambda _, value: self.said.append(json.loads(value)["data"]),
            metrics,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.worker.run, args=(self._stop,), name="acting")

    def __enter__(self) -> "Acting":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self.worker.wake()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def decide(self, *bookies: str, **fields: Any) -> None:
        for bookie in bookies:
            self.worker.receive(now_decided(bookie, **fields), datetime.now(UTC))

    def awaits(self, outcome: str, bookie: str | None = None) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((s for s in self.said if s["outcome"] == outcome and bookie in (None, s["bookie"])), None)

        return eventually(f"{outcome} is said of {bookie}", found)


@contextmanager
def acting(
    bookies: Bookies,
    meddle: Iterable[Callable[[], None]] = (),
    kind: type[QuarantineWorker] = QuarantineWorker,
    **namespaces: NamespaceAffinity,
) -> Iterator[Acting]:
    store = Meddled(ZooKeeperRacks(CLUSTER, bookies.connection), list(meddle))
    with Acting(store, kind, {name.replace("_", "/"): affinity for name, affinity in namespaces.items()}) as acting:
        yield acting


def test_a_registered_bookie_without_a_group_is_quarantined_and_both_ends_are_by_zookeepers_clock(
    bookies: Bookies,
) -> None:
    with acting(bookies) as actor:
        actor.decide("nobody:1")
        actor.awaits("not_registered")  # and the session is there
        started = time.monotonic()
        bookies.join("bk11:3181")
        registered = bookies.client.exists("/ledgers/available/bk11:3181")
        session = hex(registered.ephemeralOwner)
        actor.decide(
            "bk11:3181", session=session, czxid=registered.czxid, registered_at=datetime(2000, 1, 1, tzinfo=UTC)
        )
        done = actor.awaits("done")
        took_seconds = time.monotonic() - started
    content, stat = bookies.client.get("/bookies")
    entry = '{"bk11:3181":{"rack":"/headgate-quarantine","hostname":"bk11"}}'
    before = '{"default":{"bk1:3181":{"rack":"/r1","hostname":"bk1","since":1.1}}'
    assert content.decode() == f'{before},"headgate-quarantine":{entry}}}'
    assert done["leak_window_seconds"] == pytest.approx((stat.mtime - registered.ctime) / 1000)
    assert 0 <= done["leak_window_seconds"] <= took_seconds
    sum_name = "headgate_bookie_leak_window_seconds_sum"
    assert actor.registry.get_sample_value(sum_name, {"cluster": CLUSTER}) == done["leak_window_seconds"]


def test_a_znode_that_we_may_not_write_is_said_with_the_remedy_in_sight(bookies: Bookies) -> None:
    bookies.join("bk11:3181")
    bookies.client.set_acls("/bookies", [make_digest_acl("owner", "secret", all=True), *READ_ACL_UNSAFE])
    with acting(bookies) as actor:
        actor.decide("bk11:3181")
        assert actor.awaits("failed")["detail"] == "the ACL of /bookies does not let us write it"


# --- other writers


_BREATH_SECONDS = 0.004


def compete(servers: str, rounds: int, enough: Any, written: Any) -> None:
    """In a process of its own, `set-bookie-rack` for one bookie after the other, until told.

    With a breath in between: on an idle machine compare-and-sets without one would starve any other writer.
    """
    client = KazooClient(servers)
    client.start(timeout=DEADLINE_SECONDS)
    while written.value < rounds or not enough.is_set():
        Metadata(client).assign(f"op{written.value % 100}:1", "shared", f"/r{written.value}")
        written.value += 1
        time.sleep(_BREATH_SECONDS)
    client.stop()
    client.close()


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_beside_a_writer_in_a_tight_loop_nothing_of_either_side_is_lost(mortal: Bookies, rounds: int) -> None:
    mine = [f"b{number}:1" for number in range(rounds)]
    mortal.join(*mine)
    context = multiprocessing.get_context("spawn")
    enough, written = context.Event(), context.Value("i", 0)
    rival = context.Process(target=compete, args=(mortal.connection.servers, rounds, enough, written))
    with acting(mortal, kind=UnhurriedWorker) as actor:
        rival.start()
        try:
            eventually("the other writer is at work", lambda: written.value > 0)
            started = time.monotonic()
            actor.decide(*mine)
            eventually("all is done", lambda: sum(s["outcome"] == "done" for s in actor.said) == rounds)
            took_seconds = time.monotonic() - started
            enough.set()
            rival.join(120)
        finally:
            rival.kill()
    racks = mortal.racks()
    assert racks["default"] == DEFAULT
    assert racks[QUARANTINE_GROUP] == {b: {"rack": QUARANTINE_RACK, "hostname": b[:-2]} for b in mine}
    last = range(written.value - 100, written.value)
    assert racks["shared"] == {f"op{number % 100}:1": {"rack": f"/r{number}"} for number in last}
    # Each write of either side counts, and no more were made: nothing was written twice, nothing overwritten.
    assert mortal.client.exists("/bookies").version == rounds + written.value
    conflicts = sum(said["attempt"] - 1 for said in actor.said)
    print(f"{took_seconds:.1f} s beside {written.value} writes, {conflicts} conflicts")  # noqa: T201 - for who measures
    assert conflicts > rounds / 20, "they hardly met: the test shows nothing"


def test_a_bookie_that_a_namespace_needs_by_the_registrations_of_this_moment_is_left_alone(bookies: Bookies) -> None:
    bookies.join("bk1:3181", "bk11:3181")
    with acting(bookies, acme_a=NamespaceAffinity(primary=("default",))) as actor:
        actor.decide("bk11:3181")
        assert actor.awaits("needed")["detail"] == "acme/a needs it to place data"
        bookies.assign("bk2:3181", "default")
        bookies.join("bk2:3181")
        actor.decide("bk11:3181", sequence=2)
        actor.awaits("done")


# --- failures


def test_while_zookeeper_is_away_it_is_said_once_and_done_when_it_is_back(mortal: Bookies) -> None:
    mortal.join("bk11:3181")
    with acting(mortal) as actor:
        mortal.server.stop()
        actor.decide("bk11:3181")
        actor.awaits("failed")
        failing = {"cluster": CLUSTER}
        eventually("failing", lambda: actor.registry.get_sample_value("headgate_quarantine_failing", failing) == 1)
        mortal.server.start()
        actor.awaits("done")
        eventually("well again", lambda: actor.registry.get_sample_value("headgate_quarantine_failing", failing) == 0)
    assert [said["outcome"] for said in actor.said] == ["failed", "done"]


# --- end to end


class Running:
    """The whole actuator, between a real Kafka and a real ZooKeeper."""

    def __init__(self, servers: str, prefix: str, bookies: Bookies) -> None:
        kafka = KafkaConnection(bootstrap_servers=servers)
        self.registry = CollectorRegistry()
        self._publisher = Publisher(kafka, PublisherMetrics(self.registry))
        topics = LoopTopics(kafka, f"{prefix}.decided.isolation", f"{prefix}.audit")
        worker = QuarantineWorker(
            CLUSTER, ZooKeeperRacks(CLUSTER, bookies.connection), IsolationSettings(),
            lambda: BookieAffinity(cluster=CLUSTER, outcome=Outcome.OK), topics.reporter(self._publisher.publish),
            QuarantineMetrics(self.registry),
        )  # fmt: skip
        self.actuator = Actuator(
            "quarantine actuator", "headgate-quarantine", topics, {CLUSTER: worker}, BookieQuarantine
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.actuator.run, args=(self._stop,), name="actuator")

    def __enter__(self) -> "Running":
        self._thread.start()
        eventually("it has caught up", lambda: self.actuator.caught_up() is None)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        self._publisher.close()
        assert not self._thread.is_alive()

    def total(self, outcome: str) -> float | None:
        labels = {"cluster": CLUSTER, "outcome": outcome}
        return self.registry.get_sample_value("headgate_quarantines_total", labels)


def test_from_a_decision_in_kafka_to_the_group_in_zookeeper_to_the_report(loop_kafka: str, bookies: Bookies) -> None:
    prefix = f"iq{uuid.uuid4().hex[:8]}"
    create_topics(KafkaConnection(bootstrap_servers=loop_kafka), TopicSettings(prefix=prefix))
    bookies.join("bk11:3181", "bk12:3181", "bk13:3181")

    def decide(*decisions: BookieQuarantine) -> None:
        records = [(one.subject, decision_event(one)) for one in decisions]
        produce(loop_kafka, f"{prefix}.decided.isolation", *records)

    other = b'{"specversion":"1.0","id":"x","source":"y","type":"headgate.placement.v1","data":{}}'
    with Topic(loop_kafka, f"{prefix}.audit") as audit:

        def outcomes() -> list[tuple[str, str]]:
            return [(said["bookie"], said["outcome"]) for said in audit.data()]

        lifted = now_decided("bk12:3181", sequence=2, verdict="lift")
        decide(now_decided("bk12:3181"), lifted)
        with Running(loop_kafka, prefix, bookies) as running:
            first = now_decided("bk11:3181")
            started = time.monotonic()
            produce(loop_kafka, f"{prefix}.decided.isolation", ("messaging/t/n", other), ("bad", b"{"))
            decide(first)
            eventually("it is in quarantine", lambda: bookies.quarantined() == {"bk11:3181"})
            print(f"{time.monotonic() - started:.3f} s from decision to quarantine")  # noqa: T201
            decide(now_decided("bk13:3181", mode="shadow"), now_decided("bk13:3181", cluster="other"), first)
            eventually("all is said", lambda: len(outcomes()) == 2)
            report = next(entry for entry in audit.entries())
            assert (report.key, report.event["type"]) == (CLUSTER, "headgate.bookie-quarantined.v1")
            assert report.data["decision_id"] == first.decision_id
            assert outcomes() == [("bk11:3181", "done"), ("bk13:3181", "shadow")]
            assert (running.total("done"), running.total("shadow")) == (1, 1)
            count = "headgate_bookie_leak_window_seconds_count"
            assert running.registry.get_sample_value(count, {"cluster": CLUSTER}) == 1
        version = bookies.client.exists("/bookies").version
        with Running(loop_kafka, prefix, bookies) as running:
            eventually("it finds what is done", lambda: running.total("already_assigned") == 1)
            assert bookies.client.exists("/bookies").version == version
            decide(now_decided("bk12:3181", sequence=3))
            eventually("a new decision is done", lambda: bookies.quarantined() == {"bk11:3181", "bk12:3181"})
