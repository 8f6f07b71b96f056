"""Metrics of the bookie-disks policy: its decisions, and the disks behind them.

The disks are those of the last readings; all that is judged comes from the decisions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from pathlib import Path
from typing import ClassVar, TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from connectors.views import (
    Decided,
    DiskDetail,
    DiskLevels,
    Family,
    Fill,
    PolicyDetail,
    PolicyView,
    Sample,
    is_lowered_by_reading,
    seconds_to_full,
    shown_factor,
)
from policies.bookie_disks.decisions import FALLBACK_REASONS, BookieThrottle, BookieThrottleReason
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_readings import Bookies
from policies.decisions import Decision, has_expired
from policies.observations import Observation, Outcome
from policies.units import from_millis

FACTOR = Family(
    "headgate_bookie_throttle_factor",
    "The decided fraction of the full publish rate of a placement group, in shadow mode and without an actuator, too. "
    "While the decision is stale, it is the factor that replaces it.",
    ("cluster", "group"),
)
LIMITING = Family(
    "headgate_throttling_bookie",
    "1 for the bookie that limits a placement group now, with the reason of the decision.",
    ("cluster", "group", "bookie", "dir", "reason"),
)
NAMESPACES = Family(
    "headgate_placement_group_namespaces", "Number of namespaces of a placement group.", ("cluster", "group")
)
_DIR = ("cluster", "bookie", "dir")
USABLE = Family("headgate_bookie_dir_usable_bytes", "Free bytes of a ledger dir, by the last reading.", _DIR)
TOTAL = Family("headgate_bookie_dir_total_bytes", "Size of a ledger dir's disk, by the last reading.", _DIR)
SECONDS_TO_FULL = Family(
    "headgate_bookie_dir_seconds_to_full",
    "Time until a ledger dir is full at its present rate; absent if it is not filling, if its trend is not credible, "
    "or if its reading is stale.",
    _DIR,
)
READ_ONLY = Family("headgate_bookie_read_only", "1 if the bookie takes no new data.", ("cluster", "bookie"))


@dataclass(slots=True)
class _Watched:
    """The state of one cluster."""

    settings: BookieDisksSettings
    disks: DiskLevels = field(default_factory=DiskLevels)
    read_only: dict[str, bool] = field(default_factory=dict)
    """By bookie, as last read."""

    def take(self, seen: Observation) -> None:
        """Take a reading, if it is good: of a bookie's disks, or of the bookies that the cluster has."""
        reading = seen.reading
        if reading.outcome is not Outcome.OK:
            return
        if isinstance(reading, BookieDisks):
            if self.disks.read(reading.bookie, reading.dirs, seen.at_ms):
                self.read_only[reading.bookie] = reading.read_only
        elif isinstance(reading, Bookies):
            writable, closed = ({each.bookie for each in listed} for listed in (reading.writable, reading.read_only))
            names = writable | closed | set(reading.known)
            self.disks.keep_only(names)
            self.read_only = {
                name: name in closed or (mode and name not in writable)
                for name, mode in self.read_only.items()
                if name in names
            }


class BookieDisksView(PolicyView[_Watched]):
    """The present state of all clusters."""

    families: tuple[Family, ...] = (FACTOR, LIMITING, NAMESPACES, USABLE, TOTAL, SECONDS_TO_FULL, READ_ONLY)
    of_decisions: tuple[Family, ...] = (LIMITING, NAMESPACES)

    def __init__(self, settings: BookieDisksSettings) -> None:
        super().__init__(settings.history, lambda name: _Watched(settings.for_cluster(name)), _show)

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:  # noqa: ARG002 - none counts
        """Return whether a reading lowered a group's factor."""
        return _is_of_group(decision) and is_lowered_by_reading(before, decision, FALLBACK_REASONS)

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:
        """Yield the samples of all clusters."""
        for name, cluster, decisions in self.states(decided):
            for decision in filter(_is_of_group, decisions):
                yield from _decision_samples(decision, cluster.settings, now_ms)
            yield from (Sample(READ_ONLY, (name, b), float(mode)) for b, mode in sorted(cluster.read_only.items()))
            for bookie, disk in cluster.disks.disks():
                labels = (name, bookie, disk.log_dir)
                yield Sample(USABLE, labels, disk.usable_bytes)
                yield Sample(TOTAL, labels, disk.total_bytes)
                if (seconds := seconds_to_full(disk, now_ms, cluster.settings.validity)) is not None:
                    yield Sample(SECONDS_TO_FULL, labels, seconds)


