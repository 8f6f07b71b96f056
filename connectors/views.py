"""What a policy contributes to the exporter: metrics and a section of the status page, both of its folded state."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel, ConfigDict, Field

from connectors.decided import Watched
from policies.decisions import Alert, Decision, has_expired
from policies.effects import InForce
from policies.free_space.gate import FactorVerdict
from policies.free_space.levels import FactorDecision
from policies.free_space.limits import FreeSpaceSettings
from policies.free_space.volumes import MOST_TOGETHER, NEVER, ReportedVolume, VolumeState, fold_volumes, seconds_left
from policies.observations import Observation, sort_observations
from policies.units import from_millis, millis_of

# Sections of the status page, and a disk in them for each policy that watches free space.


class Fill(NamedTuple):
    """The disk that limits a cluster, or else its fullest one."""

    place: str
    free_bytes: float
    soft_bytes: float | None
    hard_bytes: float | None
    factor: float | None


class PolicyDetail(BaseModel):
    """A policy's section of a cluster on the status page and in its API."""

    model_config = ConfigDict(frozen=True)

    template: ClassVar[str] = "policy.html"
    """The path of a Jinja template with the variables of `page/templates/policy.html`, which shows only what all
    policies have."""

    def fill(self) -> Fill | None:
        """Return the present point of the page's plot; None: it has none."""
        return None


class DiskDetail(BaseModel):
    """A disk as last read."""

    model_config = ConfigDict(frozen=True)

    usable_bytes: float = Field(description="Bytes that its server can still use.")
    total_bytes: float
    used_ratio: float = Field(description="From 0 to 1.")
    soft_ratio: float | None = Field(description="The used ratio from which producers are slowed; null: no limit.")
    hard_ratio: float | None = Field(description="The used ratio from which they are stopped; null: no limit.")
    soft_bytes: float | None = Field(description="The soft limit in free bytes; null: no limit.")
    hard_bytes: float | None = Field(description="The hard limit in free bytes; null: no limit.")
    seconds_to_full: float | None = Field(description="At its present rate; null: unknown, or it is not filling.")

    @classmethod
    def of(cls, disk: VolumeState, settings: FreeSpaceSettings, now_ms: int, **own: Any) -> Self:
        """Make the section of a disk with a subclass's `own` fields."""
        size = disk.total_bytes
        found: dict[str, Any] = {"usable_bytes": disk.usable_bytes, "total_bytes": size}
        for name, limit in (("soft", settings.soft), ("hard", settings.hard)):
            at = None if limit is None else limit.in_bytes(size)
            found |= {f"{name}_bytes": at, f"{name}_ratio": None if at is None else _used_ratio(at, size)}
        seconds = seconds_to_full(disk, now_ms, settings.validity)
        return cls(used_ratio=_used_ratio(disk.usable_bytes, size), seconds_to_full=seconds, **found, **own)

    def fill(self, place: str, factor: float | None) -> Fill:
        """Return the point of the page's plot, if this disk limits."""
        return Fill(place, self.usable_bytes, self.soft_bytes, self.hard_bytes, factor)


def _used_ratio(free: float, total: float) -> float:
    return min(1.0, max(0.0, 1 - free / total)) if total > 0 else 0.0


