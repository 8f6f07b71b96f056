"""Readings of the bookie-disks policy, topic ``observed.bookie-disks``; events and plans of its publish actuator."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from policies.free_space.levels import (
    LevelPlan,
    LevelRecord,
    LevelSituation,
    LimitApplication,
    Original,
    Rate,
    WantedFactor,
    plan_level,
)
from policies.free_space.volumes import ReportedVolume
from policies.observations import Reading, ReportedEffect
from policies.units import MAX_INT64, Ratio

MAX_DIRS = 1000


def normalize_path(path: str) -> str:
    """Return a path without doubled slashes and without one at the end: these name the same dir."""
    return re.sub("/{2,}", "/", path).rstrip("/") or "/"


class BookieDir(ReportedVolume):
    """One ledger dir as its bookie reports it, which calls the path `dir`."""

    log_dir: Annotated[str, AfterValidator(normalize_path)] = Field(
        alias="dir", min_length=1, max_length=4096, description="Absolute path on the bookie."
    )


class BookieThresholds(BaseModel):
    """The used shares of a disk at which a bookie changes its behaviour, by its own configuration."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    read_only: Ratio | None = Field(default=None, description="It turns read-only (`diskUsageThreshold`).")
    major_compaction: Ratio | None = Field(default=None, description="It suspends major compaction.")
    minor_compaction: Ratio | None = Field(default=None, description="It suspends minor compaction, too.")


class BookieDisks(Reading):
    """All ledger dirs of one bookie, read in one poll."""

    event_type: ClassVar[str] = "headgate.bookie-disks.v1"

    bookie: str = Field(
        default="",
        max_length=255,
        description="Its id as registered; empty if the attempt failed before any bookie could be named.",
    )
    read_only: bool = Field(default=False, description="Whether it takes no new data now.")
    dirs: tuple[BookieDir, ...] = Field(
        default=(), max_length=MAX_DIRS, description="Empty unless the outcome is `ok`."
    )
    thresholds: BookieThresholds | None = Field(
        default=None, description="Null if the bookie's configuration could not be read."
    )

    def subject(self) -> str:
        """``<cluster>/<bookie>``."""
        return f"{self.cluster}/{self.bookie}" if self.bookie else self.cluster


# The reading of the publish actuator: what its limits let through.


class PublishState(Reading):
    """The publish limits of one cluster as the actuator found them, published when that changes and each minute."""

    event_type: ClassVar[str] = "headgate.publish-state.v1"

    let_through_bytes_per_second: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INT64,
        description="What producers may publish to the whole cluster: the limits of a broker together, times the "
        "brokers. Null: something is not limited, or limits are those of topics, whose number is not known.",
    )
    topics_bytes_per_second: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INT64,
        description="Where limits are those of topics: what one topic of each slowed namespace may publish, which is "
        "the least that the limits let through. Null: limits are those of brokers.",
    )


# Events of the publish actuator: its operations and refusals, in the audit topic.


class PublishApplication(LimitApplication):
    """A publish limit that was set, put back, refused or failed; or one that needs no change, when that is new."""

    event_type: ClassVar[str] = "headgate.publish-application.v1"
    source: ClassVar[str] = "headgate/actuator/publishing"
    actuator: ClassVar[str] = "the publish actuator"
    what: ClassVar[str] = "The publish limit of {target} on {cluster}"
    nothing: ClassVar[str] = "no limit"

    target: str = Field(description="`brokers`, or the namespace; empty: all of the cluster.")
    by: str = Field(description="`broker` or `namespace`.")

    def name_target(self) -> str:
        """Return the target."""
        return self.target

    def effect(self) -> ReportedEffect:
        """Return the limit that is set; decisions are about groups, so the report is about all of the cluster."""
        return self.describe_effect(subject=self.cluster)


# The next operation on one publish limit: the plan of a level, with the documents that Pulsar has of limits. Pure.

_REMEMBERED_RATES = 4


class FoundLimit(Struct, frozen=True):
    """A limit as it was found."""

    rate: Rate
    document: str | None
    """The limit as Pulsar has it, with which it is put back exactly; None: there is none."""


class PublishRecord(Struct, frozen=True):
    """The record of one limit. It is kept in a property of a namespace, on the watched cluster itself."""

    original: FoundLimit
    rates: tuple[int, ...] = ()
    """The rates that Headgate may have set, the latest first."""


@dataclass(frozen=True, slots=True)
class PublishPlan(LevelPlan):
    """The operation on one limit."""

    original: FoundLimit | None = None
    """The limit to put back."""

    @property
    def to_write(self) -> PublishRecord | None:
        """The record to write before a rate is set; None: it is to be deleted after the original limit is put back."""
        if self.record is None or not self.record.held or self.original is None:
            return None
        return PublishRecord(self.original, self.record.rates[:_REMEMBERED_RATES])

    @property
    def highest_rate(self) -> Rate:
        """The highest rate that may be in force while the operation is carried out; None if there may be no limit."""
        return None if self.rate is None or self.found is None else max(self.rate, self.found)


def plan_publish(
    wanted: WantedFactor, record: PublishRecord | None, found: FoundLimit, base: Rate, floor: int
) -> PublishPlan:
    """Return the next operation on one limit; without a record it is not one of ours."""
    original, known, recorded = found, None, None
    if record is not None:
        known = LevelRecord(held=True, baseline=record.original.rate, rates=record.rates)
        recorded = Original(record.original.rate, next(iter(record.rates), 0))
        original = record.original if found.rate in record.rates else found
    planned = plan_level(
        LevelSituation(wanted, known, found.rate, base, floor, recorded, is_removal_meant=True, needs_base=True)
    )
    return PublishPlan(planned.verdict, planned.reason, planned.rate, planned.found, planned.record, original)
