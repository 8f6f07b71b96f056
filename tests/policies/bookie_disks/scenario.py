"""Readings of bookies' disks at seconds after a fixed start, and a run of the policy over them."""

from collections.abc import Mapping, Sequence
from typing import Any

from policies.book import Published
from policies.bookie_disks.decisions import BookieThrottle
from policies.bookie_disks.policy import BookieDisksPolicy
from policies.bookie_disks.readings import BookieDir, BookieDisks, BookieThresholds, PublishState
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksState
from policies.decisions import Alert
from policies.observations import Observation, Outcome
from tests.policies.virtual_run import VirtualRun, at, merge, second_of

CLUSTER = "c1"
GB = 10**9
TOTAL = 100 * GB
THRESHOLDS = BookieThresholds(read_only=0.95, major_compaction=0.90, minor_compaction=0.95)
NO_PATIENCE: Mapping[str, Any] = {"recovery_margin": 0.0, "min_hold": "0s", "min_change": 0.0}
QUIET: Mapping[str, Any] = {"heartbeat": "1d", "validity": "1d"}


def settings(*blocks: Mapping[str, Any], **more: Any) -> BookieDisksSettings:
    return BookieDisksSettings.model_validate(merge(*blocks, **more))


def disks(
    seconds: float,
    bookie: str,
    free: Mapping[str, float | None] | float,
    *,
    read_only: bool = False,
    thresholds: BookieThresholds | None = THRESHOLDS,
    id: str | None = None,  # noqa: A002 - as in CloudEvents
) -> Observation:
    """A good reading of one bookie: free gigabytes of a hundred by dir, or of its only one (``/l``)."""
    dirs = free if isinstance(free, Mapping) else {"/l": free}
    reading = BookieDisks(
        cluster=CLUSTER,
        outcome=Outcome.OK,
        bookie=bookie,
        read_only=read_only,
        dirs=tuple(
            BookieDir(dir=name)
            if gigabytes is None
            else BookieDir(dir=name, total_bytes=TOTAL, usable_bytes=round(gigabytes * GB))
            for name, gigabytes in dirs.items()
        ),
        thresholds=thresholds,
    )
    return Observation(id or f"disks-{bookie}@{seconds:g}", at(seconds), reading)


def failed(seconds: float, bookie: str, outcome: Outcome = Outcome.UNSUPPORTED) -> Observation:
    """A reading of a bookie that could not be read; without a name, of none in particular."""
    reading = BookieDisks(cluster=CLUSTER, outcome=outcome, bookie=bookie, detail="no answer")
    return Observation(f"failed-{bookie}@{seconds:g}", at(seconds), reading)


def all_disks(seconds: float, **free: float) -> list[Observation]:
    """One poll: free gigabytes of a hundred by bookie."""
    return [disks(seconds, bookie, gigabytes) for bookie, gigabytes in free.items()]


def let_through(seconds: float, bytes_per_second: int | None) -> Observation:
    """The publish actuator's reading."""
    reading = PublishState(cluster=CLUSTER, outcome=Outcome.OK, let_through_bytes_per_second=bytes_per_second)
    return Observation(f"limits@{seconds:g}", at(seconds), reading)


class Run(VirtualRun[BookieDisksState]):
    """Steps the policy at each reading, and at each `wake_at` in between."""

    def __init__(self, settings: BookieDisksSettings, state: BookieDisksState | None = None) -> None:
        super().__init__(BookieDisksPolicy(CLUSTER, settings), state)
        self.notes: list[BookieThrottle] = []

    def step(self, observations: Sequence[Observation], now: Any) -> Published[BookieDisksState]:
        step = super().step(observations, now)
        self.notes.extend(n for n in step.notes if isinstance(n, BookieThrottle))
        return step

    def decided(self, group: str = "default") -> list[BookieThrottle]:
        return [d for d in self.published if isinstance(d, BookieThrottle) and d.group == group]

    def last(self, group: str = "default") -> BookieThrottle:
        return self.decided(group)[-1]

    def verdict(self, group: str = "default") -> tuple[float, str]:
        """(factor, reason) of the decision in force."""
        return (self.last(group).factor, self.last(group).reason.value)

    def firing(self) -> set[tuple[str, str, str]]:
        """(alert, subject without the cluster, severity) of the alerts that fire now."""
        latest: dict[str, Alert] = {alert.record_key(): alert for alert in self.alerts}
        now = [alert for alert in latest.values() if alert.status == "firing"]
        return {(a.alert, a.subject.removeprefix(f"{CLUSTER}/"), a.severity.value) for a in now}

    def factors(self, group: str = "default") -> list[tuple[float, float]]:
        """(second, factor) of each decision."""
        return [(second_of(d), d.factor) for d in self.decided(group)]
