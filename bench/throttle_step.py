"""The cost of a step of the throttle policy, per reading of a broker with four volumes.

Clusters of 30 to 3,000 brokers with full trends, one reading a batch and 20; through the policy alone, and through the
host, which encodes the state. Milliseconds of processor, the better of two.

    python bench/throttle_step.py
    python bench/throttle_step.py --against v0.1.0
"""

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.turns import Figures, run
from policies.observations import Observation, Outcome
from policies.throttle import KafkaCluster, LogDirs, ThrottlePolicy, ThrottleSettings
from policies.throttle.readings import BrokerMember, VolumeReading
from streaming.host import PolicyHost

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
CLUSTER, GB = "payments", 10**9
SETTINGS = ThrottleSettings.model_validate(
    {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
)
DIRS = ("/data/a", "/data/b", "/data/c", "/data/d")
POLL_SECONDS, WARM_POLLS = 10, 13
CASES = tuple((layer, brokers, size) for layer in ("policy", "host") for brokers in (30, 300, 3000) for size in (1, 20))
"""(layer, brokers, readings a batch)"""


def instant(poll: float) -> datetime:
    """Return the time of a poll."""
    return START + timedelta(seconds=poll * POLL_SECONDS)


def reading(poll: int, broker: int) -> Observation:
    """Make a reading of volumes that fill by 100 kB/s."""
    free = 50 * GB - poll * 10**6 + broker
    volumes = tuple(VolumeReading(log_dir=d, total_bytes=100 * GB, usable_bytes=free) for d in DIRS)
    log_dirs = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=broker, volumes=volumes)
    return Observation(f"0190b3f0-0000-7000-{poll:04}-{broker:012}", instant(poll), log_dirs)


def warm_up(brokers: int) -> Iterator[tuple[datetime, list[Observation]]]:
    """Make the membership, and polls of all brokers until their trends are full."""
    members = tuple(BrokerMember(broker=broker) for broker in range(brokers))
    cluster = KafkaCluster(cluster=CLUSTER, outcome=Outcome.OK, brokers=members)
    yield instant(0), [Observation("members", START, cluster)]
    for poll in range(WARM_POLLS):
        yield instant(poll), [reading(poll, broker) for broker in range(brokers)]


def batches(brokers: int, size: int, count: int) -> Iterator[tuple[datetime, list[Observation]]]:
    """Make batches of readings that follow the warm-up."""
    for number in range(count):
        indices = range(number * size, (number + 1) * size)
        batch = [reading(WARM_POLLS + i // brokers, i % brokers) for i in indices]
        yield instant(WARM_POLLS + indices[-1] / brokers), batch


def measure_case(layer: str, brokers: int, size: int) -> float:
    """Return milliseconds of processor per reading."""
    policy, host = ThrottlePolicy(CLUSTER, SETTINGS), PolicyHost({"throttle": SETTINGS})

    def step(state: Any, now: datetime, batch: list[Observation]) -> Any:
        if layer == "policy":
            return policy.step(state, batch, now).state
        return host.step("throttle", CLUSTER, state, batch, now).key_state

    state = None
    for now, batch in warm_up(brokers):
        state = step(state, now, batch)
    count = max(3, min(200, 200_000 // (brokers * (5 if layer == "host" else 1))))
    steps = list(batches(brokers, size, count))
    begun = time.process_time()
    for now, batch in steps:
        state = step(state, now, batch)
    return 1000 * (time.process_time() - begun) / (count * size)


def measure(_: argparse.Namespace) -> Figures:
    """Measure all cases."""
    return {
        f"throttle step by {layer}, {brokers} brokers, {size} a batch, ms a reading": min(
            measure_case(layer, brokers, size) for _ in range(2)
        )
        for layer, brokers, size in CASES
    }


if __name__ == "__main__":
    run(__doc__ or "", measure, argparse.ArgumentParser())
