"""A real Kafka cluster on loopback, in child processes: for `headgate up`, the demo and the tests."""

import json
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from logging import NullHandler, getLogger
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.java.jvm import JvmCommand, JvmProcess, end_orphan, tail
from deploy.locks import exclusive_lock
from policies.units import UserError

CONTROLLER_ID = 1

_LOGGING = Path(__file__).with_name("log4j2-broker.properties")
_SETTINGS = Path(__file__).with_name("server.properties")
"""What all brokers share; in a properties file, the last value of a name counts."""

LOOPBACK = "127.0.0.1"

# Below the range of local ports for outgoing connections. Otherwise a connection could take the port of a broker that
# is down for a moment.
_FIRST_FREE_PORT = 20_000
_FREE_PORTS = 10_000

# A small broker that starts fast: no parallel collector, no second compiler, and no shared-memory file in /tmp, which a
# killed JVM would leave behind. Without memory it ends with an error, instead of hanging.
_JVM_FLAGS: tuple[str, ...] = (
    "-Xms64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
)

_START_SECONDS = 120.0
"""Five seconds are enough on an idle machine. A broker that ends is noticed at once, so waiting longer for a slow one
costs nothing."""
_POLL_SECONDS = 0.05
_WATCH_SECONDS = 1.0
_PROBE_SECONDS = 0.5
_PROBE_CLIENT: Mapping[str, str | int] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
"""Without `broker.address.family`: with one family alone, a machine without any network cannot resolve loopback."""
# A broker that is starting refuses connections; do not log that.
_UNHEARD = getLogger(f"{__name__}.probe")
_UNHEARD.addHandler(NullHandler())
_UNHEARD.propagate = False


