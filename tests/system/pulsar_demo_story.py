"""The story of the demo of Pulsar: its producers, and the operator who frees space."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from py4j.java_gateway import JavaGateway

from deploy.demo.run import DemoFailedError
from deploy.demo.story import Screen
from policies.units import human_bytes, human_seconds
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_load import PulsarLoad
from tests.system.pulsar_topics import call
from tests.system.small_servers import LOOPBACK

NAMESPACE = "demo/orders"
LOAD_BYTES_PER_SECOND = 6_000_000
"""The rate that the producer wants to publish; each bookie gets two thirds of it."""

SOFT_USED = 0.6
"""The used share from which Headgate slows the producer down."""
_SUSPENDED_USED = 0.90
"""The used share at which these bookies suspend compaction."""
_OLD_SHARE = 0.4
"""The used share at which the first topic is full enough."""
_IS_SLOW = 0.5
_SLOWED_SECONDS = 10.0
_IS_BACK = 0.85
_LOOK_SECONDS = 1.0
_PRINT_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0


class PulsarDirector:
    """Runs the producers, and frees space when the story asks for it; sets `over` at its end."""

    def __init__(
        self,
        servers: PulsarCluster,
        gateway: JavaGateway,
        disks: Sequence[Path],
        terminal: Screen,
        over: threading.Event,
    ) -> None:
        self._terminal = terminal
        self._over = over
        self._servers = servers
        self._gateway = gateway
        self._disks = disks
        self._most_used = 0.0
        self._print_at = 0.0
        self._deadline = float("inf")
        self.is_over = False
        """Whether the story has come to its end."""

    def run(self, stop: threading.Event) -> None:
        """Tell the story until its end or until it is ended; then wait for `stop`.

        Raises:
            DemoFailedError: the story does not reach its end.
        """
        if self._terminal.await_ready(self._over):
            self._deadline = time.monotonic() + _PATIENCE_SECONDS
            self.is_over = all(self._tell(self._over))
            self._over.set()
        stop.wait()

    def _tell(self, stop: threading.Event) -> Iterator[bool]:
        """Yield after each part whether to go on."""
        rate = f"{human_bytes(LOAD_BYTES_PER_SECOND)}/s"
        self._terminal.step(f"fill: a producer publishes {rate} to the topic `monday`, and nothing is deleted")
        with self._load("monday") as load:
            yield self._await(stop, load, lambda: max(self._used()) >= _OLD_SHARE)
        self._terminal.step(
            f"fill: on `tuesday` it goes on with {rate}; from {SOFT_USED:.2f} used on, Headgate slows it down"
        )
        with self._load("tuesday") as load:
            yield self._await(stop, load, lambda: self._terminal.factor < _IS_SLOW)
            self._terminal.step("slowed: the less space is left, the slower the producer")
            ends_at = time.monotonic() + _SLOWED_SECONDS
            yield self._await(stop, load, lambda: time.monotonic() >= ends_at)
            self._terminal.step("recovery: an operator deletes the topic `monday`, which frees space")
            call(self._servers, "DELETE", f"/admin/v2/persistent/{NAMESPACE}/monday?force=true")
            yield self._await(stop, load, lambda: self._terminal.factor == 1.0 and self._is_back(load))
        self._terminal.step(
            f"done: {rate} again, and no publish rate is set. The fullest disk was at {self._most_used:.2f}; at "
            f"{_SUSPENDED_USED:.2f} these bookies suspend compaction"
        )

    def _is_back(self, load: PulsarLoad) -> bool:
        return load.rate(2 * _LOOK_SECONDS) > _IS_BACK * LOAD_BYTES_PER_SECOND

    def _load(self, topic: str) -> PulsarLoad:
        name = f"{NAMESPACE}/{topic}"
        service_url = f"pulsar://{LOOPBACK}:{self._servers.brokers[0].service_port}"
        return PulsarLoad(self._gateway, service_url, name, LOAD_BYTES_PER_SECOND)

    def _used(self) -> list[float]:
        """Return the used share of each disk, and remember the largest."""
        used = [1 - usage.free / usage.total for usage in map(shutil.disk_usage, self._disks)]
        self._most_used = max(self._most_used, *used)
        return used

    def _await(self, stop: threading.Event, load: PulsarLoad, is_over: Callable[[], bool]) -> bool:
        """Wait for the end of a part; return False if `stop` was set before."""
        while not is_over():
            before = load.sent_bytes
            if stop.wait(_LOOK_SECONDS):
                return False
            used = self._used()
            self._show(used, (load.sent_bytes - before) / _LOOK_SECONDS)
            if not all(server.is_alive for server in (*self._servers.bookies, *self._servers.brokers)):
                raise DemoFailedError("A server of Pulsar ended before the story did.")
            if time.monotonic() > self._deadline:
                waited = human_seconds(_PATIENCE_SECONDS)
                raise DemoFailedError(f"After {waited} the story is not at its end: this machine may be too busy.")
        return True

    def _show(self, shares: Sequence[float], bytes_per_second: float) -> None:
        if time.monotonic() >= self._print_at:
            self._print_at = time.monotonic() + _PRINT_SECONDS
            used = ", ".join(f"{share:.2f}" for share in shares)
            published = f"{human_bytes(round(bytes_per_second))}/s published"
            self._terminal.step(f"used: {used}; factor {self._terminal.factor:.2f}; {published}")
