"""A `headgate run` with the sessions policy, and fleets of agents that follow it.

Shared by test_loop_sessions.py, test_loop_sessions_pulsar.py and bench/sessions.py.
"""

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from connectors.sessions.agent.contact import boot_seconds
from connectors.zookeeper.server_status import session_name
from policies.sessions.readings import registration_path
from tests.system.loop import Entry, Headgate, LoopTopics, await_ready, write_settings
from tests.system.owners import BundleService
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import eventually

ZOOKEEPER = {"session_timeout": "4s", "timeout": "2s"}
_GAP_SECONDS = 0.5
"""Serving that is noted twice within this went on in between."""


class SessionsLoop(LoopTopics):
    """A `headgate run` with its topics and metrics, which a test may kill and start again.

    Args:
        servers: of the loop's own Kafka.
        prefix: of the topics.
        port: of the metrics.
        file: its settings.
        data: its folder.
    """

    def __init__(self, servers: str, prefix: str, port: int, file: Path, data: Path) -> None:
        self.servers, self.prefix = servers, prefix
        self._file, self._data, self._starts, self._port = file, data, 0, port
        self._headgate = self._started()
        super().__init__(servers, prefix, port, "observed.sessions", "decided.sessions", "decided.alerts")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._headgate.__exit__(*error)
        self.close()

    def stop(self) -> None:
        """Stop the loop, which must end in order and without a traceback."""
        assert self._headgate.stop() == 0, self._headgate.output()
        assert "Traceback" not in self._headgate.output(), self._headgate.output()

    @contextmanager
    def dead(self, *, lose_checkpoint: bool = False) -> Iterator[None]:
        """Kill all processes at once, and start them again at the end of a block."""
        self._headgate.kill()
        if lose_checkpoint:
            shutil.rmtree(self._data / "checkpoint")
        try:
            yield
        finally:
            self._headgate = self._started()

    def _started(self) -> Headgate:
        self._starts += 1
        headgate = Headgate(["run", "-s", str(self._file)], self._data.parent / f"run-{self._starts}.log")
        try:
            await_ready(headgate, self._port)
        except BaseException:
            headgate.kill()
            raise
        return headgate

    def mark(self) -> int:
        """The offset after the last decision."""
        entries = self.entries("decided.sessions")
        return entries[-1].offset + 1 if entries else 0

    def decided(self, cluster: str, member: str, bundle: str | None = None, since: int = 0) -> list[Entry]:
        """The decisions about a member, or about a bundle it owned."""
        subject = "/".join(part for part in (cluster, member, bundle) if part)
        return self.entries("decided.sessions", since=since, subject=subject)

    def verdicts(self, cluster: str, member: str, bundle: str | None = None, since: int = 0) -> list[tuple[str, str]]:
        """Verdict and reason of each of these decisions."""
        found = self.decided(cluster, member, bundle, since)
        return [(entry.data["verdict"], entry.data["reason"]) for entry in found]

    def verdicts_of_cluster(self, cluster: str, since: int = 0) -> list[tuple[str, str, str]]:
        """Member, verdict and reason of every decision about a member, without those about bundles."""
        found = self.entries("decided.sessions", "session-decision", since, cluster=cluster)
        return [(entry.data["member"], entry.data["verdict"], entry.data["reason"]) for entry in found]

    def await_decision(
        self,
        cluster: str,
        member: str,
        verdict: str,
        *reasons: str,
        bundle: str | None = None,
        since: int = 0,
    ) -> Entry:
        """Wait for a decision, with one of these reasons if any are given; returns its first record."""

        def first() -> Entry | None:
            for entry in self.decided(cluster, member, bundle, since):
                if entry.data["verdict"] == verdict and (not reasons or entry.data["reason"] in reasons):
                    return entry
            return None

        what = f"{verdict} {'|'.join(reasons)} for {cluster}/{member}{'/' + bundle if bundle else ''}"
        return eventually(what, first)

    def alerts(self, cluster: str, alert: str, subject: str | None = None) -> list[Entry]:
        """All records of one alert of a cluster, or those about one subject."""
        return self.entries("decided.alerts", alert=alert, cluster=cluster, subject=subject)

    def await_alert(self, cluster: str, alert: str, subject: str, status: str) -> Entry:
        """Wait until an alert's last record has this status."""
        what = f"{alert} of {subject} is {status}"
        return self.await_last(what, lambda: self.alerts(cluster, alert, subject), status=status)

    def readings(self, kind: str, cluster: str) -> list[Entry]:
        """The readings of a kind (`zk-session`, `ownerships`, `member-health`, `recovery`) of a cluster."""
        return self.entries("observed.sessions", kind, cluster=cluster)


