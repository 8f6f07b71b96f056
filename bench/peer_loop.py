"""The throttle policy in a loop with only confluent-kafka: the lower bound of the costs, with its state in memory only.

The client commits its position every five seconds, as most such loops do. `HostedPolicy` imports only packages of a
peer's environment: clients, msgspec and pydantic, but not Spark.

    python bench/peer_loop.py SERVERS PREFIX
"""

import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from confluent_kafka import Consumer, Producer

from policies.throttle import ThrottleSettings
from policies.wire import ObservedRecord, Output
from streaming.host import PolicyHost
from streaming.key_state import decode
from streaming.transition import reconcile
from tests.eager import EAGER

POLICY = "throttle"
MOST_AT_ONCE = 500
LONGEST_WAIT_SECONDS = 0.01


class Hosted(NamedTuple):
    """The result of stepping one key."""

    kept: bytes | None
    wake_ms: int | None
    """When to step the key without records."""
    outputs: tuple[Output, ...]


class HostedPolicy:
    """The throttle policy for all clusters. The query's own operator calls `reconcile`, too: all decide equally."""

    def __init__(self, prefix: str) -> None:
        self._host = PolicyHost({POLICY: ThrottleSettings.model_validate(EAGER)})
        self._prefix = prefix

    def step(self, cluster: str, kept: bytes | None, records: Sequence[ObservedRecord], now_ms: int) -> Hosted:
        """Step the policy with the records of one cluster."""
        before = None if kept is None else decode(kept)
        transition = reconcile(self._host, self._prefix, (POLICY, cluster), before, records, now_ms)
        # Not packed as Spark's state is, because the peers send it to no JVM.
        after = None if transition.key_state is None else msgspec.msgpack.encode(transition.key_state)
        return Hosted(after, transition.wake_ms, transition.outputs)


def run(servers: str, prefix: str) -> None:
    """Run forever: one process, one partition, all clusters."""
    # Static membership; otherwise a killed member keeps the partition for its session's 45 seconds.
    group = {"group.id": f"{prefix}.peer-loop", "group.instance.id": "1", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **group, "enable.auto.commit": True, "fetch.wait.max.ms": 10})
    consumer.subscribe([f"{prefix}.observed.log-dirs"])
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    policy, kept = HostedPolicy(prefix), dict[str, Hosted]()
    while True:
        for cluster, records in _take_records(consumer, kept).items():
            before = kept[cluster].kept if cluster in kept else None
            kept[cluster] = policy.step(cluster, before, records, _now_ms())
            for topic, key, value in kept[cluster].outputs:
                producer.produce(f"{prefix}.{topic}", key=key, value=value)
        producer.poll(0)


def _take_records(consumer: Consumer, kept: dict[str, Hosted]) -> dict[str, list[ObservedRecord]]:
    """Return new records by cluster, and the clusters whose timer is due."""
    taken: dict[str, list[ObservedRecord]] = defaultdict(list)
    first = consumer.poll(LONGEST_WAIT_SECONDS)
    for message in (first, *(consumer.consume(MOST_AT_ONCE, timeout=0) if first is not None else ())):
        if message is not None and message.error() is None:
            place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
            record = ObservedRecord(*place, message.timestamp()[1], message.value())
            taken[(message.key() or b"").decode()].append(record)
    now_ms = _now_ms()
    due = [cluster for cluster, it in kept.items() if it.wake_ms is not None and it.wake_ms <= now_ms]
    return {cluster: [] for cluster in due} | taken


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run(sys.argv[1], sys.argv[2])
