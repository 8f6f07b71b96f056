"""How many brokers one collector process reads a second, for each second of processor time that it takes.

The brokers are simulated: sockets in another process that answer DescribeCluster and DescribeLogDirs with what a
real one says, of four volumes. Everything else is the collectors' own, from the request to the event to be published.

    python -m bench.collect_rate
    python -m bench.collect_rate --clusters 40 --brokers 30 --interval 1s
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeClusterResponse, DescribeLogDirsResponse
from kafka.protocol.metadata import ApiVersionsResponse
from prometheus_client import CollectorRegistry

from bench.turns import Figures, run
from connectors.kafka.log_dirs import SOURCE, LogDirsCollector, WatchedKafka
from connectors.kafka.publisher import observations_to
from connectors.poll_metrics import PollMetrics
from policies.units import format_duration, parse_duration

LOOPBACK = "127.0.0.1"
API_VERSIONS, DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER = 18, 35, 60
VERSIONS = {API_VERSIONS: 4, DESCRIBE_LOG_DIRS: 4, DESCRIBE_CLUSTER: 2}
WARM_UP_SECONDS, MEASURED_SECONDS = 5.0, 15.0


def main() -> None:
    """Measure and print; or, as the child of that, serve."""
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(_serve(clusters=int(sys.argv[2]), brokers=int(sys.argv[3])))
        return
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--clusters", type=int, default=20, help="how many are watched")
    arguments.add_argument("--brokers", type=int, default=30, help="of each")
    arguments.add_argument("--interval", type=parse_duration, default=parse_duration("1s"), help="between two polls")
    run(__doc__ or "", measure, arguments)


def measure(given: argparse.Namespace) -> Figures:
    """Collectors of all clusters on threads of this process, as `headgate collect` has them."""
    published = [0, 0]  # readings, and those of them that failed

    def publish(_topic: str, _key: str, value: bytes) -> None:
        published[0] += 1
        published[1] += b'"outcome":"ok"' not in value

    with _served(given.clusters, given.brokers) as ports, _collecting(ports, given.interval, publish):
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


# --- the simulated brokers


@contextmanager
def _served(clusters: int, brokers: int) -> Iterator[list[int]]:
    """The port of one broker of each cluster."""
    command = [sys.executable, __file__, "--serve", str(clusters), str(brokers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield [int(port) for port in server.stdout.readline().split()]
        finally:
            server.kill()


async def _serve(clusters: int, brokers: int) -> None:
    """A socket for each broker; the first of each cluster is printed."""
    loop, first = asyncio.get_running_loop(), []
    for _ in range(clusters):
        answers: dict[int, bytes] = {}
        servers = [await loop.create_server(partial(_Broker, answers), LOOPBACK, 0) for _ in range(brokers)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        answers.update(_answers(ports))
        first.append(ports[0])
    print(*first, flush=True)
    await asyncio.Event().wait()


def _answers(ports: list[int]) -> Mapping[int, bytes]:
    """By the key of the request: what follows its correlation id, with what stands before it left out."""
    api, member, log_dir = (
        ApiVersionsResponse.ApiVersion,
        DescribeClusterResponse.DescribeClusterBroker,
        DescribeLogDirsResponse.DescribeLogDirsResult,
    )
    keys = [api(api_key=key, min_version=0, max_version=version) for key, version in VERSIONS.items()]
    members = [
        member(broker_id=number, host=LOOPBACK, port=port, rack=None, is_fenced=False)
        for number, port in enumerate(ports)
    ]
    volumes = [
        log_dir(error_code=0, log_dir=f"/data/{n}", topics=[], total_bytes=10**12, usable_bytes=6 * 10**11 + n)
        for n in range(4)
    ]
    responses = {
        API_VERSIONS: ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0),
        DESCRIBE_CLUSTER: DescribeClusterResponse(
            throttle_time_ms=0, error_code=0, error_message=None, endpoint_type=1, cluster_id="simulated",
            controller_id=0, brokers=members,
        ),
        DESCRIBE_LOG_DIRS: DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=volumes),
    }  # fmt: skip
    return {key: _encoded(response, VERSIONS[key]) for key, response in responses.items()}


def _encoded(response: Any, version: int) -> bytes:
    response.API_VERSION = version
    response.with_header(correlation_id=0)
    return bytes(response.encode(header=True))[4:]


class _Broker(asyncio.Protocol):
    """One connection: whatever is asked has one answer."""

    def __init__(self, answers: Mapping[int, bytes]) -> None:
        self._answers = answers
        self._left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._left += data
        while len(self._left) >= 4 and len(self._left) >= (end := 4 + int.from_bytes(self._left[:4], "big")):
            request, self._left = self._left[4:end], self._left[end:]
            answer = request[4:8] + self._answers[int.from_bytes(request[:2], "big")]
            self._transport.write(len(answer).to_bytes(4, "big") + answer)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
