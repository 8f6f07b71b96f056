"""The adversarial matrix: a principal does its worst within its rights, and every other cluster is decided as before.

A principal's reach ends at its own policy and cluster (docs/design/threats.md).
"""

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from connectors.exporter.samples import MOST_TARGETS
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
    RackInfo,
)
from policies.observations import Outcome, Reading
from policies.registry import decided_topics, observed_topic, observed_topics
from policies.switching.readings import SwitchBrokers
from policies.throttle import LogDirs
from policies.throttle.quotas import MOST_NAMED, QuotaState
from policies.throttle.readings import VolumeReading
from policies.wire import observation_event
from tests.eager import EAGER, TOTAL_BYTES
from tests.system.loop import (
    UNHURRIED,
    Headgate,
    Topic,
    await_ready,
    http_get,
    make_topics,
    produce,
    series,
    write_settings,
)
from tests.system.processes import listening_ports
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port
from tools.reference.catalogue import examples

HIT, OTHER = "hit", "other"
"""The cluster that the attacker's readings name, and one that it has nothing to do with."""


@dataclass
class World:
    """A loop that watches its own Kafka, and what its topics have."""

    servers: str
    prefix: str
    port: int
    headgate: Headgate
    decided: Topic
    alerts: Topic
    dead: Topic
    probes: int = 0

    def observe(self, *values: bytes, topic: str) -> None:
        produce(self.servers, f"{self.prefix}.{topic}", *((HIT, value) for value in values))

    def read(self, reading: Reading) -> None:
        self.observe(event(reading), topic=observed_topic(type(reading)))

    def require_other_decided(self) -> None:
        """A reading of the other cluster is decided on, by the same run of the query."""
        self.probes += 1
        usable_bytes = 1000 * self.probes
        produce(self.servers, f"{self.prefix}.observed.log-dirs", (OTHER, event(log_dirs(OTHER, 1, 1, usable_bytes))))
        factor = (usable_bytes - 1) / (TOTAL_BYTES - 2)
        eventually("the other cluster is decided on", lambda: any(abs(f - factor) < 1e-9 for f in self._factors()))
        eventually("the other cluster is shown", lambda: abs(self._shown_factor() - factor) < 1e-9)
        assert self.series("headgate_query_restarts_total") == [({}, 0)]

    def _factors(self) -> list[float]:
        return [each["factor"] for each in self.decided.data() if each["cluster"] == OTHER]

    def _shown_factor(self) -> float:
        return next((v for labels, v in self.series("headgate_throttle_factor") if labels == {"cluster": OTHER}), -1.0)

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        return series(eventually("metrics", lambda: http_get(self.port, "/metrics"))[1], name)

    def reasons(self) -> set[str]:
        return {letter["reason"] for letter in self.dead.data()}

    def firing(self) -> set[tuple[str, str]]:
        return {(each["policy"], each["alert"]) for each in self.alerts.data() if each["cluster"] == HIT}


def event(reading: Reading) -> bytes:
    return observation_event(reading, id=str(uuid.uuid4()), source="attacker", time=datetime.now(UTC))


def log_dirs(cluster: str, broker: int, count: int, usable_bytes: int = 1) -> LogDirs:
    volumes = tuple(
        VolumeReading(log_dir=f"/data/{n}", total_bytes=TOTAL_BYTES, usable_bytes=usable_bytes) for n in range(count)
    )
    return LogDirs(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=volumes)


