"""Readings of the bookie-disks policy: topic ``observed.bookie-disks``, keyed by cluster."""

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from policies.observations import Reading
from policies.units import MAX_INT64, Ratio

MAX_DIRS = 1000


def normalize_path(path: str) -> str:
    """Return a path without doubled slashes and without one at the end: these name the same dir."""
    return re.sub("/{2,}", "/", path).rstrip("/") or "/"


class BookieDir(BaseModel):
    """One ledger dir as its bookie reports it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    dir: Annotated[str, AfterValidator(normalize_path)] = Field(
        min_length=1, max_length=4096, description="Absolute path on the bookie."
    )
    total_bytes: int = Field(
        default=-1, ge=-1, le=MAX_INT64, description="Size of the file system it is on; -1 unknown."
    )
    usable_bytes: int = Field(default=-1, ge=-1, le=MAX_INT64, description="Free for the bookie; -1 unknown.")

    @property
    def log_dir(self) -> str:
        """The path, under the name that all kinds of volumes have."""
        return self.dir

    @property
    def readable(self) -> bool:
        """Whether its free space is known. An unreadable dir is neither full nor empty."""
        return 0 <= self.usable_bytes <= self.total_bytes


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
