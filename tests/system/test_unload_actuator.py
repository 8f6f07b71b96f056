"""The Pulsar actuator on real brokers: unloading, looking up, keeping its hands off; and end to end over Kafka."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from kazoo.exceptions import NoNodeError
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.admin import create_topics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics
from connectors.kafka.topics import TopicSettings
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.registration import UnloadSettings
from connectors.sessions.unload import UnloadActuator, UnloadMetrics, UnloadWorker
from policies.sessions.decisions import OwnershipDecision
from policies.wire import decision_event
from tests.connectors.sessions.orders import decision
from tests.system.loop import Topic, produce
from tests.system.pulsar import CLUSTER, PulsarBroker, PulsarCluster
from tests.system.pulsar_topics import create_namespace
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import DEADLINE_SECONDS, eventually

RANGE = "0x00000000_0xffffffff"
SESSION_SECONDS = 6.0


@dataclass
class Fleet:
    """Two brokers; the second reaches ZooKeeper through a proxy that may be cut."""

    cluster: PulsarCluster
    first: PulsarBroker
    second: PulsarBroker
    proxy: TcpProxy

    def bundle(self, owner: PulsarBroker | None = None) -> str:
        """A new bundle with one topic, which a broker owns, or nobody."""
        namespace = f"t/{uuid.uuid4().hex[:8]}"
        create_namespace(self.cluster, namespace)
        topic, bundle = f"{namespace}/topic", f"{namespace}/{RANGE}"
        ask("PUT", f"{self.first.admin_url}/admin/v2/persistent/{topic}")
        ask("PUT", f"{self.first.admin_url}/admin/v2/namespaces/{bundle}/unload")
        assert self.node(bundle) is None
        if owner is not None:
            self.give(bundle, owner)
        return bundle

    def give(self, bundle: str, owner: PulsarBroker) -> None:
        """Have a broker own a bundle that nobody owns, as the leader does once it has chosen one."""
        topic = bundle.replace(RANGE, "topic")
        ask("GET", f"{owner.admin_url}/lookup/v2/topic/persistent/{topic}?authoritative=true")
        assert self.owner(bundle) == owner.broker_id

    def node(self, bundle: str) -> tuple[str, int, int] | None:
        """Who owns a bundle by ZooKeeper, in which session and by which transaction."""
        try:
            with self.cluster.zookeeper.client() as client:
                content, stat = client.get(f"/namespace/{bundle}")
        except NoNodeError:
            return None
        owner = str(json.loads(content)["httpUrl"]).removeprefix("http://")
        return owner, stat.ephemeralOwner, stat.czxid

    def owner(self, bundle: str) -> str | None:
        """Who owns a bundle by ZooKeeper."""
        node = self.node(bundle)
        return None if node is None else node[0]


def ask(method: str, url: str) -> Any:
    answer = httpx.request(method, url, timeout=30, follow_redirects=True)
    assert answer.is_success, f"{method} {url}: {answer.status_code} {answer.text[:300]}"
    return answer.json() if answer.content else None


def serves(broker: PulsarBroker, bundle: str) -> bool:
    """Whether a broker itself believes that it serves a bundle."""
    return bundle in ask("GET", f"{broker.admin_url}/admin/v2/brokers/{CLUSTER}/{broker.broker_id}/ownedNamespaces")


def lets_go(fleet: Fleet, bundle: str, chosen: set[str]) -> bool:
    """Whether the second serves it no more, or again, as one of those chosen since."""
    return not serves(fleet.second, bundle) or fleet.owner(bundle) in chosen


@pytest.fixture(scope="module")
def fleet(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("pulsar")
    with PulsarCluster(folder, pulsar_jars, bookkeeper_jars, bookies=1) as cluster:
        first = cluster.add_broker(ensemble_size=1, session_timeout_ms=30_000)  # it outlives being frozen
        with TcpProxy(cluster.zookeeper.servers) as proxy:
            # Behind the cluster's own, so that it is killed with them.
            second = PulsarBroker(
                folder / "second", pulsar_jars, proxy.address, ensemble_size=1,
                session_timeout_ms=int(SESSION_SECONDS * 1000),
            )  # fmt: skip
            cluster.brokers.append(second)
            second.start()
            yield Fleet(cluster, first, second, proxy)
            second.kill()


def decided(bundle: str, member: str, **fields: Any) -> OwnershipDecision:
    """A decision of this moment."""
    now = datetime.now(UTC)
    times = {"decided_at": now, "valid_until": now + timedelta(minutes=5)}
    names = {"cluster": CLUSTER, "member": member, "subject": f"{CLUSTER}/{member}/{bundle}"}
    return decision(bundle, **{**names, **times, **fields})


class Acting:
    """One cluster's worker at work in a thread of its own."""

    def __init__(self, admin: dict[str, Any], **settings: Any) -> None:
        self.said: list[tuple[float, dict[str, Any]]] = []
        metrics = UnloadMetrics(CollectorRegistry())
        unload = UnloadSettings.model_validate({"grace": "0s", "per_broker_interval": "100ms", **settings})
        self._admin = AdminApi(PulsarAdmin.model_validate({"timeout": "5s", **admin}))
        self.worker = UnloadWorker(CLUSTER, self._admin, unload, self._hear, metrics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.worker.run, args=(self._stop,), name="acting")

    def _hear(self, _: str, value: bytes) -> None:
        self.said.append((time.monotonic(), json.loads(value)["data"]))

    def __enter__(self) -> "Acting":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self.worker.wake()
        self._thread.join(DEADLINE_SECONDS)
        self._admin.close()
        assert not self._thread.is_alive()

    def decide(self, *decisions: OwnershipDecision) -> None:
        for one in decisions:
            self.worker.receive(one, datetime.now(UTC))

    def awaits(self, outcome: str, bundle: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((s for _, s in self.said if (s["outcome"], s["bundle"]) == (outcome, bundle)), None)

        return eventually(f"{outcome} is said of {bundle}, not only {self.said}", found)

    @property
    def outcomes(self) -> list[str]:
        return [said["outcome"] for _, said in self.said]


def acting(fleet: Fleet, **settings: Any) -> Acting:
    return Acting({"admin_url": fleet.first.admin_url}, **settings)


def test_a_bundle_is_unloaded_at_the_broker_that_serves_it_and_is_free_then(fleet: Fleet) -> None:
    bundle = fleet.bundle(fleet.second)
    with acting(fleet) as actor:
        started = time.monotonic()
        actor.decide(decided(bundle, fleet.second.broker_id))
        actor.awaits("done", bundle)
        print(f"{time.monotonic() - started:.3f} s to unload a bundle")  # noqa: T201
    assert fleet.node(bundle) is None
    assert not serves(fleet.second, bundle)


def test_an_orphaned_bundle_is_owned_again(fleet: Fleet) -> None:
    bundle = fleet.bundle()
    with acting(fleet) as actor:
        actor.decide(decided(bundle, fleet.second.broker_id, verdict="re-own"))
        served_by = actor.awaits("done", bundle)["served_by"]
        assert served_by == [fleet.owner(bundle)]
        actor.decide(decided(bundle, fleet.second.broker_id, verdict="re-own", sequence=2))
        actor.awaits("already_owned", bundle)


def taken_by_first(fleet: Fleet, topic: str, bundle: str) -> bool:
    """Whether the first broker owns a bundle after a lookup: at first it may believe that the second is still there."""
    with suppress(AssertionError, httpx.TransportError):
        ask("GET", f"{fleet.first.admin_url}/lookup/v2/topic/persistent/{topic}")
    return fleet.owner(bundle) == fleet.first.broker_id


def test_a_broker_that_is_cut_off_and_still_serves_what_another_owns_is_left_to_let_go_by_itself(fleet: Fleet) -> None:
    """Measured: made to unload it meanwhile, it hangs, and the bundle stays unusable there even when all is healed."""
    bundle = fleet.bundle(fleet.second)
    topic = bundle.replace(RANGE, "topic")
    with acting(fleet) as actor:
        fleet.proxy.cut()
        try:
            eventually("its session has expired", lambda: fleet.node(bundle) is None)
            eventually("the other owns it", lambda: taken_by_first(fleet, topic, bundle))
            rightful = fleet.node(bundle)
            # Now and then it answers nothing at all while it has no ZooKeeper.
            named = {"owner": fleet.first.broker_id, "reason": "other_owner", "session": None}
            actor.decide(decided(bundle, fleet.second.broker_id, **named))
            eventually("something is said", lambda: bool(actor.outcomes))
            assert actor.outcomes[0] in ("contested", "failed")
        finally:
            fleet.proxy.heal()
        assert actor.awaits("already_moved", bundle)["served_by"] == [fleet.first.broker_id]
    assert "done" not in actor.outcomes
    assert fleet.node(bundle) == rightful
    assert not serves(fleet.second, bundle)


def test_a_broker_with_a_session_lets_go_of_what_zookeeper_says_is_another_s(fleet: Fleet) -> None:
    """PIP-57's unload, unless the broker is faster: Pulsar 4.2.4 was each time, as it watches its nodes.

    Where only the value of its own node is overwritten it does not notice, and an unload is refused (409) and hangs.
    """
    outcomes = []
    for _ in range(3):
        bundle = fleet.bundle(fleet.second)
        with fleet.cluster.zookeeper.client() as client, acting(fleet) as actor:
            node = f"/namespace/{bundle}"
            theirs = client.get(node)[0].replace(fleet.second.broker_id.encode(), fleet.first.broker_id.encode())
            swap = client.transaction()
            swap.delete(node)
            swap.create(node, theirs, ephemeral=True)
            swap.commit()
            assert fleet.owner(bundle) == fleet.first.broker_id
            actor.decide(decided(bundle, fleet.second.broker_id, owner=fleet.first.broker_id, reason="other_owner"))
            eventually("it is settled", lambda: bool(set(actor.outcomes) & {"done", "already_moved"}))
            outcomes.append(actor.outcomes[-1])
            # Where the broker unloads it of itself, too, whoever asks as second is answered before the first is done.
            # An unload frees it, as its owner never was one here: then whoever looks it up has the second chosen, too.
            chosen = {fleet.second.broker_id} if actor.outcomes[-1] == "done" else set()
            eventually("it has let go", partial(lets_go, fleet, bundle, chosen))
            assert fleet.owner(bundle) in {None, fleet.first.broker_id, *chosen}
    print(f"zookeeper names another: {outcomes}")  # noqa: T201


# --- end to end


class Running:
    """The whole actuator, between a real Kafka and real brokers."""

    def __init__(self, servers: str, prefix: str, fleet: Fleet) -> None:
        kafka = KafkaConnection(bootstrap_servers=servers)
        self.registry = CollectorRegistry()
        self._publisher = Publisher(kafka, PublisherMetrics(self.registry))
        self._admin = AdminApi(PulsarAdmin(admin_url=fleet.first.admin_url))
        settings = UnloadSettings.model_validate({"grace": "0s", "per_broker_interval": "100ms"})
        topics, metrics = (
            LoopTopics(kafka, f"{prefix}.decided.sessions", f"{prefix}.audit"),
            UnloadMetrics(self.registry),
        )
        worker = UnloadWorker(CLUSTER, self._admin, settings, topics.reporter(self._publisher.publish), metrics)
        self.actuator = UnloadActuator(topics, {CLUSTER: worker})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.actuator.run, args=(self._stop,), name="actuator")

    def __enter__(self) -> "Running":
        assert self.actuator.caught_up() is not None
        self._thread.start()
        eventually("it has caught up", lambda: self.actuator.caught_up() is None)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        self._publisher.close()
        self._admin.close()
        assert not self._thread.is_alive()