def _is_of_group(decision: Decision | None) -> TypeGuard[BookieThrottle]:
    return isinstance(decision, BookieThrottle) and decision.reason is not BookieThrottleReason.GROUP_ENDED


def _decision_samples(decision: BookieThrottle, settings: BookieDisksSettings, now_ms: int) -> Iterator[Sample]:
    labels = (decision.cluster, decision.group)
    yield Sample(FACTOR, labels, shown_factor(decision, settings, now_ms))
    yield Sample(NAMESPACES, labels, decision.namespaces.count)
    if decision.limiting is not None:
        where = (decision.limiting.bookie, decision.limiting.dir, decision.reason.value)
        yield Sample(LIMITING, (*labels, *where), 1.0)


# The bookie-disks policy on the status page: the factors of placement groups, and the fullest ledger dirs.

SHOWN_GROUPS = 8
SHOWN_DIRS = 4
_LONGEST_SENTENCE = 1000


class GroupFactor(BaseModel):
    """A placement group, and the bookie that limits it."""

    model_config = ConfigDict(frozen=True)

    group: str
    factor: float = Field(description="In force; by `expired_action` while the decision is stale.")
    limiting: str | None = Field(description="The bookie that limits it now; null if none does.")


class LedgerDir(DiskDetail):
    """A ledger dir of a bookie as last read."""

    bookie: str
    ledger_dir: str


class BookieDisksDetail(PolicyDetail):
    """The factors of placement groups, and the fullest ledger dirs."""

    template: ClassVar[str] = str(Path(__file__).with_name("detail.html"))

    group_count: int
    groups: tuple[GroupFactor, ...] = Field(description=f"The slowest {SHOWN_GROUPS}, the slowest first.")
    sentence: str | None = Field(description="Why the slowest group has its factor; null while no group has one.")
    read_only: tuple[str, ...] = Field(description="The bookies that take no new data.")
    dir_count: int
    dirs: tuple[LedgerDir, ...] = Field(description=f"The fullest ledger dirs, at most {SHOWN_DIRS}.")

    limiting: LedgerDir | None = Field(description="The dir that limits the slowest group, or else the fullest one.")

    def fill(self) -> Fill | None:
        """Return the free space of the limiting ledger dir, and the least factor."""
        if self.limiting is None:
            return None
        factor = self.groups[0].factor if self.groups else None
        return self.limiting.fill(f"bookie {self.limiting.bookie} {self.limiting.ledger_dir}", factor)


def _show(cluster: _Watched, decided: Sequence[Decision], now_ms: int) -> BookieDisksDetail | None:
    settings, decisions = cluster.settings, list(filter(_is_of_group, decided))
    dirs = [
        LedgerDir.of(disk, settings, now_ms, bookie=bookie, ledger_dir=disk.log_dir)
        for bookie, disk in cluster.disks.disks()
    ]
    if not decisions and not dirs:
        return None
    explained = min(decisions, key=lambda each: (each.factor, each.group), default=None)
    current = [decision for decision in decisions if not has_expired(decision, from_millis(now_ms))]
    limiting = {d.group: (d.limiting.bookie, d.limiting.dir) for d in current if d.limiting is not None}
    slowest = sorted((shown_factor(each, settings, now_ms), each.group) for each in decisions)[:SHOWN_GROUPS]
    fullest = nlargest(SHOWN_DIRS, dirs, key=lambda d: (d.used_ratio, d.bookie, d.ledger_dir))
    limits = limiting.get(slowest[0][1]) if slowest else None
    return BookieDisksDetail(
        group_count=len(decisions),
        groups=tuple(GroupFactor(group=g, factor=f, limiting=limiting.get(g, (None,))[0]) for f, g in slowest),
        sentence=None if explained is None else explained.explanation[:_LONGEST_SENTENCE],
        read_only=tuple(sorted(bookie for bookie, is_set in cluster.read_only.items() if is_set)),
        dir_count=len(dirs),
        dirs=tuple(fullest),
        limiting=next((each for each in dirs if (each.bookie, each.ledger_dir) == limits), next(iter(fullest), None)),
    )
