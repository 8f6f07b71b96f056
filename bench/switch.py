"""How fast a whole switch goes through the loop: two real BookKeeper clusters, the query, the executor, three agents.

Prints how long each stage took and how many ledgers a second went through it, from the times of the switch's records,
and what the copier does alone in the same clusters, before and after it: the build is to reach four fifths of that. And
what each process takes of the processor for a ledger, which holds whatever else the machine does.
`python bench/ledger_copy.py` compares the copier with a plain Java program.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

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
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.jvm import find_java
from policies.switching.decisions import SwitchVerdict
from policies.switching.readings import CommandName
from tests.system.processes import command_line, descendants
from tests.system.switching import NEW, OLD, BrokerCluster, Clusters, SwitchLoop

NAME = "bench"
STAGES = ("triggered", "live_dual_read", "build", "promote", "cleanup")
PARTS = {
    b"QuorumPeerMain": "ZooKeeper",
    b"bookkeeper.server.Main": "bookies",
    b"kafka.Kafka": "Kafka",
    b"py4j.GatewayServer": "copier, JVM",
    b"SparkSubmit": "query, JVM",
    b"pyspark/": "query, Python",
    b"deploy.cli\0decide": "query, Python",
    b"deploy.cli\0act": "executor",
}
"""The part that a process belongs to, by its command line; all others are the bench itself and its agents."""


def main() -> None:
    """Run a switch to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=int, default=1000, help="half of schemas, half of cursors")
    parser.add_argument("--concurrency", type=int, default=16, help="policies.switching.copy_concurrency")
    parser.add_argument("--alone", type=int, default=400, help="ledgers that the copier copies alone; 0: none")
    parser.add_argument("--json", action="store_true", help="print the rates as JSON")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        lines = []
        for line in _run(Path(folder), options.ledgers, options.concurrency, options.alone):
            lines.append(line)
            if not options.json:
                print(line, flush=True)
    if options.json:
        print(json.dumps(dict(_rates(lines))))


def _rates(lines: list[str]) -> Iterator[tuple[str, float]]:
    """The stages that have one, by name."""
    for line in lines:
        if line.endswith("ledgers/s") and line.split()[0] in STAGES:
            yield f"switch, {line.split()[0]}, ledgers/s", float(line.split()[-2])


