"""Simulated Kafka clusters: sockets that answer DescribeCluster and DescribeLogDirs as a real broker does.

They run in a process of their own. On request, broker 0 of each cluster fills up and is cleaned again and again, so
that there is something to decide.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeClusterResponse, DescribeLogDirsResponse
from kafka.protocol.metadata import ApiVersionsResponse

LOOPBACK = "127.0.0.1"
API_VERSIONS, DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER = 18, 35, 60
VERSIONS = {API_VERSIONS: 4, DESCRIBE_LOG_DIRS: 4, DESCRIBE_CLUSTER: 2}
VOLUMES, VOLUME_BYTES, AT_REST = 4, 10**12, 0.6
FILL_SECONDS, FULLEST = 600.0, 0.05
"""The range of free space: below it, the disk is cleaned and the fill begins again."""


@contextmanager
def simulated_clusters(clusters: int, brokers: int, *, filling: bool = False) -> Iterator[list[int]]:
    """Return the port of one broker of each cluster."""
    command = [sys.executable, "-m", "bench.simulated", str(clusters), str(brokers), *(["filling"] if filling else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield [int(port) for port in server.stdout.readline().split()]
        finally:
            server.kill()


async def serve(clusters: int, brokers: int, *, filling: bool) -> None:
    """Open a socket for each broker; print the first one of each cluster."""
    loop, first, fillers = asyncio.get_running_loop(), [], []
    for number in range(clusters):
        rest: dict[int, bytes] = {}
        fills: dict[int, bytes] = {}
        servers = [
            await loop.create_server(partial(_Broker, fills if filling and broker == 0 else rest), LOOPBACK, 0)
            for broker in range(brokers)
        ]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        for answers in (rest, fills):
            answers.update(_answers(ports))
        first.append(ports[0])
        fillers.append(_fill(fills, number / clusters))
    print(*first, flush=True)
    await asyncio.gather(*fillers if filling else (asyncio.Event().wait(),))


async def _fill(answers: dict[int, bytes], phase: float) -> None:
    """Lower the free space each second."""
    while True:
        passed = (asyncio.get_running_loop().time() / FILL_SECONDS + phase) % 1
        answers[DESCRIBE_LOG_DIRS] = _log_dirs(AT_REST - (AT_REST - FULLEST) * passed)
        await asyncio.sleep(1)


def _answers(ports: list[int]) -> Mapping[int, bytes]:
    """Return the answer for a request's key, without its correlation id and the length before it."""
    api, member = ApiVersionsResponse.ApiVersion, DescribeClusterResponse.DescribeClusterBroker
    keys = [api(api_key=key, min_version=0, max_version=version) for key, version in VERSIONS.items()]
    members = [
        member(broker_id=number, host=LOOPBACK, port=port, rack=None, is_fenced=False)
        for number, port in enumerate(ports)
    ]
    cluster = DescribeClusterResponse(
        throttle_time_ms=0, error_code=0, error_message=None, endpoint_type=1, cluster_id="simulated",
        controller_id=0, brokers=members,
    )  # fmt: skip
    versions = ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0)
    return {
        API_VERSIONS: _encoded(versions, API_VERSIONS),
        DESCRIBE_CLUSTER: _encoded(cluster, DESCRIBE_CLUSTER),
        DESCRIBE_LOG_DIRS: _log_dirs(AT_REST),
    }


def _log_dirs(free: float) -> bytes:
    volumes = [
        DescribeLogDirsResponse.DescribeLogDirsResult(
            error_code=0,
            log_dir=f"/data/{number}",
            topics=[],
            total_bytes=VOLUME_BYTES,
            usable_bytes=int(free * VOLUME_BYTES) + number,
        )
        for number in range(VOLUMES)
    ]
    return _encoded(DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=volumes), DESCRIBE_LOG_DIRS)


def _encoded(response: Any, key: int) -> bytes:
    response.API_VERSION = VERSIONS[key]
    response.with_header(correlation_id=0)
    return bytes(response.encode(header=True))[4:]


class _Broker(asyncio.Protocol):
    """Serve one connection: each request has one answer."""

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
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), filling="filling" in sys.argv[3:]))
