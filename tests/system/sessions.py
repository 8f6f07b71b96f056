"""`headgate run` with the sessions policy, what it says, and fleets of agents that follow it.

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
from tests.system.loop import Entry, Headgate, Topic, await_ready, http_get, series, write_settings
from tests.system.owners import BundleService
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import eventually

ZOOKEEPER = {"session_timeout": "4s", "timeout": "2s"}
_GAP_SECONDS = 0.5
"""Serving that is noted twice within this went on in between."""


class SessionsLoop:
    """What a running `headgate run` says: its topics, all of them from the beginning, and its metrics.

    Args:
        servers: of the loop's own Kafka.
        prefix: of the topics.
        port: where it serves its metrics.
        file: its settings.
        data: its folder.
    """

    def __init__(self, servers: str, prefix: str, port: int, file: Path, data: Path) -> None:
        self.servers, self.prefix, self._port = servers, prefix, port
        self._file, self._data, self._starts = file, data, 0
        self._headgate = self._started()
        names = ("observed.sessions", "decided.sessions", "decided.alerts")
        self._topics = {name: Topic(servers, f"{prefix}.{name}") for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._headgate.__exit__(*error)
        for topic in self._topics.values():
            topic.__exit__()

    def stop(self) -> None:
        """It must end well and without a traceback."""
        assert self._headgate.stop() == 0, self._headgate.output()
        assert "Traceback" not in self._headgate.output(), self._headgate.output()

    @contextmanager
    def dead(self, *, lose_checkpoint: bool = False) -> Iterator[None]:
        """All of it is killed at once, and started again at the end of a block."""
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
        """A position in what has been decided: what is decided from now on comes after it."""
        entries = self._topics["decided.sessions"].entries()
        return entries[-1].offset + 1 if entries else 0

    def decided(self, cluster: str, member: str, bundle: str | None = None, since: int = 0) -> list[Entry]:
        """The decisions about a member, or about a bundle it owned."""
        subject = "/".join(part for part in (cluster, member, bundle) if part)
        found = self._topics["decided.sessions"].entries()
        return [entry for entry in found if entry.offset >= since and entry.data["subject"] == subject]

    def verdicts(self, cluster: str, member: str, bundle: str | None = None, since: int = 0) -> list[tuple[str, str]]:
        """Verdict and reason of each of them."""
        found = self.decided(cluster, member, bundle, since)
        return [(entry.data["verdict"], entry.data["reason"]) for entry in found]

    def verdicts_of_cluster(self, cluster: str, since: int = 0) -> list[tuple[str, str, str]]:
        """Member, verdict and reason of every decision about any member, but for those about bundles."""
        return [
            (entry.data["member"], entry.data["verdict"], entry.data["reason"])
            for entry in self._topics["decided.sessions"].entries()
            if entry.offset >= since
            and entry.data["cluster"] == cluster
            and entry.event["type"] == "headgate.session-decision.v1"
        ]

    def await_decision(
        self,
        cluster: str,
        member: str,
        verdict: str,
        *reasons: str,
        bundle: str | None = None,
        since: int = 0,
    ) -> Entry:
        """Wait until this has been decided, for one of these reasons if any are given; gives the first such record."""

        def first() -> Entry | None:
            for entry in self.decided(cluster, member, bundle, since):
                if entry.data["verdict"] == verdict and (not reasons or entry.data["reason"] in reasons):
                    return entry
            return None

        what = f"{verdict} {'|'.join(reasons)} for {cluster}/{member}{'/' + bundle if bundle else ''}"
        return eventually(what, first)

    def alerts(self, cluster: str, alert: str, subject: str | None = None) -> list[Entry]:
        """Everything that was said of one alert of a cluster, about a subject if one is given."""
        return [
            entry
            for entry in self._topics["decided.alerts"].entries()
            if (entry.data["alert"], entry.data["cluster"]) == (alert, cluster)
            and subject in (None, entry.data["subject"])
        ]

    def await_alert(self, cluster: str, alert: str, subject: str, status: str) -> Entry:
        """Wait until the last that was said of an alert is this; gives its record."""

        def last() -> Entry | None:
            entries = self.alerts(cluster, alert, subject)
            return entries[-1] if entries and entries[-1].data["status"] == status else None

        return eventually(f"{alert} of {subject} is {status}", last)

    def readings(self, kind: str, cluster: str) -> list[Entry]:
        """The readings of a kind (`zk-session`, `ownerships`, `member-health`, `recovery`) of a cluster."""
        return [
            entry
            for entry in self._topics["observed.sessions"].entries()
            if entry.event["type"] == f"headgate.{kind}.v1" and entry.data["cluster"] == cluster
        ]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one exported series; 0 when there is none."""
        answer = http_get(self._port, "/metrics")
        assert answer is not None, "nobody serves /metrics"
        return next((value for given, value in series(answer[1], name) if given == labels), 0.0)


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
    """`headgate run` on some clusters. It must end well and without a traceback.

    Args:
        loop_kafka: bootstrap servers of the loop's own Kafka.
        folder: for its settings, data and log.
        port: where it is to serve its metrics.
        clusters: by name.
        sessions: `policies.sessions`.
        stream: of the query, where it is not as by default.
    """
    prefix, data = f"s{uuid.uuid4().hex[:8]}", folder / "data"
    settings = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": prefix},
        "data_dir": str(data),
        "http": {"port": port},
        "stream": dict(stream or {}),
        "clusters": dict(clusters),
        "policies": {"sessions": dict(sessions)},
    }
    file = write_settings(folder / "headgate.yaml", **settings)
    with SessionsLoop(loop_kafka, prefix, port, file, data) as loop:
        yield loop
        loop.stop()


@dataclass(frozen=True)
class Incident:
    """A while in which a member had no contact with ZooKeeper, by the machine's boot clock in seconds."""

    member: str
    began_at: float
    ended_at: float


@dataclass(frozen=True)
class Overlap:
    """A while in which two members served one bundle, by the same clock."""

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
        loop: whom they follow.
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
        """Start an agent; without bundles one that has run before, which then wants what it wanted."""
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
        """Wait until a member serves a bundle after a moment; gives when it first did."""

        def first() -> float | None:
            lines = self.services[member].lines("serve")
            return next((line["at"] for line in lines if line["at"] > after and line["bundle"] == bundle), None)

        return eventually(f"{member} serves {bundle}", first)

    def await_owner(self, bundle: str) -> str:
        """Wait until a bundle has an owner; gives the member its node names."""

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
        """The session that a member's registration belongs to; None while there is none."""
        stat = self._client.exists(f"/{self.cluster}{registration_path(member)}")
        return None if stat is None else session_name(stat.ephemeralOwner)

    @contextmanager
    def cut(self, *members: str) -> Iterator[float]:
        """Members are cut off ZooKeeper for the while of a block; gives when that began."""
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
        """A member's process is stopped for the while of a block; gives when that began."""
        began_at = boot_seconds()
        self.services[member].freeze()
        try:
            yield began_at
        finally:
            self.services[member].thaw()
            self.incidents.append(Incident(member, began_at, boot_seconds()))

    def overlaps(self) -> list[Overlap]:
        """Every while, so far, in which two members served the same bundle."""
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
        """Who served a bundle, in order, each change of hands once."""
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
        """What all processes of a member have reported of an event."""
        services = (*self._predecessors.get(member, ()), self.services[member])
        return [line for service in services for line in service.lines(event)]

    def _path(self, bundle: str) -> str:
        return f"/{self.cluster}/namespace/{bundle}"