# Builds the exposition of a scrape from plain samples.
#
# No gauge of the client library keeps them, so a series disappears together with its sample.


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge, or a counter if its name ends in ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...]

    def metric(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Make the metric, without samples."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


class Sample(NamedTuple):
    """The present value of one series."""

    family: Family
    labels: tuple[str, ...]
    """The values of the family's labels, in their order."""
    value: float


def metrics(samples: Iterable[Sample]) -> Iterable[Metric]:
    """Return the metric of each family that has a sample."""
    found: dict[Family, CounterMetricFamily | GaugeMetricFamily] = {}
    for family, labels, value in samples:
        if family not in found:
            found[family] = family.metric()
        found[family].add_metric(labels, value)
    return found.values()


# A snapshot of the loop: metric values and the decisions in force at one moment.
#
# The status page and its API take all their data from it.

MOST_SERVERS, MOST_DISKS = 10_000, MOST_TOGETHER
"""Brokers, bookies or members of a cluster that are kept, and their disks; the policies refuse readings beyond."""
MAX_RECENT_DECISIONS = 100
"""Number of recent decisions on the status page."""


@dataclass(frozen=True, slots=True)
class LoopSnapshot:
    """The whole loop."""

    at: datetime
    behind: str | None = "nothing was read yet"
    """Why the snapshot is older than the present; None if it is not."""
    problem: str | None = None
    """Why no new records can be read; None if they can."""
    stale: Mapping[Watched, bool] = field(default_factory=dict)
    """Whether a successor of a heartbeat or decision is overdue, where there is one."""
    unwatched: frozenset[Watched] = frozenset()
    """The policies and clusters whose heartbeat is stale."""
    details: Mapping[Watched, PolicyDetail] = field(default_factory=dict)
    """The sections of the status page."""
    decisions: Mapping[Watched, Sequence[Decision]] = field(default_factory=dict)
    """The decisions in force, by kind and subject."""
    in_force: Mapping[Watched, InForce] = field(default_factory=dict)
    """The wanted and the set values, where the policy has an actuator for the cluster."""
    alerts: Sequence[Alert] = ()
    """The firing alerts, by severity and then the newest first."""
    recent_decisions: Sequence[Decision] = ()
    """The last decisions and alerts that changed anything, the newest first."""
    silence: str | None = None
    """Why the loop does not decide; None if it decides."""


# What a policy contributes to the exporter: its metrics (`PolicyView`) and its section of the status page.

StateT = TypeVar("StateT", bound="Foldable")
Decided = Mapping[str, Sequence[Decision]]
"""A policy's decisions in force by cluster, by kind and subject."""


class Foldable(Protocol):
    """The state of one cluster."""

    def take(self, seen: Observation) -> None:
        """Take the next reading, be it good or failed."""


class PolicyView(ABC, Generic[StateT]):
    """Folds the readings of one policy by cluster, and returns their present state as samples and for the page.

    It keeps no decision: the exporter passes those in force.

    The exporter calls it under a lock, with each decision once and in the order of sequences.

    Args:
        history: the age of the oldest reading that a new exporter needs.
        make: makes a cluster's state from its name.
        show: makes a cluster's section of the status page from its state, its decisions and the time in milliseconds;
            None without data.
    """

    families: tuple[Family, ...]
    """Every family of its samples."""
    of_decisions: tuple[Family, ...] = ()
    """The families that show the latest decision of a ``cluster``; the exporter omits them while it is stale."""
    histograms: tuple[Histogram, ...] = ()
    """Exposed once they have a value."""

    def __init__(
        self,
        history: timedelta,
        make: Callable[[str], StateT],
        show: Callable[[StateT, Sequence[Decision], int], PolicyDetail | None] = lambda *_: None,
    ) -> None:
        self.history = history
        self._make = make
        self._show = show
        self._clusters: dict[str, StateT] = {}

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings by cluster, in the order of their times."""
        found: defaultdict[str, list[Observation]] = defaultdict(list)
        for observation in observations:
            found[observation.reading.cluster].append(observation)
        for name, readings in found.items():
            self._fold(self._cluster(name), readings)

    def _fold(self, cluster: StateT, readings: Sequence[Observation]) -> None:
        for seen in sort_observations(tuple(readings)):
            cluster.take(seen)

    def _cluster(self, name: str) -> StateT:
        """Return the state of a cluster, made when its name first occurs."""
        if name not in self._clusters:
            self._clusters[name] = self._make(name)
        return self._clusters[name]

    @abstractmethod
    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:
        """Count a decision that is newer than the last one of its key, `before`.

        Counters must not count a decision that is not `live` but older than the exporter's start, or a restart would
        look like an event. Returns whether the first reading of the evidence caused it, so that its latency counts.
        """

    def forget_cluster(self, cluster: str) -> None:
        """Drop a cluster: its last decision was deleted, because it is not watched any more."""
        self._clusters.pop(cluster, None)

    def states(self, decided: Decided) -> Iterator[tuple[str, StateT, Sequence[Decision]]]:
        """Yield each cluster that was read or decided on, with its state and its decisions."""
        for name in sorted({*self._clusters, *decided}):
            yield name, self._clusters.get(name) or self._make(name), decided.get(name, ())

    @abstractmethod
    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:
        """Yield the samples of this moment."""

    def details(self, now_ms: int, decided: Decided) -> Iterator[tuple[str, PolicyDetail]]:
        """Yield each cluster that has data with its section of the status page."""
        for name, state, decisions in self.states(decided):
            if (detail := self._show(state, decisions, now_ms)) is not None:
                yield name, detail


class DiskLevels:
    """The last good reading of each disk of a cluster, by server. It applies no rule of a policy.

    A disk is gone once a good reading of its server lacks it, or once its server is gone. A failed reading, or a disk
    that cannot be read, leaves the bytes that were read before.
    """

    def __init__(self) -> None:
        self._servers: dict[str, tuple[VolumeState, ...]] = {}
        self._count = 0

    def read(self, server: str, disks: Iterable[ReportedVolume], at_ms: int) -> bool:
        """Take a good reading of all disks of a server; False if the server or its disks are too many."""
        before = self._servers.get(server, ())
        after = tuple(disk for disk in fold_volumes(before, disks, at_ms) if disk.missing_ms is None)
        count = self._count + len(after) - len(before)
        if count > max(MOST_DISKS, self._count) or (server not in self._servers and len(self._servers) >= MOST_SERVERS):
            return False
        self._servers[server], self._count = after, count
        return True

    def keep_only(self, servers: AbstractSet[str]) -> None:
        """Drop the servers that the cluster does not list any more."""
        self._servers = {name: disks for name, disks in self._servers.items() if name in servers}
        self._count = sum(map(len, self._servers.values()))

    def disks(self) -> Iterator[tuple[str, VolumeState]]:
        """Yield each disk that was ever read, with its server."""
        for server, disks in sorted(self._servers.items()):
            yield from ((server, disk) for disk in disks if disk.read_ms != NEVER)


def shown_factor(decision: FactorDecision, settings: FreeSpaceSettings, now_ms: int) -> float:
    """Return the factor of a decision, or once it has expired the one that replaces it."""
    expired = has_expired(decision, from_millis(now_ms))
    return settings.choose_expired(decision.factor) if expired else decision.factor


def seconds_to_full(disk: VolumeState, now_ms: int, validity: timedelta) -> float | None:
    """Return how soon a disk is full at its present rate; None if that is not known, or its reading is stale."""
    return seconds_left(disk, now_ms) if now_ms - disk.read_ms < millis_of(validity) else None


def is_lowered_by_reading(before: Decision | None, decision: Any, by_time: AbstractSet[Any]) -> bool:
    """Return whether a new reading, the first of the evidence, lowered a factor, and not a reason that comes `by_time`.

    A rise has no such reading: a hold may have ended, or another volume limits now.
    """
    is_new = before is not None and decision.evidence[:1] not in ((), before.evidence[:1])
    return is_new and decision.verdict is FactorVerdict.LOWER and decision.reason not in by_time
