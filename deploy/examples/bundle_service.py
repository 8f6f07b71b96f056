"""A service that owns bundles through ZooKeeper, and uses the ownership agent when it loses its session.

Run two of them in two terminals, on any ZooKeeper:

    python -m deploy.examples.bundle_service --zookeeper 127.0.0.1:2181 --member b1:8080 --bundles t/ns/1,t/ns/2
    python -m deploy.examples.bundle_service --zookeeper 127.0.0.1:2181 --member b2:8080 --bundles t/ns/1

The second one waits for the bundle of the first one. Stop the first one with Ctrl-Z for longer than
`--session-timeout`: the second one takes the bundle over. After `fg` the first one notices that, and unloads. With
`--fence` they never serve a bundle at the same time. Without it both serve until the first one has read ZooKeeper
again: see docs/ownership-agent.md.

It serves nothing real. It writes its actions as JSON lines to stdout, or to `--log`: `{"at": 123.456, "did": "serve",
"member": …, "bundle": …}`. `at` is the machine's boot clock in seconds, which is the same in all processes; `did` is
also `preload`, `unload`, `republish`, `invalidate-caches` or `shut-down`. Below `--root` it owns `/namespace/<bundle>`,
and registers itself at `/loadbalance/brokers/<member>`, as Pulsar's brokers do. With `--loop-kafka` it follows the
decisions of a Headgate loop and reports to it; without, it applies the same rules alone. Ctrl-C ends it.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from connectors.kafka.connection import KafkaConnection
from connectors.kafka.publisher import Publisher, PublisherMetrics, observations_to
from connectors.kafka.topics import TopicSettings
from connectors.sessions.agent import (
    DecisionSource,
    LocalStrategy,
    LoopStrategy,
    MemberDecisions,
    OwnershipAgent,
    OwnershipCallbacks,
    OwnershipError,
    RecoveryStrategy,
)
from connectors.sessions.agent.contact import boot_seconds
from connectors.sessions.agent.reporter import ReadingSink
from deploy.processes.signals import stop_on_signals
from policies.errors import UserError
from policies.sessions.decisions import OwnershipReason, SessionDecision
from policies.sessions.readings import BROKERS, NAMESPACES
from policies.sessions.settings import OwnershipRules, SessionsSettings

_SERVE_SECONDS = 0.02
_CLAIM_SECONDS = 0.5
_OWN_SECONDS = 1.0


class Log:
    """Writes actions, each as one whole line."""

    def __init__(self, member: str, out: TextIO) -> None:
        self._member = member
        self._out = out
        self._lock = threading.Lock()

    def write(self, did: str, bundle: str | None = None, *, at: float | None = None, why: str | None = None) -> None:
        """Write one line; `at` is given for a moment in the past."""
        line = {"at": boot_seconds() if at is None else at, "did": did, "member": self._member}
        line |= {key: value for key, value in (("bundle", bundle), ("why", why)) if value is not None}
        with self._lock:
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()


class Service(OwnershipCallbacks):
    """The service that the ownership agent protects.

    Args:
        member: the name of this service.
        log: receives its actions.
    """

    def __init__(self, client: KazooClient, member: str, log: Log, stop: threading.Event) -> None:
        self._client = client
        self._member = member
        self._log = log
        self._stop = stop

    @property
    def value(self) -> bytes:
        """The content of its nodes: the owner."""
        return json.dumps({"brokerId": self._member}).encode()

    def preload(self, path: str) -> None:
        """A broker would load the bundle's topics here."""
        self._log.write("preload", bundle_of(path))

    def unload(self, path: str, reason: OwnershipReason | None) -> None:
        """A broker would close the bundle's topics here."""
        self._log.write("unload", bundle_of(path), why="released" if reason is None else reason.value)

    def republish(self) -> None:
        """Register again."""
        self.register()
        self._log.write("republish")

    def invalidate_caches(self) -> None:
        """Do nothing, because it has no caches."""
        self._log.write("invalidate-caches")

    def shut_down(self, decision: SessionDecision) -> None:
        """End the process; restarting it is the platform's task."""
        self._log.write("shut-down", why=decision.reason.value)
        self._stop.set()

    def register(self) -> None:
        """Register itself, as a broker does; a node that an old session left behind is no registration."""
        path = f"{BROKERS}/{self._member}"
        stat = self._client.exists(path)
        if stat is not None and stat.ephemeralOwner == self._client.client_id[0]:
            return
        if stat is not None:
            self._client.delete(path, version=stat.version)
        self._client.create(path, self.value, ephemeral=True, makepath=True)

    def run(self, agent: OwnershipAgent, bundles: list[str]) -> None:
        """Serve the bundles that it owns, and try to own the others, until `stop` is set."""
        claim_at = 0.0
        while not self._stop.wait(_SERVE_SECONDS):
            if boot_seconds() >= claim_at:
                self._claim(agent, bundles)
                claim_at = boot_seconds() + _CLAIM_SECONDS
            for bundle in bundles:
                # Read the clock first: the permission held at that moment, even if this process is frozen before the
                # write.
                at = boot_seconds()
                if agent.serving(path_of(bundle)):
                    self._log.write("serve", bundle, at=at)

    def _claim(self, agent: OwnershipAgent, bundles: list[str]) -> None:
        held = agent.held()
        for bundle in bundles:
            if path_of(bundle) not in held:
                try:
                    agent.acquire(path_of(bundle), self.value, timeout_seconds=_OWN_SECONDS)
                except OwnershipError:
                    continue  # another service owns it, or there is no session: try again later


