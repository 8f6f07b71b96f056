"""The throttle policy in a loop with only confluent-kafka: the lower bound of the costs, with its state in memory only.

The client commits its position every five seconds, as most such loops do.

    python bench/peer_loop.py SERVERS PREFIX
"""

import signal
import sys
import time
from collections import defaultdict

from confluent_kafka import Consumer, Message, Producer

from bench.peer_policy import HostedPolicy
from policies.wire import ObservedRecord

MOST_AT_ONCE = 500
LONGEST_WAIT_SECONDS = 0.01


class Loop:
    """One process, one partition, all clusters."""

    def __init__(self, servers: str, prefix: str) -> None:
        client = {"bootstrap.servers": servers}
        # Static membership; otherwise a killed member keeps the partition for its session's 45 seconds.
        group = {"group.id": f"{prefix}.peer-loop", "group.instance.id": "1", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**client, **group, "enable.auto.commit": True, "fetch.wait.max.ms": 10})
        self._producer = Producer({**client, "acks": "all"})
        self._policy = HostedPolicy(prefix)
        self._prefix = prefix
        self._kept: dict[str, bytes | None] = {}
        self._wakes_ms: dict[str, int | None] = {}
        self._consumer.subscribe([f"{prefix}.observed.log-dirs"])

    def run(self) -> None:
        """Run forever."""
        while True:
            for cluster, records in self._take_records().items():
                self._step(cluster, records)
            self._producer.poll(0)

    def _take_records(self) -> dict[str, list[ObservedRecord]]:
        """Yield new records by cluster, and the clusters whose timer is due."""
        taken: dict[str, list[ObservedRecord]] = defaultdict(list)
        first = self._consumer.poll(LONGEST_WAIT_SECONDS)
        more = self._consumer.consume(MOST_AT_ONCE, timeout=0) if first is not None else []
        for message in (first, *more):
            if message is not None and message.error() is None:
                taken[(message.key() or b"").decode()].append(_record(message))
        now_ms = _now_ms()
        for cluster, wake_ms in self._wakes_ms.items():
            if wake_ms is not None and wake_ms <= now_ms:
                taken.setdefault(cluster, [])
        return taken

    def _step(self, cluster: str, records: list[ObservedRecord]) -> None:
        hosted = self._policy.step(cluster, self._kept.get(cluster), records, _now_ms())
        self._kept[cluster], self._wakes_ms[cluster] = hosted.kept, hosted.wake_ms
        for topic, key, value in hosted.outputs:
            self._producer.produce(f"{self._prefix}.{topic}", key=key, value=value)


def _record(message: Message) -> ObservedRecord:
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    return ObservedRecord(*place, message.timestamp()[1], message.value())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Loop(sys.argv[1], sys.argv[2]).run()