def _run(folder: Path, ledgers: int, concurrency: int, alone: int) -> Iterator[str]:
    cache = default_cache_dir()
    policies = {
        "switching": {
            "rollback_window": "1s",
            "cleanup_after": "1s",
            "copy_concurrency": concurrency,
            "max_deletions": concurrency,
            "target_policy": "shared",  # it also contains the ledgers of the copier alone
        }
    }
    with (
        EmbeddedKafka(folder / "kafka", ensure_jars("kafka", cache), heap_mebibytes=256) as kafka,
        Clusters(folder / "clusters", ensure_jars("bookkeeper", cache)) as clusters,
    ):
        loop = SwitchLoop(kafka.bootstrap_servers, f"b{uuid.uuid4().hex[:8]}", folder)
        brokers = BrokerCluster(clusters, NAME, loop.kafka, loop.prefix)
        brokers.report_seconds = 3.0  # as by default
        brokers.make()
        loop.write({NAME: brokers.settings() | {"switching": {}}}, policies)  # the defaults, not the intervals of tests
        loop.start("decide", "act")
        try:
            with brokers:
                clusters.advance_new(1)
                brokers.fill(schemas=ledgers // 4, cursors=ledgers // 2)  # two versions a schema
                planned = len(brokers.ledgers)
                with _processor("copier alone") as alone_took:
                    rates = [_alone(clusters, brokers, alone, concurrency, folder / "before")] if alone else []
                brokers.start_agents()
                loop.register(brokers)
                loop.begin(NAME)
                with _processor("build and promote") as took:
                    _await(loop, "hold")
                rates += [_alone(clusters, brokers, alone, concurrency, folder / "after")] if alone else []
                yield from _table(loop.records(NAME), planned, rates)
                yield _per_ledger(alone_took, max(1, alone))
                yield _per_ledger(took, planned)
                yield _places_filled([entry.data for entry in loop.decisions(NAME)], concurrency)
                loop.command(NAME, CommandName.CLEANUP, dry_run=False)
                _await(loop, "done")
                yield from list(_table(loop.records(NAME), planned, []))[-1:]
        finally:
            loop.close()


def _alone(clusters: Clusters, brokers: BrokerCluster, count: int, concurrency: int, folder: Path) -> float:
    """Return the ledgers a second of the copier alone: unreferenced ledgers, in a new JVM like the executor's."""
    clusters.advance_new(2)
    ids = [brokers.make_ledger(number) for number in range(count)]
    places = {name: clusters.servers(name) for name in (OLD, NEW)}
    old, new = (_cluster(clusters, name, servers) for name, servers in places.items())
    session = ZooKeeperSession("bench", ZooKeeperConnection(servers=clusters.zookeeper.servers))
    jvm = BookKeeperJvm(find_java(), (*ensure_jars("bookkeeper", default_cache_dir()), *support_jars()), folder)
    with closing(session), closing(jvm):
        journal = CopyJournal(session, f"/copies-{folder.name}", source=old.instance_id, target=new.instance_id)
        with closing(LedgerCopier(jvm, old, new, journal, concurrency=concurrency)) as copier:
            copy_all(copier, ids[:16])  # JVM and clients start
            began = time.perf_counter()
            outcomes = [result.outcome for result in copy_all(copier, ids[16:])]
            seconds = time.perf_counter() - began
    assert set(outcomes) == {CopyOutcome.COPIED}, set(outcomes)
    return len(outcomes) / seconds


def _cluster(clusters: Clusters, name: str, servers: str) -> LedgerCluster:
    with clusters.zookeeper.client(chroot=f"/{name}") as client:
        instance_id = client.get("/ledgers/INSTANCEID")[0].decode()
    return LedgerCluster(instance_id, f"zk+hierarchical://{servers}/ledgers")


@contextmanager
def _processor(what: str) -> Iterator[dict[str, float]]:
    """Return the processor seconds during a block, by part."""
    before, took = _by_part(), {what: 0.0}
    yield took
    took |= {part: seconds - before.get(part, 0.0) for part, seconds in _by_part().items()}


def _by_part() -> dict[str, float]:
    found: dict[str, float] = {}
    for pid in (os.getpid(), *descendants(os.getpid())):
        words = command_line(pid)
        part = next((part for mark, part in PARTS.items() if mark in words), "bench, agents")
        found[part] = found.get(part, 0.0) + own_cpu_seconds(pid)
    return found


def _per_ledger(took: dict[str, float], ledgers: int) -> str:
    (what, _), *parts = took.items()
    each = ", ".join(f"{part} {1000 * seconds / ledgers:.1f}" for part, seconds in sorted(parts))
    return f"{what}, ms of processor a ledger: {each}; together {1000 * sum(took.values()) / ledgers:.1f}"


def _await(loop: SwitchLoop, stage: str) -> None:
    while loop.stage(NAME) != stage:  # hours, for that many ledgers
        time.sleep(1.0)


def _places_filled(decisions: list[dict[str, Any]], concurrency: int) -> str:
    """Return the share of the build in which the executor was fully loaded; in the rest it waited for orders."""
    ordered = [(_decided_at(d), 1) for d in decisions if d["verdict"] == SwitchVerdict.START_COPY]
    built = (d for d in decisions if d["verdict"] == SwitchVerdict.LEDGER and d["ledger"]["stage"] == "built")
    ended = [(_decided_at(d), -1) for d in built]
    under_way, left, filled, since = 0, len(ended), 0.0, min(ordered)[0]
    for at, step in sorted(ordered + ended):
        if under_way >= min(concurrency, left):
            filled += (at - since).total_seconds()
        under_way, left, since = under_way + step, left - (step < 0), at
    return f"{'places filled':16} {filled / (since - min(ordered)[0]).total_seconds():.0%} of the build"


def _decided_at(data: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(data["decided_at"])


def _table(records: list[dict[str, Any]], ledgers: int, alone: list[float]) -> Iterator[str]:
    began: dict[str, datetime] = {}
    for record in records:
        began.setdefault(record["verdict"], datetime.fromisoformat(record["decided_at"]))
    order = sorted(began, key=lambda stage: began[stage])
    yield f"{ledgers} ledgers"
    for stage, after in itertools.pairwise(order):
        if stage in STAGES:
            seconds = (began[after] - began[stage]).total_seconds()
            rate = ledgers / max(seconds, 0.001)
            yield f"{stage:16} {seconds:8.1f} s  {rate:8.1f} ledgers/s"
            if stage == "build" and alone:
                each = ", ".join(f"{one:.1f}" for one in alone)
                yield f"{'copier alone':16} {each} ledgers/s: the build reaches {rate / statistics.mean(alone):.0%}"


if __name__ == "__main__":
    main()