def test_from_a_decision_in_kafka_to_the_broker_to_the_report_and_once_in_effect(loop_kafka: str, fleet: Fleet) -> None:
    prefix = f"un{uuid.uuid4().hex[:8]}"
    create_topics(KafkaConnection(bootstrap_servers=loop_kafka), TopicSettings(prefix=prefix))
    topic = f"{prefix}.decided.sessions"
    member = fleet.second.broker_id

    def decide(*decisions: OwnershipDecision) -> None:
        produce(loop_kafka, topic, *((one.subject, decision_event(one)) for one in decisions))

    restart = b'{"specversion":"1.0","id":"x","source":"y","type":"headgate.session-decision.v1","data":{}}'
    bundle, lifted, theirs = fleet.bundle(fleet.second), fleet.bundle(fleet.second), fleet.bundle(fleet.second)
    with Topic(loop_kafka, f"{prefix}.audit") as audit:

        def outcomes() -> list[tuple[str, str]]:
            return [(said["bundle"], said["outcome"]) for said in audit.data()]

        decide(decided(lifted, member), decided(lifted, member, sequence=2, verdict="keep"))
        with Running(loop_kafka, prefix, fleet):
            produce(loop_kafka, topic, (f"{CLUSTER}/{member}", restart), ("bad", b"{"))
            order = decided(bundle, member)
            decide(decided(theirs, member, cluster="other"), order, order)
            eventually("it is said", lambda: outcomes() == [(bundle, "done")])
        report = audit.entries()[0]
        assert (report.key, report.event["type"]) == (CLUSTER, "headgate.bundle-unloaded.v1")
        assert report.data["decision_id"] == order.decision_id
        # The broker has it again, and rightly; and the actuator starts anew, with a decision that is still valid.
        fleet.give(bundle, fleet.second)
        again = fleet.node(bundle)
        with Running(loop_kafka, prefix, fleet):
            later = fleet.bundle(fleet.second)
            decide(decided(later, member))
            eventually("a new decision is done", lambda: (later, "done") in outcomes())
        assert outcomes() == [(bundle, "done"), (later, "done")]
        assert fleet.node(bundle) == again
    assert serves(fleet.second, lifted)
    assert serves(fleet.second, theirs)
