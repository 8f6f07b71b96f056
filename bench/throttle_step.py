"""What a step of the throttle policy costs, per reading of a broker with four volumes.

Clusters of 30 to 3,000 brokers with full trends, readings alone and in batches of 20; through the policy alone, and
through the host with its state as bytes. Milliseconds of CPU, the better of two.

    python bench/throttle_step.py
    python bench/throttle_step.py --against v0.1.0
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

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
Case = tuple[str, int, int]
"""(``policy`` or ``host``, brokers, readings a batch)"""
Steps = Sequence[tuple[datetime, list[Observation]]]
CASES: tuple[Case, ...] = tuple(
    (way, brokers, batch) for way in ("policy", "host") for brokers in (30, 300, 3000) for batch in (1, 20)
)


def reading(poll: int, broker: int) -> Observation:
    """Every volume fills by 100 kB/s, and retention now and then gives some back."""
    free = 50 * GB - poll * 10**6 + broker
    volumes = tuple(VolumeReading(log_dir=d, total_bytes=100 * GB, usable_bytes=free) for d in DIRS)
    told = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=broker, volumes=volumes)
    return Observation(f"0190b3f0-0000-7000-{poll:04}-{broker:012}", at(poll), told)


def at(poll: float) -> datetime:
    """When a poll is read."""
    return START + timedelta(seconds=poll * POLL_SECONDS)


def members(brokers: int) -> Observation:
    """Who belongs to the cluster."""
    told = tuple(BrokerMember(broker=broker) for broker in range(brokers))
    return Observation("members", START, KafkaCluster(cluster=CLUSTER, outcome=Outcome.OK, brokers=told))


def batches(brokers: int, size: int, count: int) -> Iterator[tuple[datetime, list[Observation]]]:
    """So many batches of readings that go on after the warm-up, each with its time."""
    for number in range(count):
        indices = range(number * size, (number + 1) * size)
        batch = [reading(WARM_POLLS + i // brokers, i % brokers) for i in indices]
        yield at(WARM_POLLS + indices[-1] / brokers), batch


def measured(case: Case) -> float:
    """Milliseconds of CPU an observation."""
    way, brokers, size = case
    count = max(3, min(200, 200_000 // (brokers * (5 if way == "host" else 1))))
    steps = list(batches(brokers, size, count))
    warm = [(at(0), [members(brokers)])]
    warm += [(at(poll), [reading(poll, broker) for broker in range(brokers)]) for poll in range(WARM_POLLS)]
    seconds = _by_host(warm, steps) if way == "host" else _by_policy(warm, steps)
    return 1000 * seconds / (count * size)


def _by_policy(
    warm: Sequence[tuple[datetime, list[Observation]]], steps: Sequence[tuple[datetime, list[Observation]]]
) -> float:
    policy, state = ThrottlePolicy(CLUSTER, SETTINGS), None
    for now, observations in warm:
        state = policy.step(state, observations, now).state
    begun = time.process_time()
    for now, observations in steps:
        state = policy.step(state, observations, now).state
    return time.process_time() - begun


def _by_host(
    warm: Sequence[tuple[datetime, list[Observation]]], steps: Sequence[tuple[datetime, list[Observation]]]
) -> float:
    host, kept = PolicyHost({"throttle": SETTINGS}), None
    for now, observations in warm:
        kept = host.step("throttle", CLUSTER, kept, observations, now).key_state
    begun = time.process_time()
    for now, observations in steps:
        kept = host.step("throttle", CLUSTER, kept, observations, now).key_state
    return time.process_time() - begun


def main() -> None:
    """Measure and print."""
    run(__doc__ or "", measure, argparse.ArgumentParser())


def measure(_: argparse.Namespace) -> Figures:
    """All cases."""
    return {
        f"throttle step by {way}, {brokers} brokers, {size} a batch, ms a reading": min(
            measured((way, brokers, size)) for _ in range(2)
        )
        for way, brokers, size in CASES
    }


if __name__ == "__main__":
    main()
