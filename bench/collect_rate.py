"""How many brokers one collector process reads a second, for each second of processor time that it takes.

The brokers are simulated: sockets in another process that answer DescribeCluster and DescribeLogDirs with what a
real one says, of four volumes. Everything else is the collectors' own, from the request to the event to be published.

    python -m bench.collect_rate
    python -m bench.collect_rate --clusters 40 --brokers 30 --interval 1s
"""

import argparse
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from bench.simulated import LOOPBACK, simulated_clusters
from bench.turns import Figures, run
from connectors.collection.poll_metrics import PollMetrics
from connectors.kafka.log_dirs import SOURCE, LogDirsCollector, WatchedKafka
from connectors.kafka.publisher import observations_to
from policies.units import format_duration, parse_duration

WARM_UP_SECONDS, MEASURED_SECONDS = 5.0, 15.0


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--clusters", type=int, default=20, help="how many are watched")
    arguments.add_argument("--brokers", type=int, default=30, help="of each")
    arguments.add_argument("--interval", type=parse_duration, default=parse_duration("1s"), help="between two polls")
    run(__doc__ or "", measure, arguments)


def measure(given: argparse.Namespace) -> Figures:
    """Run the collectors of all clusters on threads of this process, as `headgate collect` does."""
    published = [0, 0]  # all readings, and the failed ones

    def publish(_topic: str, _key: str, value: bytes) -> None:
        published[0] += 1
        published[1] += b'"outcome":"ok"' not in value

    with simulated_clusters(given.clusters, given.brokers) as ports, _collecting(ports, given.interval, publish):
        time.sleep(WARM_UP_SECONDS)
        before, cpu_before, began = published[0], _cpu_seconds(), time.monotonic()
        time.sleep(MEASURED_SECONDS)
        requests, cpu = published[0] - before, _cpu_seconds() - cpu_before
        seconds = time.monotonic() - began
    return {
        f"asked for, requests/s (each {format_duration(given.interval)})": given.clusters
        * (given.brokers + 1)
        / given.interval.total_seconds(),
        "answered, requests/s": requests / seconds,
        "of these failed": float(published[1]),
        "cores taken": cpu / seconds,
        "requests/s a core": requests / cpu,
        "resident, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _collecting(ports: list[int], interval: object, publish: object) -> Iterator[None]:
    metrics, stop = PollMetrics(CollectorRegistry()), threading.Event()
    threads = []
    for number, port in enumerate(ports):
        watched = WatchedKafka.model_validate({"bootstrap_servers": f"{LOOPBACK}:{port}", "poll_interval": interval})
        sink = observations_to(publish, "observed", SOURCE)  # type: ignore[arg-type]  # as `measure` gives it
        collector = LogDirsCollector(f"c{number}", watched, sink, metrics)
        threads.append(threading.Thread(target=collector.run, args=(stop,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
