"""How fast a whole switch goes through the loop: two real BookKeeper clusters, the query, the executor, three agents.

Prints how long each stage took and how many ledgers a second went through it, from the times of the switch's records.
`python bench/ledger_copy.py` says what the copier alone does.
"""

import argparse
import itertools
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from deploy.embedded import EmbeddedKafka
from deploy.jars import default_cache_dir, ensure_jars
from policies.switching.readings import CommandName
from tests.system.switching import BrokerCluster, Clusters, SwitchLoop

NAME = "bench"
STAGES = ("triggered", "live_dual_read", "build", "promote", "cleanup")


def main() -> None:
    """Run a switch to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=int, default=1000, help="half of schemas, half of cursors")
    parser.add_argument("--concurrency", type=int, default=16, help="policies.switching.copy_concurrency")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        for line in _run(Path(folder), options.ledgers, options.concurrency):
            print(line)


def _run(folder: Path, ledgers: int, concurrency: int) -> Iterator[str]:
    cache = default_cache_dir()
    policies = {
        "switching": {
            "rollback_window": "1s",
            "cleanup_after": "1s",
            "copy_concurrency": concurrency,
            "max_deletions": concurrency,
        }
    }
    with (
        EmbeddedKafka(folder / "kafka", ensure_jars("kafka", cache), heap_mebibytes=256) as kafka,
        Clusters(folder / "clusters", ensure_jars("bookkeeper", cache)) as clusters,
    ):
        loop = SwitchLoop(kafka.bootstrap_servers, f"b{uuid.uuid4().hex[:8]}", folder)
        brokers = BrokerCluster(clusters, NAME, loop.kafka, loop.prefix)
        brokers.make()
        loop.write({NAME: brokers.settings()}, policies)
        loop.start("decide", "act")
        try:
            with brokers:
                clusters.advance_new(1)
                brokers.fill(schemas=ledgers // 4, cursors=ledgers // 2)  # two versions a schema
                brokers.start_agents()
                loop.register(brokers)
                loop.begin(NAME)
                _await(loop, "hold")
                loop.command(NAME, CommandName.CLEANUP, dry_run=False)
                _await(loop, "done")
                yield from _table(loop.records(NAME), len(brokers.ledgers))
        finally:
            loop.close()


def _await(loop: SwitchLoop, stage: str) -> None:
    while loop.stage(NAME) != stage:  # for hours, if there are that many ledgers
        time.sleep(1.0)


def _table(records: list[dict[str, Any]], ledgers: int) -> Iterator[str]:
    began: dict[str, datetime] = {}
    for record in records:
        began.setdefault(record["verdict"], datetime.fromisoformat(record["decided_at"]))
    order = sorted(began, key=lambda stage: began[stage])
    yield f"{ledgers} ledgers"
    for stage, after in itertools.pairwise(order):
        if stage in STAGES:
            seconds = (began[after] - began[stage]).total_seconds()
            yield f"{stage:16} {seconds:8.1f} s  {ledgers / max(seconds, 0.001):8.1f} ledgers/s"


if __name__ == "__main__":
    main()
