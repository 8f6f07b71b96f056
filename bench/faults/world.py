"""A small real loop: three brokers behind proxies, and each part of Headgate in a process of its own.

A part that ends is started again, as systemd would do it.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from bench.faults.records import Reader
from deploy.embedded.kafka import EmbeddedKafka
from deploy.settings.file import load_settings
from policies.registry import AUDIT, DEAD_LETTERS, POLICIES, decided_topics, observed_topics
from streaming.host import PolicyHost
from tests.golden import read_reference
from tests.system.brokers import kill_broker
from tests.system.disks import small_disk, why_not_mountable
from tests.system.loop import Headgate, http_get, write_settings
from tests.system.processes import command_line, is_running
from tests.system.tcp_proxy import LOOPBACK, TcpProxy
from tests.system.waiting import eventually, watched
from tests.system.zookeeper import free_port

ROOT = Path(__file__).parents[2]
PREFIX = "faults"
FED = ("a", "b", "c")
"""Clusters whose log dirs are invented; of `a` the quotas are set, too."""
OWN = "own"
"""The loop's own Kafka, whose log dirs the collector reads."""
CLIENT = "faults-producer"
PARTS = ("decide", "collect", "export", "act")
BROKERS = (1, 2, 3)

_DISK_MEBIBYTES = 64
_PAUSE_SECONDS = 0.5
_THROTTLE = {
    "soft": {"available_bytes_below": 999_999}, "hard": {"available_bytes_below": 1},
    "min_hold": "0s", "min_change": 0.0, "recovery_margin": 0.0, "validity": "1h", "anticipate": False,
}  # fmt: skip


class ProxiedKafka(EmbeddedKafka):
    """Each broker has a second listener, which it advertises by the address of a proxy."""

    def __init__(self, data_dir: Path, jars: Sequence[Path], behind: dict[int, int], proxies: dict[int, str]) -> None:
        limits = {"min.insync.replicas": 2}
        super().__init__(data_dir, jars, brokers=len(proxies), heap_mebibytes=128, server_properties=limits)
        self._behind = behind
        self._proxies = proxies

    def _properties(self, broker: int) -> dict[str, str | int]:
        properties = super()._properties(broker)
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT"
        return {
            **properties,
            "listeners": f"{properties['listeners']},PROXIED://{LOOPBACK}:{self._behind[broker]}",
            "advertised.listeners": f"{properties['advertised.listeners']},PROXIED://{self._proxies[broker]}",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
        }