@contextmanager
def sessions_loop(
    *,
    loop_kafka: str,
    folder: Path,
    port: int,
    clusters: Mapping[str, Any],
    sessions: Mapping[str, Any],
    stream: Mapping[str, Any] | None = None,
) -> Iterator[SessionsLoop]:
    """Run `headgate run` on some clusters; it must end in order and without a traceback.

    Args:
        loop_kafka: bootstrap servers of the loop's own Kafka.
        folder: for settings, data and log.
        port: of the metrics.
        clusters: by name.
        sessions: `policies.sessions`.
        stream: settings of the query.
    """
    prefix, data = f"s{uuid.uuid4().hex[:8]}", folder / "data"
    settings = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": prefix},
        "data_dir": str(data),
        "http": {"port": port},
        "stream": dict(stream or {}),
        "clusters": dict(clusters),
        # So no decision is repeated while a test counts them, however slow the machine is.
        "policies": {"sessions": {"validity": "2h", **sessions}},
    }
    file = write_settings(folder / "headgate.yaml", **settings)
    with SessionsLoop(loop_kafka, prefix, port, file, data) as loop:
        yield loop
        loop.stop()


@dataclass(frozen=True)
class Incident:
    """A period in which a member had no contact with ZooKeeper, by the machine's boot clock in seconds."""

    member: str
    began_at: float
    ended_at: float


@dataclass(frozen=True)
class Overlap:
    """A period in which two members served one bundle, by the same clock."""

    bundle: str
    members: frozenset[str]
    began_at: float
    ended_at: float


