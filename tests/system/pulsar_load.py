"""A Java producer that tries to publish at a fixed rate and so fills the bookies' disks."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

MESSAGE_BYTES = 100_000
_MOST_PENDING = 20
_LONGEST_DEBT_SECONDS = 1.0
"""No burst follows a release: what could not be sent for longer is not sent later."""


@contextmanager
def pulsar_clients(jars: Sequence[Path]) -> Iterator[JavaGateway]:
    """Start a JVM with Pulsar's client; it ends with this process at the latest."""
    port = launch_gateway(
        classpath=":".join(map(str, jars)),
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        create_new_process_group=True,  # Ctrl-C of a terminal ends this process, which then ends the client
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()


class PulsarLoad:
    """A producer without batches, whose queue blocks while the broker takes no more.

    Args:
        topic: `tenant/namespace/topic`.
    """

    def __init__(self, gateway: JavaGateway, service_url: str, topic: str, bytes_per_second: int) -> None:
        self._client = gateway.jvm.org.apache.pulsar.client.api.PulsarClient.builder().serviceUrl(service_url).build()
        made, waits, batches = self._client.newProducer().topic(f"persistent://{topic}"), True, False
        self._producer = made.maxPendingMessages(_MOST_PENDING).blockIfQueueFull(waits).enableBatching(batches).create()
        self._payload = gateway.new_array(gateway.jvm.byte, MESSAGE_BYTES)
        self._bytes_per_second = bytes_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulsar load", daemon=True)
        self.sent_bytes = 0
        """Bytes that the producer has taken; at most its queue is not stored yet."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._client.closeAsync()

    def rate(self, seconds: float) -> float:
        """Return the bytes a second that are sent within the next seconds."""
        before, since = self.sent_bytes, time.monotonic()
        time.sleep(seconds)
        return (self.sent_bytes - before) / (time.monotonic() - since)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                self._producer.sendAsync(self._payload)
            except Py4JError:  # it was closed
                return
            self.sent_bytes += MESSAGE_BYTES
            due = max(due + MESSAGE_BYTES / self._bytes_per_second, time.monotonic() - _LONGEST_DEBT_SECONDS)
            self._stop.wait(max(0.0, due - time.monotonic()))
