"""The cost of a step of the bookie-disks policy: 500 bookies with four dirs each, 20 groups, 2,000 namespaces.

One reading of a bookie a batch, one of the affinity, and a whole poll at once. Milliseconds of processor, the median.

    python bench/bookie_disks_step.py
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from bench.turns import Figures, run
from policies.bookie_disks import BookieDisksPolicy, BookieDisksSettings, BookieDisksState
from policies.bookie_disks.readings import BookieDir, BookieDisks
from policies.bookie_readings import BookieAffinity, BookieRacks, NamespaceAffinity, RackInfo
from policies.observations import Observation, Outcome, Reading

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
CLUSTER, GB = "messaging", 10**9
BOOKIES = [f"bk{number}:3181" for number in range(500)]
GROUPS = {f"g{n}": {b: RackInfo(rack="/r1") for b in BOOKIES[25 * n : 25 * n + 25]} for n in range(20)}
NAMESPACES = {
    f"tenant/{n}": NamespaceAffinity(primary=(f"g{n % 20}",), ensemble_size=3, write_quorum=2) for n in range(2000)
}
WARM_POLLS, COUNT = 13, 100


def observe(seconds: float, name: str, reading: Reading) -> Observation:
    """Make an observation at some seconds after the start."""
    return Observation(f"{name}-{seconds}", START + timedelta(seconds=seconds), reading)


def disks(seconds: float, number: int) -> Observation:
    """Make a reading of a bookie whose dirs fill by 1 MB/s."""
    free = 60 * GB - round(seconds * 10**6) - number * GB // 20
    dirs = tuple(BookieDir(dir=f"/data/{d}", total_bytes=100 * GB, usable_bytes=free) for d in "abcd")
    bookie = BOOKIES[number]
    return observe(seconds, bookie, BookieDisks(cluster=CLUSTER, outcome=Outcome.OK, bookie=bookie, dirs=dirs))


def affinity(seconds: float) -> Observation:
    """Make a reading of all namespaces."""
    return observe(seconds, "affinity", BookieAffinity(cluster=CLUSTER, outcome=Outcome.OK, namespaces=NAMESPACES))


def measure(_: argparse.Namespace) -> Figures:
    """Measure each kind of step."""
    policy, state = BookieDisksPolicy(CLUSTER, BookieDisksSettings()), BookieDisksState()

    def step(seconds: float, batch: Sequence[Observation]) -> float:
        nonlocal state
        begun = time.process_time()
        state = policy.step(state, batch, START + timedelta(seconds=seconds)).state
        return 1000 * (time.process_time() - begun)

    racks = observe(0, "racks", BookieRacks(cluster=CLUSTER, outcome=Outcome.OK, groups=GROUPS))
    step(0, [racks, affinity(0)])
    polls = [step(10 * n, [disks(10 * n, b) for b in range(len(BOOKIES))]) for n in range(WARM_POLLS)]
    last = 10.0 * WARM_POLLS
    single = [step(last + n / 10, [disks(last + n / 10, n)]) for n in range(COUNT)]
    namespaces = [step(last + 20 + n, [affinity(last + 20 + n)]) for n in range(10)]
    return {
        "bookie disks step, a reading of one bookie, ms": statistics.median(single),
        "bookie disks step, a reading of 2,000 namespaces, ms": statistics.median(namespaces),
        "bookie disks step, 500 readings, ms": statistics.median(polls),
    }


if __name__ == "__main__":
    run(__doc__ or "", measure, argparse.ArgumentParser())
