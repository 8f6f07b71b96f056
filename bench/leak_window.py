"""How long a bookie that joined without rack info is open to data: from its registration to its alert and quarantine.

A real ZooKeeper, a real Kafka and `headgate run` with `quarantine: on, grace: 0s`. Each join is a session making the
node a bookie makes. Registration and quarantine are both by ZooKeeper's clock, the alert is by Kafka's, on one machine.
The last two columns are read off the exported histogram, so they are as coarse as its buckets.

    python bench/leak_window.py --joins 50
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.quantiles import quantile
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from tests.system.isolation import CLUSTER, Metadata, WatchedLoop, instant_ms, watched_loop
from tests.system.zookeeper import ZooKeeper, free_port

HISTOGRAM = "headgate_bookie_leak_window_seconds_bucket"
NAMESPACE = "tenant/isolated"


def main() -> None:
    """Let bookies join, one by one and all at once, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joins", type=int, default=50, help="bookies that join in each of the two ways")
    joins = parser.parse_args().joins
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, _running(Path(folder), 2 * joins) as parts:
        metadata, loop = parts
        join_and_assign(metadata, loop, ["warm-up:3181"])
        print("joins        bookies  alert p50  p99 ms  quarantine p50  p99  max ms  histogram p50  p99 ms")
        for way, bookies in (("one by one", _names("single", joins)), ("all at once", _names("together", joins))):
            before = _buckets(loop)
            if way == "one by one":
                draw = random.Random(1)  # at a random phase of the query's batches
                for bookie in bookies:
                    time.sleep(draw.uniform(0, 0.5))
                    join_and_assign(metadata, loop, [bookie])
            else:
                join_and_assign(metadata, loop, bookies)
            _print_row(way, bookies, loop, {le: count - before.get(le, 0.0) for le, count in _buckets(loop).items()})


def join_and_assign(metadata: Metadata, loop: WatchedLoop, bookies: Sequence[str]) -> None:
    """Register bookies, wait until each is in quarantine, and put them into a real group, as their operator does."""
    for bookie in bookies:
        metadata.register(bookie)
    for bookie in bookies:
        loop.await_quarantine(bookie)
    for bookie in bookies:
        metadata.assign(bookie, "spare")
    for bookie in bookies:
        loop.await_alert("unassigned-bookie", bookie, "resolved")


@contextmanager
def _running(folder: Path, most: int) -> Iterator[tuple[Metadata, WatchedLoop]]:
    cache = default_cache_dir()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", ensure_jars("bookkeeper", cache)))
        kafka = stack.enter_context(EmbeddedKafka(folder / "kafka", ensure_jars("kafka", cache)))
        metadata = Metadata(stack.enter_context(zookeeper.client(timeout=20.0)))
        metadata.client.create("/bookies", b"{}")
        metadata.client.ensure_path("/ledgers/available")
        for bookie in ("bk1:3181", "bk2:3181"):
            metadata.register(bookie)
            metadata.assign(bookie, "g1")
        metadata.isolate(NAMESPACE, "g1")
        loop = watched_loop(
            zookeeper=zookeeper.servers,
            loop_kafka=kafka.bootstrap_servers,
            folder=folder,
            port=free_port(),
            isolation={"quarantine": "on", "grace": "0s", "max_quarantined": most},
        )
        yield metadata, stack.enter_context(loop)


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}:3181" for number in range(count)]


def _buckets(loop: WatchedLoop) -> dict[float, float]:
    """The windows so far by the upper bound of their bucket, cumulative."""
    return {float(labels["le"]): value for labels, value in loop.series(HISTOGRAM) if labels["cluster"] == CLUSTER}


def _print_row(way: str, bookies: Sequence[str], loop: WatchedLoop, buckets: dict[float, float]) -> None:
    alerts, windows = [], []
    for bookie in bookies:
        (said,) = loop.carried_out(bookie)
        windows.append(said["leak_window_seconds"] * 1000)
        registered_ms = instant_ms(said["quarantined_at"]) - windows[-1]
        alerts.append(loop.alerts("unassigned-bookie", bookie)[0].appended_ms - registered_ms)
    print(
        f"{way:<12} {len(bookies):7} {quantile(alerts, 50):10.0f} {quantile(alerts, 99):7.0f} "
        f"{quantile(windows, 50):15.0f} {quantile(windows, 99):4.0f} {max(windows):7.0f} "
        f"{histogram_quantile(buckets, 0.5) * 1000:14.0f} {histogram_quantile(buckets, 0.99) * 1000:7.0f}"
    )


def histogram_quantile(buckets: dict[float, float], share: float) -> float:
    """Compute what Prometheus's function of that name does: values are evenly distributed within a bucket."""
    rank, lower, below = share * max(buckets.values()), 0.0, 0.0
    for upper, cumulative in sorted(buckets.items()):
        if cumulative >= rank:
            return lower + (upper - lower) * (rank - below) / (cumulative - below)
        lower, below = upper, cumulative
    raise ValueError("no window has been counted")


if __name__ == "__main__":
    main()
