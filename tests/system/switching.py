"""Two real BookKeeper clusters, brokers' metadata with agents, and a loop that switches between the clusters."""

import io
import json
import shutil
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.pulsar.metadata import parse_cursor, parse_locator
from deploy import cli
from policies.observations import Outcome
from policies.switching.ledgers import Layout, LedgerKind, hob_name, path_of
from policies.switching.readings import CommandArgs, CommandName, SwitchCommand
from policies.wire import observation_event
from tests.connectors.pulsar.znodes import cursor_info, schema_locator
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.broker_agent import Broker
from tests.system.ledgers import LedgerClient
from tests.system.loop import Entry, Headgate, Topic, await_ready, make_topics, produce, write_settings
from tests.system.waiting import eventually
from tests.system.zookeeper import ZooKeeper, free_port

OLD, NEW = "old", "new"
TOPICS = "/managed-ledgers/t/n/persistent"
SCHEMAS = "/schemas/t/n"
BROKERS = "/loadbalance/brokers"

_ZOOKEEPER = {"session_timeout": "4s", "timeout": "3s"}
Tree = dict[str, tuple[bytes, int]]
"""Data and mzxid of each znode, by path."""


class Clusters:
    """A ZooKeeper of its own with two BookKeeper clusters of one bookie each, and a client of both."""

    bookie_session_ms = 60_000
    """Long, so that bookies outlive a killed ZooKeeper."""

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        self.folder = folder
        self.zookeeper = ZooKeeper(folder / "zookeeper", jars)
        self.ledgers = LedgerClient(folder / "client", jars)
        self.bookies: dict[str, Bookie] = {}
        self._jars = jars
        self._stack = ExitStack()

    def __enter__(self) -> "Clusters":
        with ExitStack() as stack:
            stack.enter_context(self.zookeeper)
            for name in (OLD, NEW):
                init_cluster(self.folder / f"init-{name}", self._jars, self.servers(name))
                folder = self.folder / name
                bookie = Bookie(folder, self._jars, self.servers(name), session_timeout_ms=self.bookie_session_ms)
                self.bookies[name] = stack.enter_context(bookie)
            stack.enter_context(self.ledgers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def servers(self, name: str) -> str:
        """`host:port/chroot` of one cluster."""
        return f"{self.zookeeper.servers}/{name}"

    def advance_new(self, hob: int) -> None:
        """Set the high half of the new cluster's id generator, as the precheck asks an operator to do."""
        self.create_hob(NEW, hob_name(hob))

    def create_hob(self, name: str, hob: str) -> None:
        """Create a `HOB` in a cluster's id generator."""
        with self.zookeeper.client(chroot=f"/{name}") as client:
            client.ensure_path(f"/ledgers/idgen-long/{hob}")

    def hobs(self, name: str) -> list[str]:
        """The high halves of a cluster's id generator."""
        with self.zookeeper.client(chroot=f"/{name}") as client:
            return sorted(client.get_children("/ledgers/idgen-long"))

    def set_back_new(self) -> None:
        """Reset the new cluster's id generator."""
        with self.zookeeper.client(chroot=f"/{NEW}") as client:
            if client.exists("/ledgers/idgen-long"):
                client.delete("/ledgers/idgen-long", recursive=True)

    def ledger_ids(self, name: str, ids: Sequence[int]) -> set[int]:
        """The subset of `ids` under which a cluster has a ledger."""
        with self.zookeeper.client(chroot=f"/{name}") as client:
            return {i for i in ids if client.exists("/ledgers" + path_of(Layout.HIERARCHICAL, i))}

    def tree(self, chroot: str) -> Tree:
        """All znodes below a chroot, without the registrations of bookies."""
        found: Tree = {}
        with self.zookeeper.client() as client:
            ahead = [chroot]
            while ahead:
                path = ahead.pop()
                if path.endswith("/available"):
                    continue
                data, stat = client.get(path)
                found[path] = (data, stat.mzxid)
                ahead += [f"{path}/{child}" for child in client.get_children(path)]
        return found


class BrokerCluster:
    """A cluster of brokers whose schemas and cursors name ledgers of the old BookKeeper cluster.

    Args:
        clusters: where those are.
        name: of the broker cluster, and its chroot.
        kafka: the loop's Kafka.
        prefix: of the loop's topics.
    """

    def __init__(self, clusters: Clusters, name: str, kafka: str, prefix: str) -> None:
        self.clusters = clusters
        self.name = name
        self.servers = f"{clusters.zookeeper.servers}/{name}"
        self.ledgers: dict[int, list[bytes]] = {}
        """By id, what each ledger holds."""
        names = (f"127.0.0.{n}:8080" for n in (1, 2, 3))
        self.brokers = [Broker(name, each, self.servers, lambda reading: self._report(reading)) for each in names]
        self._kafka, self._prefix = kafka, prefix
        self._stack = ExitStack()

    def make(self) -> None:
        """Create the chroot, and the folders that brokers keep."""
        with self.clusters.zookeeper.client() as client:
            for path in (SCHEMAS, TOPICS, BROKERS):
                client.ensure_path(f"/{self.name}{path}")

    def __enter__(self) -> "BrokerCluster":
        metrics = PublisherMetrics(CollectorRegistry())
        connection = KafkaConnection(bootstrap_servers=self._kafka)
        publisher = self._stack.enter_context(Publisher(connection, metrics))
        topic = f"{self._prefix}.observed.switches"
        self._report = observations_to(publisher.publish, topic, "headgate/broker-agent")
        return self

    def __exit__(self, *error: object) -> None:
        for broker in self.brokers:
            broker.stop_agent()
        self._stack.close()

    def settings(self) -> dict[str, Any]:
        """The cluster's block of the settings file."""
        zookeeper = self.clusters.zookeeper.servers
        blocks = {name: {"zookeeper": {"servers": f"{zookeeper}/{name}", **_ZOOKEEPER}} for name in (OLD, NEW)}
        return {
            "zookeeper": {"servers": self.servers, **_ZOOKEEPER},
            "bookkeeper": {"bootstrap": OLD, "clusters": blocks},
            "switching": {"poll_interval": "500ms", "copy_timeout": "10s", "heap_mebibytes": 96},
        }

    # --- what brokers keep

    def fill(self, schemas: int, cursors: int) -> None:
        """Make ledgers of all shapes in the old cluster, each named by a schema locator or a cursor."""
        with self.client() as client:
            for number in range(schemas):
                ids = [self._ledger(number + version) for version in range(1 + number % 3)]
                # References from before there were several clusters have no attribution.
                attribution = OLD if number % 2 else None
                client.create(f"{SCHEMAS}/topic-{number}", schema_locator(*ids, attribution=attribution))
            for number in range(cursors):
                info = cursor_info(self._ledger(number), attribution=OLD if number % 2 else None)
                client.create(f"{TOPICS}/topic-{number}", makepath=True)
                client.create(f"{TOPICS}/topic-{number}/sub", info)
            client.create(f"{TOPICS}/topic-0/none", cursor_info(-1))

    def _ledger(self, number: int) -> int:
        entries = [f"{self.name} {number}/{n} ".encode() * (1 + n * 37 % 50) for n in range(number % 7)]
        servers = self.clusters.servers(OLD)
        ledger_id = self.clusters.ledgers.make(servers, entries, {"of": str(number).encode()})
        self.ledgers[ledger_id] = entries
        return ledger_id

    def attributions(self) -> dict[int, set[str | None]]:
        """By ledger, the clusters to which references attribute it."""
        found: dict[int, set[str | None]] = {}
        for reference in self.references():
            found.setdefault(reference.ledger_id, set()).add(reference.attribution)
        return found

    def references(self) -> list[Any]:
        """All references to ledgers."""
        found = []
        with self.client() as client:
            for name in client.get_children(SCHEMAS):
                found += parse_locator(f"{SCHEMAS}/{name}", client.get(f"{SCHEMAS}/{name}")[0])
            for topic in client.get_children(TOPICS):
                for cursor in client.get_children(f"{TOPICS}/{topic}"):
                    path = f"{TOPICS}/{topic}/{cursor}"
                    found.append(parse_cursor(path, client.get(path)[0]))
        return [each for each in found if each.ledger_id >= 0 and each.kind in LedgerKind]

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A client of the brokers' ZooKeeper."""
        with self.clusters.zookeeper.client(chroot=f"/{self.name}") as client:
            yield client

    def registry(self, path: str) -> dict[str, Any]:
        """The content of a znode of the registry."""
        with self.client() as client:
            return dict(json.loads(client.get(f"/admin/bookie-clusters/{path}")[0]))

    def copies_differ(self) -> list[int]:
        """Ledgers whose copy in the new cluster differs from the written entries."""
        servers, ledgers = self.clusters.servers(NEW), self.clusters.ledgers
        return [i for i, entries in self.ledgers.items() if ledgers.read(servers, i) != entries]

    # --- the brokers

    def start_agents(self, *brokers: Broker) -> None:
        """Register brokers, and run their agents."""
        for broker in brokers or self.brokers:
            broker.start_agent()
        self.register(*(brokers or self.brokers))

    def register(self, *brokers: Broker) -> None:
        """Register brokers as live, with or without an agent."""
        with self.client() as client:
            for broker in brokers:
                client.ensure_path(f"{BROKERS}/{broker.name}")


class SwitchLoop:
    """`headgate decide` and `headgate act` as processes of their own, which tests may kill, and their decisions."""

    def __init__(self, kafka: str, prefix: str, folder: Path) -> None:
        self.kafka, self.prefix, self.folder = kafka, prefix, folder
        self.file = folder / "headgate.yaml"
        self._ports = defaultdict[str, int](free_port)
        self.running: dict[str, Headgate] = {}
        self._decided = Topic(kafka, f"{prefix}.decided.switches")

    def write(
        self, clusters: Mapping[str, Any], policies: Mapping[str, Any], stream: Mapping[str, Any] | None = None
    ) -> None:
        """Write the settings file and create the topics."""
        write_settings(
            self.file,
            kafka={"bootstrap_servers": self.kafka},
            topics={"prefix": self.prefix},
            data_dir=str(self.folder / "data"),
            stream=dict(stream or {}),
            clusters=dict(clusters),
            policies=dict(policies),
        )
        make_topics(self.file)

    def start(self, *parts: str) -> None:
        """Start processes and wait until they are ready."""
        for part in parts:
            port = str(self._ports[part])
            self.running[part] = Headgate(
                [part, "-s", str(self.file)], self.folder / f"{part}.log", {"HEADGATE_HTTP__PORT": port}
            )
        for part in parts:
            await_ready(self.running[part], self._ports[part])

    def port(self, part: str) -> int:
        """The port at which a process serves its metrics."""
        return self._ports[part]

    def kill(self, *parts: str) -> None:
        for part in parts:
            self.running.pop(part).kill()

    def lose_checkpoint(self) -> None:
        """Kill the query, and start it without its checkpoint."""
        self.kill("decide")
        shutil.rmtree(self.folder / "data" / "checkpoint")
        self.start("decide")

    def close(self) -> None:
        """End all processes."""
        self.kill(*self.running)
        self._decided.__exit__()

    def cli(self, *words: str) -> tuple[int, str]:
        """Run `headgate switch …` in this process; returns its exit status and its output."""
        said = io.StringIO()
        with (
            patch.object(sys, "argv", ["headgate", "switch", *words, "-s", str(self.file)]),
            redirect_stdout(said),
            redirect_stderr(said),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main()
        return int(ended.value.code or 0), said.getvalue()

    # --- commands, and what becomes of them

    def command(self, cluster: str, command: CommandName, **more: Any) -> dict[str, Any]:
        """Publish a command; returns the first decision about it."""
        key = uuid.uuid4().hex
        args = CommandArgs.model_validate(more.pop("args", {}))
        said = SwitchCommand(
            cluster=cluster, outcome=Outcome.OK, command=command, args=args, actor="test", idempotency_key=key, **more
        )
        event = observation_event(said, id=key, source="test", time=datetime.now(UTC))
        produce(self.kafka, f"{self.prefix}.commands", (cluster, event))

        def answer() -> dict[str, Any] | None:
            mine = (e.data for e in self.decisions(cluster) if key in e.data["evidence"] or key in e.data["subject"])
            return next(mine, None)

        return eventually(f"{command.value} of {cluster} is answered", answer)

    def decisions(self, cluster: str) -> list[Entry]:
        """All decisions about one cluster, without records of its switch."""
        return [
            entry
            for entry in self._decided.entries()
            if entry.data["cluster"] == cluster and entry.event["type"] == "headgate.switch-decision.v1"
        ]

    def records(self, cluster: str) -> list[dict[str, Any]]:
        """The records of the cluster's switch, in order."""
        return [
            entry.data
            for entry in self._decided.entries()
            if entry.data["cluster"] == cluster and entry.event["type"] == "headgate.switch-state.v1"
        ]

    def stage(self, cluster: str) -> str:
        """The present stage of the cluster's switch."""
        records = self.records(cluster)
        return records[-1]["verdict"] if records else "none"

    def await_stage(self, cluster: str, *stages: str) -> dict[str, Any]:
        """Wait until the switch is at one of these stages; returns its record."""

        def there() -> dict[str, Any] | None:
            records = self.records(cluster)
            return records[-1] if records and records[-1]["verdict"] in stages else None

        return eventually(f"{cluster} is at {' or '.join(stages)}", there)

    def await_seen(self, cluster: str, *stages: str) -> None:
        """Wait until the switch is or was at one of these stages."""
        eventually(
            f"{cluster} was at {' or '.join(stages)}",
            lambda: any(record["verdict"] in stages for record in self.records(cluster)),
        )

    def register(self, brokers: BrokerCluster) -> None:
        """Register both clusters, the old one first."""
        for name in (OLD, NEW):
            with brokers.clusters.zookeeper.client(chroot=f"/{name}") as client:
                instance = client.get("/ledgers/INSTANCEID")[0].decode()
            uri = f"zk+hierarchical://{brokers.clusters.servers(name)}/ledgers"
            args = {"name": name, "uri": uri, "instance_id": instance, "root": f"/{name}/ledgers"}
            said = self.command(brokers.name, CommandName.REGISTER, args=args)
            assert said["verdict"] == "write-registry", said
            eventually(f"{name} is in the registry", partial(_is_there, brokers, name))

    def precheck(self, cluster: str) -> dict[str, Any]:
        """Check the new cluster; returns the policy's decision on the report."""
        since = len(self.decisions(cluster))
        ordered = self.command(cluster, CommandName.PRECHECK, args={"target": NEW})
        assert ordered["verdict"] == "run-precheck", ordered

        def checked() -> dict[str, Any] | None:
            found = (e.data for e in self.decisions(cluster)[since:] if e.data["verdict"] == "advance")
            return next((each for each in found if each["subject"] == f"{cluster}/prechecks/{NEW}"), None)

        return eventually("the precheck is known", checked)

    def begin(self, cluster: str) -> dict[str, Any]:
        """Precheck, and start."""
        digest = self.precheck(cluster)["args"]["digest"]
        return self.command(cluster, CommandName.START, args={"target": NEW}, precheck_digest=digest)

    def begin_again(self, cluster: str) -> dict[str, Any]:
        """Start again a switch that left ledgers behind."""
        return self.command(cluster, CommandName.START, args={"target": NEW})


def _is_there(brokers: BrokerCluster, name: str) -> bool:
    with brokers.client() as client:
        return client.exists(f"/admin/bookie-clusters/clusters/{name}") is not None