class World:
    """The loop under test. A context manager starts all of it, and leaves its logs in `folder`."""

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        self.folder = folder
        self._jars = jars
        self._stack = ExitStack()
        self._over = threading.Event()
        self._lock = threading.RLock()
        self.parts: dict[str, Headgate] = {}
        self._held: set[str] = set()
        self.remedies: list[str] = []
        """Commands that a part named when it gave up, and that were carried out; with "failed", in vain."""
        self.has_small_disk = why_not_mountable() is None

    def __enter__(self) -> Self:
        with self._stack:
            ports = {broker: free_port() for broker in BROKERS}
            self.proxies = {b: self._stack.enter_context(TcpProxy(f"{LOOPBACK}:{port}")) for b, port in ports.items()}
            addresses = {broker: proxy.address for broker, proxy in self.proxies.items()}
            self.kafka = ProxiedKafka(self.folder / "kafka", self._jars, ports, addresses)
            self._stack.enter_context(self.kafka)
            disk = self.folder / "disk"
            if self.has_small_disk:
                self._stack.enter_context(small_disk(disk, mebibytes=_DISK_MEBIBYTES))
            self.checkpoint = disk / "checkpoint"
            self._write_settings(",".join(addresses.values()))
            self.make_topics()
            topics = (*observed_topics(), *decided_topics(), AUDIT, DEAD_LETTERS)
            self.reader = Reader(self.kafka.bootstrap_servers, PREFIX, topics, self.checkpoint)
            self._stack.callback(self.reader.close)
            self._stack.callback(self._end_parts)
            for part in PARTS:
                self._start(part)
            tender = threading.Thread(target=self._tend, name="tender", daemon=True)
            tender.start()
            self._stack.callback(tender.join)
            self._stack.callback(self._over.set)
            pages = [partial(http_get, port, "/-/ready") for port in self._ports.values()]
            eventually("every part is ready", lambda: all((page() or (0, ""))[0] == 200 for page in pages))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def host(self) -> PolicyHost:
        """The policies with the query's settings."""
        return load_settings(self.file("decide")).policy_host()

    def file(self, part: str) -> Path:
        """The settings file of a process."""
        return self.folder / f"{part}.yaml"

    def page(self) -> str:
        """The exporter's metrics; empty while it is away."""
        return (http_get(self._ports["export"], "/metrics") or (0, ""))[1]

    # --- processes

    def kill(self, part: str) -> None:
        """SIGKILL a process and its children; it is started again."""
        with self._lock:
            pids = self.parts[part].children()
            self.parts[part].kill()
            eventually(f"{part} is dead", lambda: not any(map(is_running, pids)))

    @contextmanager
    def held(self, part: str) -> Iterator[None]:
        """Kill a process, and do not start it again within the block."""
        with self._lock:
            self._held.add(part)
            self.kill(part)
        try:
            yield
        finally:
            self._held.discard(part)

    def pids(self, part: str, what: str = "") -> list[int]:
        """Pids of a process, once it has them: its own, those of its `jvm` or of its Python `workers`, or `all`."""
        return eventually(f"{part} {what} runs", lambda: self._pids(part, what) or None)

    def _pids(self, part: str, what: str) -> list[int]:
        process = self.parts[part]
        own = [process.process.pid] if process.process.poll() is None else []
        if what in ("", "all"):
            return own if not what else [*own, *process.children()]
        return [pid for pid in process.children() if (b"pyspark.daemon" in command_line(pid)) == (what == "workers")]

    def reset(self) -> None:
        """Run `headgate checkpoint reset`, with file times so old that the command finds no running query."""
        command = ("checkpoint", "reset", "--yes", "-s", str(self.file("decide")))
        with self.held("decide"):
            for file in self.checkpoint.rglob("*"):
                os.utime(file, (0, 0))
            eventually("the checkpoint is reset", lambda: self._headgate(*command).returncode == 0)

    def _start(self, part: str) -> None:
        self.parts[part] = Headgate([part, "-s", str(self.file(part))], self.folder / f"{part}.log")
        watched.discard(self.parts[part])  # one that gives up is no failure: it is started again

    def _tend(self) -> None:
        """Start ended processes again, after the remedy that their last lines name."""
        while not self._over.wait(_PAUSE_SECONDS):
            for part in PARTS:
                with self._lock:
                    if part in self._held or self.parts[part].process.poll() is None:
                        continue
                    self._remedy(part)
                    self._start(part)

    def _remedy(self, part: str) -> None:
        last = "\n".join(self.parts[part].output().splitlines()[-3:])
        if part == "decide" and "headgate checkpoint reset" in last:
            done = self._headgate("checkpoint", "reset", "--yes", "-s", str(self.file(part)))
            self.remedies.append("reset" if done.returncode == 0 else "reset failed")
            with self.parts[part].log.open("a") as log:
                log.write(done.stdout + done.stderr)

    def _end_parts(self) -> None:
        for part in self.parts.values():
            if part.process.poll() is None:
                part.kill()

    # --- Kafka

    @contextmanager
    def without_brokers(self, *brokers: int) -> Iterator[None]:
        """Kill brokers, and start them again after the block."""
        for broker in brokers:
            kill_broker(self.kafka, broker)
        try:
            yield
        finally:
            for broker in brokers:
                self.kafka.start_broker(broker)

    def make_topics(self) -> None:
        """Run `headgate topics create` until it succeeds."""
        command = ("topics", "create", "-s", str(self.file("decide")))
        eventually("topics are made", lambda: self._headgate(*command).returncode == 0)

    def _headgate(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "deploy.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240)

    # --- settings

    def _write_settings(self, servers: str) -> None:
        self._ports = {part: free_port() for part in PARTS}
        kafka = {"bootstrap_servers": servers}
        quotas = {"entities": [{"client_id": CLIENT, "base": "10MB"}], "max_told_wait": "none"}
        acted = {"kafka": kafka, "quotas": quotas}
        others = {read_reference(policy).cluster for policy in POLICIES}
        clusters: dict[str, dict[str, Any]] = {
            "decide": {**{name: {} for name in (*FED, OWN, *sorted(others))}, "a": acted},
            "collect": {OWN: {"kafka": {**kafka, "poll_interval": "1s"}}},
            "act": {"a": acted},
        }
        clusters["export"] = clusters["decide"]
        for part in PARTS:
            write_settings(
                self.file(part),
                kafka=kafka,
                topics={"prefix": PREFIX, "replication_factor": 3},
                data_dir=str(self.folder / f"data-{part}"),
                http={"port": self._ports[part]},
                clusters=clusters[part],
                policies={"throttle": _THROTTLE},
                stream={
                    "checkpoint_dir": str(self.checkpoint),
                    "stall_timeout": "30s",
                    "restart_limit": 3,
                    "trigger_interval": "1s",  # else a batch for each reading of the stream would take a core
                    "spark": {"spark.sql.streaming.minBatchesToRetain": 200},  # the longest wait reads no plans
                },
            )


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes (SIGSTOP) during a block."""
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to those processes that have not ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