def path_of(bundle: str) -> str:
    """Return the node of a bundle."""
    return f"{NAMESPACES}/{bundle}"


def bundle_of(path: str) -> str:
    """Return the bundle of a node."""
    return path.removeprefix(f"{NAMESPACES}/")


@contextmanager
def _loop(
    kafka: str | None, prefix: str, cluster: str, member: str, local: RecoveryStrategy
) -> Iterator[tuple[RecoveryStrategy, ReadingSink | None]]:
    """Return the source of decisions after a loss, and the destination of reports."""
    if kafka is None:
        yield local, None
        return
    try:
        connection, topics = KafkaConnection(bootstrap_servers=kafka), TopicSettings(prefix=prefix)
    except ValidationError as error:
        raise UserError(f"--loop-kafka or --loop-prefix: {error.errors()[0]['msg']}.") from None
    source = DecisionSource(connection, topics.topic(SessionDecision.topic), f"bundle-service-{member}")
    strategy = LoopStrategy(MemberDecisions(cluster, member), source, fallback=local)
    with Publisher(connection, PublisherMetrics(CollectorRegistry())) as publisher:
        topic = topics.topic("observed.sessions")
        yield strategy, observations_to(publisher.publish, topic, f"bundle-service/{member}")


def _connect(client: KazooClient, servers: str) -> None:
    try:
        client.start(timeout=15)
    except KazooTimeoutError:
        raise UserError(f"--zookeeper: no server of {servers} gives a session within 15 s.") from None


def _client(servers: str, timeout_seconds: float) -> KazooClient:
    retry = KazooRetry(max_tries=-1, max_delay=1)
    try:
        return KazooClient(servers, timeout=timeout_seconds, connection_retry=retry)
    except ValueError as error:
        raise UserError(f"--zookeeper: {error}: write it as host:port,host:port/chroot.") from None


def main(
    zookeeper: Annotated[str, typer.Option(help="host:port, comma separated, and a chroot where there is one.")],
    member: Annotated[str, typer.Option(help="Its name, host:port.")],
    bundles: Annotated[str, typer.Option(help="Bundles to own: tenant/namespace/range, comma separated.")],
    session_timeout: Annotated[float, typer.Option(help="Seconds; the servers limit it, too.")] = 10.0,
    cluster: Annotated[str, typer.Option(help="The cluster's name in the loop's settings.")] = "example",
    rules: Annotated[OwnershipRules, typer.Option(help="Action on a node of its own old session.")] = (
        OwnershipRules.PIP57
    ),
    fence: Annotated[bool, typer.Option("--fence", help="Serve nothing rather than a bundle twice.")] = False,
    log: Annotated[Path | None, typer.Option(help="A file to append to; default: stdout.")] = None,
    loop_kafka: Annotated[str | None, typer.Option(help="Bootstrap servers of Headgate's Kafka.")] = None,
    loop_prefix: Annotated[str, typer.Option(help="Of the loop's topics.")] = "headgate",
) -> None:
    """Own bundles, and serve them."""
    stop = stop_on_signals()
    local = LocalStrategy(SessionsSettings(ownership_rules=rules))
    try:
        with _loop(loop_kafka, loop_prefix, cluster, member, local) as (strategy, report):
            client = _client(zookeeper, session_timeout)
            out = sys.stdout if log is None else log.open("a", encoding="utf-8")
            service = Service(client, member, Log(member, out), stop)
            agent = OwnershipAgent(
                client, member, service, cluster=cluster, strategy=strategy, fence=fence, report=report
            )
            _run(client, zookeeper, service, agent, [bundle for bundle in bundles.split(",") if bundle])
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program's own words
        raise typer.Exit(2) from None


def _run(client: KazooClient, servers: str, service: Service, agent: OwnershipAgent, bundles: list[str]) -> None:
    with agent:
        _connect(client, servers)
        try:
            _begin(service)
            service.run(agent, bundles)
        finally:
            agent.close()
            client.stop()
            client.close()


def _begin(service: Service) -> None:
    try:
        service.republish()
    except KazooException as error:
        raise UserError(f"--member: cannot register it: {type(error).__name__}. Is another one running?") from None


if __name__ == "__main__":
    typer.run(main)