class Fleet:
    """Agents of one cluster as processes, each behind a proxy of its own, which follow the loop.

    Args:
        cluster: its name, and its chroot.
        servers: of ZooKeeper, without a chroot.
        client: an onlooker, without a chroot.
        folder: for their logs.
        loop: its decisions are followed.
        options: further ones of the example service.
    """

    def __init__(
        self,
        cluster: str,
        servers: str,
        client: KazooClient,
        folder: Path,
        loop: SessionsLoop,
        options: Iterable[str] = (),
    ) -> None:
        self.cluster = cluster
        self.services: dict[str, BundleService] = {}
        self.incidents: list[Incident] = []
        self._proxies: dict[str, TcpProxy] = {}
        self._wanted: dict[str, str] = {}
        self._predecessors: dict[str, list[BundleService]] = {}
        self._servers, self._client, self._folder = servers, client, folder
        follow = ("--loop-kafka", loop.servers, "--loop-prefix", loop.prefix, "--cluster", cluster)
        self._options = (*follow, *options)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._client.ensure_path(f"/{self.cluster}")
        return self

    def __exit__(self, *error: object) -> None:
        for service in self.services.values():
            if service.process.poll() is None:
                service.process.kill()
        self._stack.close()

    def start(self, member: str, *bundles: str) -> None:
        """Start an agent; without bundles one that has run before, with the bundles it had."""
        self._wanted[member] = ",".join(bundles) or self._wanted[member]
        if member in self.services:
            self._predecessors.setdefault(member, []).append(self.services[member])
        if member not in self._proxies:
            self._proxies[member] = self._stack.enter_context(TcpProxy(self._servers))
        folder = self._folder / f"{self.cluster}-{len(self._predecessors.get(member, ()))}"
        folder.mkdir(exist_ok=True)
        servers = f"{self._proxies[member].address}/{self.cluster}"
        service = BundleService(servers, member, folder, *self._options, bundles=self._wanted[member])
        self.services[member] = self._stack.enter_context(service)

    def await_serving(self, member: str, bundle: str, after: float = 0.0) -> float:
        """Wait until a member serves a bundle after a moment; returns the moment of its first report."""

        def first() -> float | None:
            lines = self.services[member].lines("serve")
            return next((line["at"] for line in lines if line["at"] > after and line["bundle"] == bundle), None)

        return eventually(f"{member} serves {bundle}", first)

    def await_owner(self, bundle: str) -> str:
        """Wait until a bundle has an owner; returns the member that its node names."""

        def owner() -> str | None:
            try:
                content, _ = self._client.get(self._path(bundle))
            except NoNodeError:
                return None
            return str(json.loads(content)["brokerId"])

        return eventually(f"{bundle} has an owner", owner)

    def read_session(self, bundle: str) -> str | None:
        """The session that a bundle's node belongs to; None while there is none."""
        stat = self._client.exists(self._path(bundle))
        return None if stat is None else session_name(stat.ephemeralOwner)

    def registered_session(self, member: str) -> str | None:
        """The session that owns a member's registration; None without one."""
        stat = self._client.exists(f"/{self.cluster}{registration_path(member)}")
        return None if stat is None else session_name(stat.ephemeralOwner)

    @contextmanager
    def cut(self, *members: str) -> Iterator[float]:
        """Cut members off ZooKeeper during a block; yields when that began."""
        began_at = boot_seconds()
        for member in members:
            self._proxies[member].cut()
        try:
            yield began_at
        finally:
            for member in members:
                self._proxies[member].heal()
                self.incidents.append(Incident(member, began_at, boot_seconds()))

    @contextmanager
    def frozen(self, member: str) -> Iterator[float]:
        """Stop a member's process during a block; yields when that began."""
        began_at = boot_seconds()
        self.services[member].freeze()
        try:
            yield began_at
        finally:
            self.services[member].thaw()
            self.incidents.append(Incident(member, began_at, boot_seconds()))

    def overlaps(self) -> list[Overlap]:
        """Every period, so far, in which two members served the same bundle."""
        spans = {
            (bundle, member): self._spans(member, bundle)
            for member in self.services
            for bundle in self._wanted[member].split(",")
        }
        return [
            Overlap(bundle, frozenset({member, other}), max(began, other_began), min(ended, other_ended))
            for (bundle, member), (of, other) in combinations(sorted(spans), 2)
            if bundle == of
            for began, ended in spans[bundle, member]
            for other_began, other_ended in spans[of, other]
            if max(began, other_began) < min(ended, other_ended)
        ]

    def servers_of(self, bundle: str) -> list[str]:
        """The members that served a bundle, in order, each change of hands once."""
        spans = [(began, m) for m in self.services for began, _ in self._spans(m, bundle)]
        names = [member for _, member in sorted(spans)]
        return [name for number, name in enumerate(names) if number == 0 or names[number - 1] != name]

    def _spans(self, member: str, bundle: str) -> list[tuple[float, float]]:
        spans: list[tuple[float, float]] = []
        for line in self.lines(member, "serve"):
            if line["bundle"] != bundle:
                continue
            if spans and 0 <= line["at"] - spans[-1][1] <= _GAP_SECONDS:
                spans[-1] = (spans[-1][0], line["at"])
            else:
                spans.append((line["at"], line["at"]))
        return spans

    def lines(self, member: str, event: str) -> list[dict[str, Any]]:
        """All lines of an event, of all processes of a member."""
        services = (*self._predecessors.get(member, ()), self.services[member])
        return [line for service in services for line in service.lines(event)]

    def _path(self, bundle: str) -> str:
        return f"/{self.cluster}/namespace/{bundle}"
