"""A `headgate run` with the sessions policy, and members of a cluster as plain ZooKeeper clients."""

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from connectors.zookeeper.server_admin import session_name
from policies.sessions.readings import registration_path
from tests.system.loop import Entry, Headgate, LoopTopics, await_ready, run_command, write_settings
from tests.system.server import close
from tests.system.tcp_proxy import TcpProxy
from tests.system.waiting import DEADLINE_SECONDS, eventually

ZOOKEEPER = {"session_timeout": "4s", "timeout": "2s"}


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

    def command(self, *arguments: str) -> str:
        """Run a `headgate` command with the loop's settings, as `run_command` does."""
        return run_command(*arguments, "-s", str(self._file))

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
        self, cluster: str, member: str, verdict: str, *reasons: str, bundle: str | None = None, since: int = 0
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


class Member:
    """A broker's part in ZooKeeper: a session behind a proxy of its own, its registration and its bundles.

    Args:
        name: of the broker.
        cluster: its chroot.
        servers: of ZooKeeper, without a chroot.
        timeout_seconds: of its session.
    """

    def __init__(self, name: str, cluster: str, servers: str, timeout_seconds: float) -> None:
        self.name = name
        self._content = json.dumps({"brokerId": name}).encode()
        self._proxy = TcpProxy(servers)
        retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
        self._client = KazooClient(
            f"{self._proxy.address}/{cluster}",
            timeout=timeout_seconds,
            connection_retry=KazooRetry(**retry),
            command_retry=KazooRetry(**retry),
        )

    def __enter__(self) -> Self:
        self._proxy.__enter__()
        self._client.start(timeout=DEADLINE_SECONDS)
        self.register()
        return self

    def __exit__(self, *error: object) -> None:
        close(self._client)
        self._proxy.__exit__(None, None, None)

    @property
    def session(self) -> str:
        """The session that it has, once it is connected."""
        return session_name(eventually("it is connected", lambda: self._client.client_id)[0])

    def register(self) -> None:
        """Register in the present session; a registration that an older session left behind is replaced."""
        self._create(registration_path(self.name))

    def own(self, *bundles: str) -> None:
        """Create the node of each bundle; one of this member's older session is replaced, another's is an error."""
        for bundle in bundles:
            self._create(_path(bundle))

    def _create(self, path: str) -> None:
        with suppress(NoNodeError):
            if self._client.retry(self._client.get, path)[0] == self._content:
                self._client.retry(self._client.delete, path)
        self._client.retry(self._client.create, path, self._content, ephemeral=True, makepath=True)

    def release(self, bundle: str) -> None:
        """Delete the node of a bundle."""
        self._client.retry(self._client.delete, _path(bundle))

    def owns(self, bundle: str) -> bool:
        """Whether the node of a bundle belongs to its present session."""
        stat = self._client.retry(self._client.exists, _path(bundle))
        return stat is not None and session_name(stat.ephemeralOwner) == self.session

    def cut(self) -> None:
        """Cut it off ZooKeeper."""
        self._proxy.cut()

    def heal(self) -> None:
        """Let it connect again."""
        self._proxy.heal()


def _path(bundle: str) -> str:
    return f"/namespace/{bundle}"