@pytest.fixture(scope="module")
def world(loop_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, prefix, port = tmp_path_factory.mktemp("attacks"), f"t{uuid.uuid4().hex[:8]}", free_port()
    settings: dict[str, Any] = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": prefix},
        "data_dir": str(folder / "data"),
        "http": {"port": port},
        "clusters": {HIT: {}, OTHER: {}, "own": {"kafka": {"bootstrap_servers": loop_kafka}}},
        "policies": {"throttle": EAGER, "isolation": {"confirm_after": "0s"}},
        "stream": {**UNHURRIED, "restart_limit": 2},
    }
    file = write_settings(folder / "headgate.yaml", **settings)
    make_topics(file)
    with ExitStack() as stack:
        headgate = stack.enter_context(Headgate(["run", "-s", str(file)], folder / "run.log"))
        await_ready(headgate, port)
        decided, alerts, dead = (stack.enter_context(Topic(loop_kafka, f"{prefix}.{name}")) for name in _TOPICS)
        yield World(loop_kafka, prefix, port, headgate, decided, alerts, dead)
        assert headgate.stop() == 0, headgate.output()


_TOPICS = ("decided.throttle", "decided.alerts", "dead-letters")


def flood(world: World) -> None:
    """950 readings of different brokers, each of 1,000 log dirs: 65 MB, several times."""
    template = event(log_dirs(HIT, 987654321, 1000))
    for burst in range(2):
        world.observe(
            *(template.replace(b"987654321", b"%d" % (950 * burst + n)) for n in range(950)), topic="observed.log-dirs"
        )


def flood_was_told(world: World) -> bool:
    return "too-many" in world.reasons() and ("throttle", "readings-refused") in world.firing()


def amplify(world: World) -> None:
    """A megabyte of affinity, of which each namespace may use hundreds of bookies."""
    names = [f"bookie-{n}:3181" for n in range(300)]
    groups = {f"g{n}": {name: RackInfo(rack=f"/r{n}") for name in names[n::60]} for n in range(60)}
    spread = {
        f"tenant/namespace-{n:04}": NamespaceAffinity(primary=tuple(f"g{(n * 7 + k * 3) % 60}" for k in range(20)))
        for n in range(1000)
    }
    registered = tuple(BookieRegistration(bookie=name, session="0x1", czxid=n) for n, name in enumerate(names))
    world.read(BookieAffinity(cluster=HIT, outcome=Outcome.OK, namespaces=spread))
    world.read(BookieRacks(cluster=HIT, outcome=Outcome.OK, groups=groups))
    world.read(Bookies(cluster=HIT, outcome=Outcome.OK, writable=registered))


def write_unwritable_times(world: World) -> None:
    """Instants that are out of range once they are in UTC."""
    registered = BookieRegistration(bookie="b:3181", session="0x1", czxid=1, registered_at=datetime.now(UTC))
    good = json.loads(event(Bookies(cluster=HIT, outcome=Outcome.OK, writable=(registered,))))
    for text in ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"):
        good["id"] = str(uuid.uuid4())
        good["data"]["writable"][0]["registered_at"] = text
        world.observe(json.dumps(good).encode(), topic=observed_topic(Bookies))


def write_unwritable_numbers(world: World) -> None:
    """A count that no state can store."""
    good = json.loads(event(QuotaState(cluster=HIT, outcome=Outcome.OK)))
    good["data"]["escaping_count"] = 10**30
    world.observe(json.dumps(good).encode(), topic=observed_topic(QuotaState))


def ask_without_pause(world: World) -> None:
    """40 clients ask for all metrics again and again; health checks are answered all the same."""
    is_over = Event()

    def ask() -> None:
        while not is_over.is_set():
            http_get(world.port, "/metrics")

    with ThreadPoolExecutor(40) as clients:
        for _ in range(40):
            clients.submit(ask)
        try:
            for _ in range(20):
                eventually("health is answered", lambda: http_get(world.port, "/-/healthy"))
        finally:
            is_over.set()


def starve_probes(world: World) -> None:
    """200 clients that never finish their request; health checks are answered all the same."""
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", world.port)))
            client.sendall(b"GET /metr")
        for _ in range(20):
            answer = http_get(world.port, "/-/healthy")
            assert answer is not None
            assert answer[0] == 200


