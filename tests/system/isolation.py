"""One watched BookKeeper cluster, the operator who changes its groups, and `headgate run` with the isolation policy.

Shared by test_loop_isolation.py and test_loop_isolation_pulsar.py.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from policies.isolation.decisions import QUARANTINE_GROUP
from policies.units import to_millis
from tests.system.loop import Entry, Headgate, LoopTopics, await_ready, run_command, write_settings
from tests.system.waiting import eventually

CLUSTER = "c1"
AVAILABLE = "/ledgers/available"

_ZOOKEEPER = {"session_timeout": "4s", "timeout": "2s"}
_BOOKIES = {"poll_interval": "1s", "affinity_interval": "1s"}


class Metadata:
    """One cluster's nodes in ZooKeeper, and who changes them: its operator, and bookies that are sessions of ours.

    Args:
        client: connected; its session owns the bookies that `register` makes.
    """

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def racks(self) -> dict[str, dict[str, Any]]:
        """The groups of bookies in `/bookies`."""
        return dict(json.loads(self.client.get("/bookies")[0] or b"{}"))

    def quarantined(self) -> set[str]:
        return set(self.racks().get(QUARANTINE_GROUP, {}))

    def assign(self, bookie: str, group: str, rack: str = "") -> None:
        """Move a bookie to another group by compare-and-set, as `set-bookie-rack` does."""
        self._change(
            bookie, lambda groups: groups.setdefault(group, {}).update({bookie: {"rack": rack or f"/{group}"}})
        )

    def unassign(self, bookie: str) -> None:
        """Remove a bookie from its group, as `delete-bookie-rack` does."""
        self._change(bookie, lambda _: None)

    def _change(self, bookie: str, then: Callable[[dict[str, dict[str, Any]]], None]) -> None:
        while True:
            content, stat = self.client.get("/bookies")
            groups = json.loads(content or b"{}")
            for members in groups.values():
                members.pop(bookie, None)
            then(groups)
            try:
                self.client.set("/bookies", json.dumps(groups).encode(), version=stat.version)
            except BadVersionError:
                continue
            return

    def ledgers_on(self, bookie: str, namespace: str) -> set[str]:
        """Nodes of the namespace's ledgers, of topics and of cursors, that name a bookie in any ensemble.

        Other namespaces, such as that of the broker's own heartbeat, have no promise.
        """
        needed = (bookie.encode(), f"{namespace}/persistent/".encode())
        return {
            path
            for path, content in self._below("/ledgers")
            if path.rpartition("/")[2][0] == "L" and all(part in content for part in needed)
        }

    def _below(self, path: str) -> Iterator[tuple[str, bytes]]:
        with suppress(NoNodeError):  # deleted while we look
            for child in self.client.get_children(path):
                below = f"{path}/{child}"
                yield below, self.client.get(below)[0]
                yield from self._below(below)

    def isolate(self, namespace: str, primary: str) -> None:
        """Write a namespace and its bookie affinity as Pulsar stores them."""
        self.client.create(f"/admin/policies/{namespace}", b"{}", makepath=True)
        groups = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": ""}
        content = json.dumps({"bookieAffinityGroup": groups}).encode()
        self.client.create(f"/admin/local-policies/{namespace}", content, makepath=True)

    def register(self, bookie: str) -> ZnodeStat:
        """Register a bookie as a real one does; returns its node."""
        self.client.create(f"{AVAILABLE}/{bookie}", ephemeral=True)
        return self.registered(bookie)

    def leave(self, bookie: str) -> None:
        self.client.delete(f"{AVAILABLE}/{bookie}")

    def registration(self, bookie: str) -> ZnodeStat | None:
        """The node of a writable bookie, or None."""
        return self.client.exists(f"{AVAILABLE}/{bookie}")

    def registered(self, bookie: str) -> ZnodeStat:
        """The node of a writable bookie; fails if there is none."""
        stat = self.registration(bookie)
        assert stat is not None, f"{bookie} is not registered"
        return stat


class WatchedLoop(LoopTopics):
    """The topics and metrics of a `headgate run` that watches the cluster `c1` with the settings of a file."""

    def __init__(self, servers: str, prefix: str, port: int, settings: Path) -> None:
        super().__init__(servers, prefix, port, "observed.bookies", "decided.isolation", "decided.alerts", "audit")
        self._settings = settings

    def command(self, *arguments: str) -> str:
        """Run a `headgate` command with the loop's settings; returns its output, and fails on a status other than 0."""
        return run_command(*arguments, "-s", str(self._settings))

    def alerts(self, alert: str | None = None, subject: str | None = None) -> list[Entry]:
        """The records with which alerts begin and end, in order; or those of one alert or subject.

        An alert that fires is repeated, and published again when its sentence changed: how often is a matter of time.
        """
        changes: dict[tuple[str, str], Entry] = {}
        for entry in self.entries("decided.alerts", alert=alert, subject=_subject(subject)):
            changes.setdefault((entry.data["alert_id"], entry.data["status"]), entry)
        return list(changes.values())

    def statuses(self, alert: str, subject: str) -> list[str]:
        """The statuses of one alert, in order."""
        return [entry.data["status"] for entry in self.alerts(alert, subject)]

    def decided(self, kind: str, subject: str | None = None) -> list[Entry]:
        """The decisions of a kind (`placement`, `bookie-quarantine`), or those about one subject."""
        return self.entries("decided.isolation", kind, subject=_subject(subject))

    def readings(self, kind: str) -> list[Entry]:
        """The readings of a kind (`bookies`, `bookie-racks`, `bookie-affinity`)."""
        return self.entries("observed.bookies", kind)

    def carried_out(self, bookie: str) -> list[dict[str, Any]]:
        """The actuator's reports about a bookie in the audit."""
        return [entry.data for entry in self.entries("audit", "bookie-quarantined", bookie=bookie)]

    def await_alert(self, alert: str, subject: str, status: str) -> Entry:
        """Wait until an alert's last record has this status."""
        what = f"{alert} of {subject} is {status}"
        return self.await_last(what, lambda: self.alerts(alert, subject), status=status)

    def await_placement(self, namespace: str, **fields: Any) -> Entry:
        """Wait until the placement in force of a namespace has these fields."""
        what = f"the placement of {namespace} has {fields}"
        return self.await_last(what, lambda: self.decided("placement", namespace), **fields)

    def await_quarantine(self, bookie: str) -> dict[str, Any]:
        """Wait until the actuator reports that it quarantined a bookie; returns the report."""

        def done() -> dict[str, Any] | None:
            return next((said for said in self.carried_out(bookie) if said["outcome"] == "done"), None)

        return eventually(f"{bookie} is in quarantine", done)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one exported series of the cluster; 0 if there is none."""
        return super().metric(name, cluster=CLUSTER, **labels)


def _subject(name: str | None) -> str | None:
    return None if name is None else f"{CLUSTER}/{name}"


@contextmanager
def watched_loop(
    *,
    zookeeper: str,
    loop_kafka: str,
    folder: Path,
    port: int,
    isolation: Mapping[str, Any],
    stream: Mapping[str, Any] | None = None,
) -> Iterator[WatchedLoop]:
    """Run `headgate run` on the cluster `c1`; it must end in order and without a traceback.

    Args:
        zookeeper: of the cluster, as `host:port`.
        loop_kafka: bootstrap servers of the loop's own Kafka.
        folder: for settings, data and log.
        port: of the metrics.
        isolation: `policies.isolation`.
        stream: settings of the query.
    """
    prefix = f"i{uuid.uuid4().hex[:8]}"
    settings = {
        "kafka": {"bootstrap_servers": loop_kafka},
        "topics": {"prefix": prefix},
        "data_dir": str(folder / "data"),
        "http": {"port": port},
        "stream": dict(stream or {}),
        "clusters": {CLUSTER: {"zookeeper": {"servers": zookeeper, **_ZOOKEEPER}, "bookies": _BOOKIES}},
        # So no order is repeated before it is carried out, however slow the machine is.
        "policies": {"isolation": {"validity": "2h", **isolation}},
    }
    file = write_settings(folder / "headgate.yaml", **settings)
    with Headgate(["run", "-s", str(file)], folder / "run.log") as headgate:
        await_ready(headgate, port)
        loop = WatchedLoop(loop_kafka, prefix, port, file)
        try:
            yield loop
        finally:
            loop.close()
        assert headgate.stop() == 0, headgate.output()
        assert "Traceback" not in headgate.output(), headgate.output()


def instant_ms(text: str) -> int:
    """Milliseconds since the epoch of an instant in an event."""
    return to_millis(datetime.fromisoformat(text))