class EmbeddedKafka:
    """A KRaft cluster of 1..N brokers on loopback; broker 1 is also the controller.

    All data is in `data_dir` and survives restarts; only one live instance may use the folder. Use it as a context
    manager, or call `start` and `stop`. The next start on the same folder ends brokers whose process was killed.

    - `jars`: the class path, `ensure_jars("kafka", …)`; more jars may be added, for example for a plugin.
    - `ports`: the brokers' ports in order; for 0 or a missing one, a free port is chosen and stored in `data_dir`.
    - `server_properties`: override Headgate's properties, for all brokers.
    - `log_dirs`: by broker id, the folders of its partitions (default: in `data_dir`).
    - `heap_mebibytes`: the limit of a broker's Java heap; its resident size is about 120 MiB more.
    """

    def __init__(
        self,
        data_dir: Path,
        jars: Sequence[Path],
        *,
        brokers: int = 1,
        ports: Sequence[int] = (),
        server_properties: Mapping[str, str | int] | None = None,
        log_dirs: Mapping[int, Sequence[Path]] | None = None,
        heap_mebibytes: int = 320,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.broker_ids = tuple(range(1, brokers + 1))
        self._jars = tuple(jars)
        self._wanted_ports = {broker: port for broker, port in zip(self.broker_ids, ports, strict=False) if port}
        self._server_properties = dict(server_properties or {})
        self._log_dirs = dict(log_dirs or {})
        self._jvm_flags = (*_JVM_FLAGS, f"-Xmx{heap_mebibytes}m")
        self._cluster_id = ""
        self._controller_port = 0
        self._broker_ports: dict[int, int] = {}
        self._processes: dict[int, JvmProcess] = {}
        self._lock: ExitStack | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers, comma separated; available after the start."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._broker_ports.values())

    @property
    def pids(self) -> dict[int, int]:
        """Return {broker id: process id} of the running brokers."""
        return {broker: process.pid for broker, process in self._processes.items() if process.is_alive}

    def log_file(self, broker: int) -> Path:
        """Return a broker's log file; the log before its last start is `broker.log.previous` in the same folder."""
        return self._run_dir(broker) / "broker.log"

    def reserve(self) -> None:
        """Take the lock on the data folder, as `start` does; `stop` releases it. Raise UserError if it is in use."""
        if self._lock is None:
            what, lock = f"the data folder {self.data_dir} is in use by", ExitStack()
            lock.enter_context(exclusive_lock(self.data_dir / "lock", what, "choose another folder"))
            self._lock = lock

    def start(self, *, timeout_seconds: float = _START_SECONDS) -> None:
        """Start all brokers and return when they serve as one cluster.

        Raises UserError if another instance uses the data folder, a wanted port is taken, a broker ends (with the
        reason from its log), or the cluster is not ready in time. Then no broker is left running.
        """
        deadline = time.monotonic() + timeout_seconds
        self.reserve()
        try:
            # A killed instance may have left more brokers running than this one has.
            for run_dir in self.data_dir.glob("broker-*/run"):
                end_orphan(run_dir)
            self._settle_identity()
            for broker in self.broker_ids:
                self._write_files(broker)
            for broker in self.broker_ids:
                self._processes[broker] = self._launch(broker)
            self._await_ready(deadline)
        except BaseException:
            self._kill_all()
            self._release_lock()
            raise

    def start_broker(self, broker: int) -> None:
        """Start one broker that has ended, and return when it has rejoined the cluster."""
        self._processes[broker] = self._launch(broker)
        self._await_ready(time.monotonic() + _START_SECONDS)

    def stop(self, *, grace_seconds: float = 15.0) -> None:
        """Stop all brokers in order, and kill those that have not ended after the grace. Does nothing if none runs."""
        try:
            # A broker needs the controller to leave in order, so the controller goes last.
            self._terminate(self.broker_ids[1:], grace_seconds)
            self._terminate((CONTROLLER_ID,), grace_seconds)
        finally:
            self._kill_all()
            self._release_lock()

    def watch(self, stop: threading.Event, tell: Callable[[str], None]) -> None:
        """Tell the reason of each broker that ends by itself, until `stop` is set; raise that of the controller.

        Without the controller the others elect no leaders, so the cluster is dead.
        """
        running = set(self.pids)
        while not stop.wait(_WATCH_SECONDS):
            for broker in sorted(running):
                try:
                    self._check_alive((broker,))
                except UserError as ended:
                    running.discard(broker)
                    if broker == CONTROLLER_ID:
                        raise
                    tell(str(ended))

    # --- the data folder

    def _broker_dir(self, broker: int) -> Path:
        return self.data_dir / f"broker-{broker}"

    def _run_dir(self, broker: int) -> Path:
        return self._broker_dir(broker) / "run"

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _settle_identity(self) -> None:
        """Choose the cluster's id, and its ports: those of its last start, as long as they are free; store them."""
        file, saved = self.data_dir / "cluster.json", {}
        with suppress(FileNotFoundError):
            saved = json.loads(file.read_text())
        for port in self._wanted_ports.values():
            if not _is_free(port):
                raise UserError(
                    f"port {port} of {LOOPBACK} is in use: stop the process that uses it, or choose another port."
                )
        taken, known = set(self._wanted_ports.values()), saved.get("broker_ports", {})
        # Kafka's form of an id: 16 bytes as 22 characters of URL-safe base64.
        self._cluster_id = saved.get("cluster_id") or secrets.token_urlsafe(16)
        self._controller_port = _choose_port(saved.get("controller_port", 0), taken)
        self._broker_ports = {
            broker: self._wanted_ports.get(broker) or _choose_port(known.get(str(broker), 0), taken)
            for broker in self.broker_ids
        }
        ports = {"controller_port": self._controller_port, "broker_ports": self._broker_ports}
        beside = file.with_name(f"{file.name}.new")  # an interruption leaves the old or the new file
        beside.write_text(json.dumps({"cluster_id": self._cluster_id, **ports}, indent=1) + "\n")
        beside.replace(file)

    def _write_files(self, broker: int) -> None:
        """Write the settings of a broker, and the mark of this cluster on its folders that have none yet."""
        properties = self._properties(broker)
        write_properties(self._broker_dir(broker) / "server.properties", properties, _SETTINGS.read_text())
        for folder in map(Path, (str(properties["metadata.log.dir"]), *str(properties["log.dirs"]).split(","))):
            if not (folder / "meta.properties").exists():
                mark: dict[str, str | int] = {"version": 1, "cluster.id": self._cluster_id, "node.id": broker}
                write_properties(folder / "meta.properties", mark)

    def _properties(self, broker: int) -> dict[str, str | int]:
        plaintext = f"PLAINTEXT://{LOOPBACK}:{self._broker_ports[broker]}"
        controller = f"{LOOPBACK}:{self._controller_port}"
        is_controller = broker == CONTROLLER_ID
        log_dirs = self._log_dirs.get(broker, (self._broker_dir(broker) / "logs",))
        return {
            "default.replication.factor": min(len(self.broker_ids), 3),
            "node.id": broker,
            "process.roles": "broker,controller" if is_controller else "broker",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
            "listeners": f"{plaintext},CONTROLLER://{controller}" if is_controller else plaintext,
            "advertised.listeners": f"{plaintext},CONTROLLER://{controller}" if is_controller else plaintext,
            "log.dirs": ",".join(str(path.absolute()) for path in log_dirs),
            # Separate from the partitions, so that a full log dir does not stop the controller.
            "metadata.log.dir": str(self._broker_dir(broker) / "metadata"),
            **self._server_properties,
        }

    # --- processes

    def _launch(self, broker: int) -> JvmProcess:
        log = self.log_file(broker)
        with suppress(FileNotFoundError):
            log.replace(log.with_name("broker.log.previous"))
        logging = (f"-Dlog4j2.configurationFile={_LOGGING}", f"-Dheadgate.log.file={log}")
        settings = (str(self._broker_dir(broker) / "server.properties"),)
        return JvmProcess(
            JvmCommand("kafka.Kafka", self._jars, logging + self._jvm_flags, settings), self._run_dir(broker)
        )

    def _await_ready(self, deadline: float) -> None:
        """Wait until each running broker answers and lists all others."""
        wanted = set(self.pids)
        for broker in sorted(wanted):
            while not _serves_with(self._broker_ports[broker], wanted):
                self._check_alive(wanted)
                if time.monotonic() > deadline:
                    raise UserError(
                        f"Kafka in {self.data_dir} is not ready in time; the last line of its log: "
                        f"{self._log_tail(broker)}"
                    )
                time.sleep(_POLL_SECONDS)
        self._check_alive(wanted)

    def _check_alive(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            process = self._processes[broker]
            if not process.is_alive:
                code = process.exit_code or 0
                if code < 0:  # its last log line is about something else
                    name = signal.Signals(-code).name
                    raise UserError(f"Kafka broker {broker} was ended by {name} (log: {self.log_file(broker)})")
                raise UserError(f"Kafka broker {broker} ended (exit code {code}): {self._log_tail(broker)}")

    def _log_tail(self, broker: int) -> str:
        log = self.log_file(broker)
        lines = [*self._processes[broker].console_tail(), *tail(log, 200)]
        return f"{_reason(lines)} (log: {log})"

    def _terminate(self, brokers: Iterable[int], grace_seconds: float) -> None:
        """End brokers in parallel."""
        processes = [self._processes[broker] for broker in brokers if broker in self._processes]
        for process in processes:
            process.request_end()
        deadline = time.monotonic() + grace_seconds
        for process in processes:
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.kill()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
        self._processes.clear()


def _serves_with(port: int, brokers: set[int]) -> bool:
    """Return whether the broker at a port answers and lists all these brokers.

    Each call uses a new client, because a client that knows several brokers may ask another one.
    """
    client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", **_PROBE_CLIENT}, logger=_UNHEARD)
    try:
        return brokers <= set(client.list_topics(timeout=_PROBE_SECONDS).brokers)
    except KafkaException:
        return False


def _reason(lines: Sequence[str]) -> str:
    """Return the line of a log that explains best why a process ended: the innermost cause, else the last error."""
    for sign in ("Caused by: ", "Exception: ", " ERROR ", " FATAL ", "rror"):
        telling = [line for line in lines if sign in line and not line.startswith("\tat ")]
        if telling:
            return telling[-1].strip().removeprefix("Caused by: ")
    return lines[-1].strip() if lines else "it said nothing"


def _choose_port(preferred: int, taken: set[int]) -> int:
    """Return the preferred port if it is free, else another free one; mark it as taken."""
    start = secrets.randbelow(_FREE_PORTS)
    others = (_FIRST_FREE_PORT + (start + step) % _FREE_PORTS for step in range(_FREE_PORTS))
    for port in (preferred, *others):
        if port and port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise UserError(f"no port of {LOOPBACK} from {_FIRST_FREE_PORT} to {_FIRST_FREE_PORT + _FREE_PORTS - 1} is free.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Same option as Java, so that connections of a broker that has just ended do not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def write_properties(file: Path, properties: Mapping[str, str | int | Path], before: str = "") -> Path:
    """Write a Java properties file that begins with the text `before`; return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Java reads properties as Latin-1, and escapes in them as in JSON: a path may have backslashes and any letters.
    lines = [f"{name}={json.dumps(str(value))[1:-1]}\n" for name, value in properties.items()]
    file.write_text(before + "".join(lines), encoding="ascii")
    return file
