"""Readings at seconds after a fixed start, and a run of the throttle policy over them as replay would do it."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from policies.book import Published
from policies.decisions import AlertStatus, Mode
from policies.observations import Observation, Outcome
from policies.throttle.decisions import LimitingVolume, ThrottleFactor
from policies.throttle.policy import ThrottlePolicy
from policies.throttle.readings import BrokerMember, KafkaCluster, LogDirs, VolumeReading
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState
from tests.policies.virtual_run import START as START
from tests.policies.virtual_run import VirtualRun, merge, second_of
from tests.policies.virtual_run import at as at

KB, MB, GB = 10**3, 10**6, 10**9
CLUSTER = "payments"
TOTAL = 100 * GB

HARD: Mapping[str, Any] = {"hard": {"available_bytes_below": 1 * GB}}
SOFT_AND_HARD: Mapping[str, Any] = {**HARD, "soft": {"available_bytes_below": 5 * GB}}
"""Between them a volume with 4 GB free allows 0.75."""
NO_PATIENCE: Mapping[str, Any] = {"recovery_margin": 0.0, "min_hold": "0s", "min_change": 0.0}


def throttle(*blocks: Mapping[str, Any], **more: Any) -> ThrottleSettings:
    return ThrottleSettings.model_validate(merge(*blocks, **more))


def volume(log_dir: str, free: int | None, total: int = TOTAL) -> VolumeReading:
    """One log dir; unreadable when its free bytes are None."""
    if free is None:
        return VolumeReading(log_dir=log_dir, error="KAFKA_STORAGE_ERROR")
    return VolumeReading(log_dir=log_dir, total_bytes=total, usable_bytes=free)


def log_dirs(
    seconds: float,
    broker: int,
    free: Mapping[str, int | None] | int,
    *,
    total: int = TOTAL,
    id: str | None = None,  # noqa: A002 - as in CloudEvents
) -> Observation:
    """A good reading of one broker: free bytes by log dir, or of its only one (``/data/a``)."""
    dirs = {"/data/a": free} if isinstance(free, int) else free
    volumes = tuple(volume(log_dir, bytes_, total) for log_dir, bytes_ in dirs.items())
    reading = LogDirs(cluster=CLUSTER, outcome=Outcome.OK, broker=broker, volumes=volumes)
    return Observation(id or f"dirs-{broker}@{seconds:g}", at(seconds), reading)


def failed(seconds: float, broker: int, outcome: Outcome = Outcome.TIMEOUT) -> Observation:
    """A reading of a broker that could not be read."""
    reading = LogDirs(cluster=CLUSTER, outcome=outcome, broker=broker, detail="no answer")
    return Observation(f"failed-{broker}@{seconds:g}", at(seconds), reading)


def members(seconds: float, *brokers: int, outcome: Outcome = Outcome.OK) -> Observation:
    """A reading of the cluster's brokers."""
    listed = tuple(BrokerMember(broker=b) for b in brokers)
    reading = KafkaCluster(cluster=CLUSTER, outcome=outcome, brokers=listed)
    return Observation(f"members@{seconds:g}", at(seconds), reading)


def decide(
    factor: float, sequence: int = 1, *, decided_at: datetime, valid_seconds: float | None = 180.0, **more: Any
) -> ThrottleFactor:
    """A decision on a factor, with the fields that an actuator looks at."""
    until = None if valid_seconds is None else decided_at + timedelta(seconds=valid_seconds)
    about = {"cluster": CLUSTER, "subject": CLUSTER, "decision_id": f"id-{sequence}", "mode": Mode.ACTIVE}
    times = {"decided_at": decided_at, "valid_until": until}
    return ThrottleFactor.model_construct(**about | {"factor": factor, "sequence": sequence} | times | more)


class Run(VirtualRun[ThrottleState]):
    """Steps the policy at each reading, and at each `wake_at` in between."""

    def __init__(self, settings: ThrottleSettings, state: ThrottleState | None = None) -> None:
        super().__init__(ThrottlePolicy(CLUSTER, settings), state)
        self.settings = settings
        self.notes: list[ThrottleFactor] = []

    def step(self, observations: Sequence[Observation], now: datetime) -> Published[ThrottleState]:
        step = super().step(observations, now)
        assert step.wake_at is not None
        self.notes.extend(n for n in step.notes if isinstance(n, ThrottleFactor))
        return step

    @property
    def decisions(self) -> list[ThrottleFactor]:
        return [d for d in self.published if isinstance(d, ThrottleFactor)]

    @property
    def last(self) -> ThrottleFactor:
        return self.decisions[-1]

    @property
    def limiting(self) -> LimitingVolume:
        assert self.last.limiting is not None
        return self.last.limiting

    @property
    def factor(self) -> float:
        """The factor in force now."""
        assert self.known.gate is not None
        return self.known.gate.factor

    def factor_at(self, seconds: float) -> float:
        """The factor in force at that second, by the published decisions."""
        return self.decisions[bisect_right(self.decisions, at(seconds), key=lambda d: d.decided_at) - 1].factor

    def changes(self) -> list[tuple[float, float]]:
        """(second, factor) of the first decision and of each change of the factor."""
        moved = self.decisions[:1] + [b for a, b in pairwise(self.decisions) if a.factor != b.factor]
        return [(second_of(d), d.factor) for d in moved]

    def said(self, alert: str) -> list[tuple[float, str, str]]:
        """(second, status, severity) of every record of one alert."""
        return [(second_of(a), a.status.value, a.severity.value) for a in self.alerts if a.alert == alert]

    def firing(self) -> set[tuple[str, str]]:
        """(alert, subject) of the alerts that fire now."""
        latest = {(a.alert, a.subject): a.status for a in self.alerts}
        return {key for key, status in latest.items() if status is AlertStatus.FIRING}
