"""Copying ledgers with Headgate, and with a plain Java program of the same client, as a ratio.

Two real BookKeeper clusters of one bookie each on this machine. Both contenders copy the same shapes of ledgers, 16 at
a time, in a JVM that has copied thousands of them before, in turns; `bare` only copies, `verified` reads the copy back
and compares a digest, as Headgate always does. Headgate also journals each copy in ZooKeeper. The processor
time of a copy, in client and servers, holds on a busy machine, too. Needs a JDK; takes some minutes:

    python bench/ledger_copy.py
    python bench/ledger_copy.py --rounds 1 --share 0.2
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from bench.copying import copy_all
from bench.processes import own_cpu_seconds
from connectors.bookkeeper.copier import LedgerCopier
from connectors.bookkeeper.copy_clusters import LedgerCluster
from connectors.bookkeeper.copy_journal import CopyJournal
from connectors.bookkeeper.copy_outcomes import CopyOutcome
from connectors.bookkeeper.gateway import BookKeeperJvm, support_jars
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.session import ZooKeeperSession
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.jvm import find_java
from tests.system import bookkeeper
from tests.system.bookkeeper import Bookie, init_cluster
from tests.system.zookeeper import ZooKeeper

MEGABYTE = 1_000_000
PROGRAM = Path(__file__).parent / "PlainLedgerCopy.java"


@dataclass(frozen=True)
class Shape:
    """Ledgers of one shape."""

    name: str
    ledgers: int
    entries: int
    entry_bytes: int

    @property
    def total_bytes(self) -> int:
        """The total of all entries."""
        return self.ledgers * self.entries * self.entry_bytes


SHAPES = (
    Shape("schemas: 1 entry of 200 B", 600, 1, 200),
    Shape("cursors: 20 entries of 500 B", 1000, 20, 500),
    Shape("large: 400 entries of 16 KB", 8, 400, 16_000),
)
ROOMY = {
    "maxPendingReadRequestsPerThread": 10_000,
    "pageLimit": 2_048,
    # A bookie without free file descriptors answers every read with an error. These are the numbers of index files that
    # it keeps open for writing and for reading.
    "openFileLimit": min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 8),
}
"""Closer to bookies' defaults; the bookies of tests have minimal buffers."""
CONTENDERS = ("headgate", "verified", "bare")
WARM_UP_ROUNDS = 3
"""Ledgers of each shape to copy before the measurement: until then, both JVMs spend a third of their time on
compilation."""
ATTEMPTS = 3
"""Attempts for a round, because servers on a busy machine sometimes fail."""
CLIENT = "client"


class RoundFailedError(Exception):
    """A ledger of a round could not be made or copied; the message has the reason. The round is not counted."""


class Plain:
    """The running Java program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def run(self, command: str, *numbers: int) -> float:
        """Run a command; return the seconds it took.

        Raises:
            RoundFailedError: a ledger failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join((command, *map(str, numbers))) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        try:
            return float(answer)
        except ValueError:
            raise RoundFailedError(answer or "the plain program has ended") from None


@contextmanager
def plain(folder: Path, jars: tuple[Path, ...], source: str, target: str) -> Iterator[Plain]:
    """Start it; it ends with its standard input."""
    (folder / "quiet.properties").write_text("rootLogger.level = off\n")
    flags = ("-Xmx256m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={folder / 'quiet.properties'}")
    command = [str(find_java()), *flags, "-cp", ":".join(map(str, jars)), str(PROGRAM), source, target]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Plain(process)


@dataclass
class Took:
    """The measurements of one shape."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    """Over all rounds, by process."""


class Bench:
    """Both contenders on two clusters.

    Args:
        copier: Headgate's.
        java: the plain program, warm or not.
        filler: makes the ledgers, in a JVM of its own, so that no contender's JVM is warmed up by writing.
        parts: the processes that share a copy: `client`, the JVM of either contender, and others.
    """

    def __init__(
        self, copier: LedgerCopier, java: Plain, filler: Plain, parts: Mapping[str, Callable[[], int | None]]
    ) -> None:
        self._copier = copier
        self._java = java
        self._filler = filler
        self._parts = parts
        self._next_id = 1

    def measure(self, contender: str, shape: Shape, took: Took) -> None:
        """Fill the source with new ledgers of a shape, and copy them; repeat a failed round.

        Raises:
            RoundFailedError: it failed each time.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._measure(contender, shape, took)
            except RoundFailedError as error:
                print(f"a round of {contender} failed: {error}", file=sys.stderr)
                if attempt == ATTEMPTS:
                    raise
            else:
                return

    def _measure(self, contender: str, shape: Shape, took: Took) -> None:
        first, self._next_id = self._next_id, self._next_id + shape.ledgers
        self._filler.run("fill", first, shape.ledgers, shape.entries, shape.entry_bytes)
        before = self._cpu_seconds(contender)
        seconds = self._seconds(contender, range(first, first + shape.ledgers))
        after = self._cpu_seconds(contender)
        took.seconds.append(seconds)
        for part, cpu_seconds in after.items():
            took.cpu_seconds[part] = took.cpu_seconds.get(part, 0.0) + cpu_seconds - before.get(part, 0.0)

    def _seconds(self, contender: str, ledgers: range) -> float:
        if contender != "headgate":
            return self._java.run(contender, ledgers.start, len(ledgers))
        started = time.perf_counter()
        failed = [each for each in copy_all(self._copier, ledgers) if each.outcome is not CopyOutcome.COPIED]
        seconds = time.perf_counter() - started
        if failed:
            raise RoundFailedError(f"{len(failed)} ledgers, such as {failed[0]}")
        return seconds

    def _cpu_seconds(self, contender: str) -> dict[str, float]:
        pids = {part: pid() for part, pid in self._parts.items()}
        if contender != "headgate":
            pids[CLIENT] = self._java.pid
        return {part: own_cpu_seconds(pid) for part, pid in pids.items() if pid is not None}