def act_up(world: World) -> None:
    """An actuator's rights: reports about invented targets and clusters, forged states, unordered switches."""
    report = json.dumps(examples()["headgate.quota-application.v1"])
    targets = (report.replace("<default>", f"invented-{n}").replace("payments", HIT).encode() for n in range(3000))
    clusters = (report.replace("payments", f"invented-{n}").encode() for n in range(500))
    reports = [(str(number), event) for number, event in enumerate((*targets, *clusters))]
    produce(world.servers, f"{world.prefix}.applied.reports", *reports)
    garbage = [(HIT, b"\xff{" * 100)] * 20_000
    for topic in ("audit", "applied.reports", "applied.quotas", "observed.quotas", "observed.switches"):
        produce(world.servers, f"{world.prefix}.{topic}", *garbage)
    names = tuple(f"{n:01000}" for n in range(MOST_NAMED))
    for n in range(1000):
        world.read(QuotaState(cluster=HIT, outcome=Outcome.OK, factor=0.5, set_count=n, excluded_users=names))
    brokers = tuple(f"broker-{n}:8080" for n in range(20_000))
    for epoch in range(20):
        world.read(SwitchBrokers(cluster=HIT, outcome=Outcome.OK, brokers=brokers, epoch=epoch))


def acting_up_shows_little(world: World) -> bool:
    """Of the attacker's cluster at most 50 targets, and no cluster that the settings do not name."""
    shown = [labels["cluster"] for labels, _ in world.series("headgate_in_force_value")]
    return "malformed" in world.reasons() and shown == [HIT] * MOST_TARGETS


def read_without_pause(world: World) -> None:
    """A consumer's rights: many clients read all topics again and again, and join their group and leave it."""
    is_over = Event()
    names = [f"{world.prefix}.{name}" for name in (*decided_topics(), *observed_topics(), "audit")]

    def read() -> None:
        options = {"bootstrap.servers": world.servers, "group.id": "a-consumer", "auto.offset.reset": "earliest"}
        while not is_over.is_set():
            consumer = Consumer({**options, "enable.auto.commit": False})
            consumer.subscribe(names)
            consumer.consume(1000, timeout=1.0)
            consumer.assign([TopicPartition(name, 0, 0) for name in names])
            consumer.consume(10_000, timeout=1.0)
            consumer.close()

    with ThreadPoolExecutor(10) as clients:
        reading = [clients.submit(read) for _ in range(10)]
        try:
            world.require_other_decided()
        finally:
            is_over.set()
    assert [each.result() for each in reading] == [None] * 10


def knock_at_every_door(world: World) -> None:
    """A user of this machine: garbage and silence on each port that the loop's processes listen on."""
    ports = listening_ports([world.headgate.process.pid, *world.headgate.children()])
    assert world.port in ports
    assert len(ports) > 1, "Spark's JVM listens, too"
    with ExitStack() as stack:
        for port in ports:
            with suppress(OSError):  # it is closed to more, or has closed this one
                for number in range(30):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1))
                    client.sendall((b"", b"\xff" * 10_000, b"GET / HTTP/1.0\r\n\r\n")[number % 3])
        world.require_other_decided()


@pytest.mark.parametrize(
    ("attack", "is_told"),
    [
        (flood, flood_was_told),
        (amplify, lambda world: True),
        (write_unwritable_times, lambda world: "invalid" in world.reasons()),
        (write_unwritable_numbers, lambda world: any(d["topic"].endswith("quotas") for d in world.dead.data())),
        (starve_probes, lambda world: True),
        (ask_without_pause, lambda world: True),
        (act_up, acting_up_shows_little),
        pytest.param(read_without_pause, lambda world: True, marks=pytest.mark.long),
        (knock_at_every_door, lambda world: True),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_every_other_cluster_is_decided_as_before(
    world: World, attack: Callable[[World], None], is_told: Callable[[World], bool]
) -> None:
    world.require_other_decided()
    attack(world)
    world.require_other_decided()
    eventually("it is told", lambda: is_told(world) or None)
    world.require_other_decided()