@contextmanager
def bench() -> Iterator[Bench]:
    """Start two clusters and both contenders."""
    jars = ensure_jars("bookkeeper", default_cache_dir())
    bookkeeper.HEAP_MEBIBYTES = 256  # the bookies of tests cannot accept as many requests as the plain program sends
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", jars))
        clusters, bookies = [], []
        for side in ("source", "target"):
            servers = f"{zookeeper.servers}/{side}"
            init_cluster(folder / f"init-{side}", jars, servers)
            bookies.append(stack.enter_context(Bookie(folder / side, jars, servers, properties=ROOMY)))
            clusters.append(LedgerCluster(side, f"zk+hierarchical://{servers}/ledgers"))
        source, target = clusters
        session = ZooKeeperSession("bench", ZooKeeperConnection(servers=zookeeper.servers))
        stack.callback(session.close)
        jvm = BookKeeperJvm(find_java(), (*jars, *support_jars()), folder / "jvm")
        stack.callback(jvm.close)
        journal = CopyJournal(session, "/copies", source=source.instance_id, target=target.instance_id)
        copier = LedgerCopier(jvm, source, target, journal)
        stack.callback(copier.close)
        uris = (source.metadata_service_uri, target.metadata_service_uri)
        java, filler = (stack.enter_context(plain(folder, jars, *uris)) for _ in range(2))
        reads, writes = bookies
        yield Bench(
            copier,
            java,
            filler,
            {
                CLIENT: lambda: jvm.pid,
                "Python": os.getpid,
                "ZooKeeper": lambda: zookeeper.pid,
                "source's bookie": lambda: reads.pid,
                "target's bookie": lambda: writes.pid,
            },
        )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each shape and contender (default: %(default)s)")
    parser.add_argument("--share", type=float, default=1.0, help="of the ledgers (default: all)")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    print(
        "| ledgers | contender | ledgers/s | MB/s | Headgate's rate to it | ms of CPU a ledger |\n"
        "|---|---|---|---|---|---|"
    )
    with bench() as measured:
        for shape in SHAPES:
            ledgers = max(1, round(shape.ledgers * options.share))
            report(measured, Shape(shape.name, ledgers, shape.entries, shape.entry_bytes), options.rounds)


def report(measured: Bench, shape: Shape, rounds: int) -> None:
    """Measure one shape and print its rows."""
    for contender in ("headgate", "verified") * WARM_UP_ROUNDS:
        measured.measure(contender, shape, Took())
    took = {contender: Took() for contender in CONTENDERS}
    for number in range(rounds):
        # In turns, each contender first once, so that both meet the same load of the machine.
        for offset in range(len(CONTENDERS)):
            contender = CONTENDERS[(number + offset) % len(CONTENDERS)]
            measured.measure(contender, shape, took[contender])
    medians = {contender: statistics.median(found.seconds) for contender, found in took.items()}
    for contender, found in took.items():
        seconds = medians[contender]
        ratio = "" if contender == "headgate" else f"{seconds / medians['headgate']:.2f}"
        rates = f"{shape.ledgers / seconds:.0f} | {shape.total_bytes / seconds / MEGABYTE:.2f}"
        copied = shape.ledgers * rounds
        parts = ", ".join(f"{part} {1e3 * cpu / copied:.2f}" for part, cpu in found.cpu_seconds.items())
        total = 1e3 * sum(found.cpu_seconds.values()) / copied
        print(f"| {shape.name} | {contender} | {rates} | {ratio} | {total:.2f}: {parts} |", flush=True)


if __name__ == "__main__":
    main()
