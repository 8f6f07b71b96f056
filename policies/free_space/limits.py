"""The factor that one volume allows: a hard and a soft limit on its free space.

A limit is either a number of bytes or a share of the volume. The two may be of different kinds; they are compared in
bytes of the volume. Source: the Strimzi proposal "cluster-wide volume usage quota management".
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.closed_enum import ClosedEnum
from policies.units import Ratio, Size


class LimitHit(ClosedEnum):
    """The limit that a volume has reached."""

    NONE = "none", "Neither limit is reached."
    SOFT = "soft", "The soft limit."
    HARD = "hard", "The hard limit."


class Limit(BaseModel):
    """A limit on free space: exactly one of a number of bytes and a share of the volume."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    available_bytes_below: Size | None = Field(
        default=None, description="Reached when this many bytes or fewer are free."
    )
    available_ratio_below: Ratio | None = Field(
        default=None, description="Reached when this share of the volume or less is free."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "Limit":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "neither"
            raise ValueError(f"needs exactly one of available_bytes_below and available_ratio_below, has {has}")
        return self

    @property
    def kind(self) -> str:
        """The name of the field that is set."""
        return "available_bytes_below" if self.available_bytes_below is not None else "available_ratio_below"

    @property
    def value(self) -> float:
        """The value of the field that is set: bytes, or a share."""
        return (
            self.available_bytes_below if self.available_bytes_below is not None else self.available_ratio_below or 0.0
        )

    def in_bytes(self, total_bytes: int, *, margin: float = 0.0) -> float:
        """Return this limit, raised by a margin, on a volume of this size."""
        if self.available_bytes_below is not None:
            return float(self.available_bytes_below) * (1 + margin)
        return self.value * total_bytes * (1 + margin)

    def reached(self, usable_bytes: int, total_bytes: int, *, margin: float = 0.0) -> bool:
        """Return whether the free space is at or below this limit, raised by a margin."""
        if self.available_bytes_below is not None:
            return usable_bytes <= self.available_bytes_below * (1 + margin)
        ratio = usable_bytes / total_bytes if total_bytes else 0.0
        return ratio <= self.value * (1 + margin)

    def crosses(self, hard: "Limit", total_bytes: int) -> bool:
        """Return whether this soft limit is not above the hard one on a volume of this size."""
        return self.in_bytes(total_bytes) <= hard.in_bytes(total_bytes)

    def lies_above(self, other: "Limit") -> bool | None:
        """Return whether every volume reaches this limit before the other; None if that depends on the volume."""
        return self.value > other.value if self.kind == other.kind else None


_NOTHING_FREE = Limit(available_bytes_below=0)


class FactorLine(NamedTuple):
    """Rule 3 for volumes of one size: the factor rises evenly from 0.0 at the hard limit to 1.0 at the soft one."""

    hard_bytes: float
    soft_bytes: float
    """At least `hard_bytes`."""

    def factor(self, usable_bytes: int) -> float:
        """Return the factor of a volume with this much free space; the two limits must differ."""
        share = (usable_bytes - self.hard_bytes) / (self.soft_bytes - self.hard_bytes)
        return min(max(share, 0.0), 1.0)

    def usable_bytes(self, factor: float) -> float:
        """Return the free space at which a volume has this factor."""
        return self.hard_bytes + min(max(factor, 0.0), 1.0) * (self.soft_bytes - self.hard_bytes)


def factor_line(total_bytes: int, hard: Limit | None, soft: Limit | None) -> FactorLine:
    """Return the line for a volume of this size. Without a hard limit it begins at 0 bytes."""
    hard_bytes = (hard or _NOTHING_FREE).in_bytes(total_bytes)
    return FactorLine(hard_bytes, max(hard_bytes, soft.in_bytes(total_bytes)) if soft else hard_bytes)


class VolumeAssessment(NamedTuple):
    """The limit that a volume has reached, and the factor that it allows."""

    hit: LimitHit
    factor: float


def assess(usable_bytes: int, total_bytes: int, hard: Limit | None, soft: Limit | None) -> VolumeAssessment:
    """Apply rules 1 to 3 to a volume; the factor is in [0, 1]."""
    if hard is not None and hard.reached(usable_bytes, total_bytes):
        return VolumeAssessment(LimitHit.HARD, 0.0)
    if soft is None or not soft.reached(usable_bytes, total_bytes):
        return VolumeAssessment(LimitHit.NONE, 1.0)
    line = factor_line(total_bytes, hard, soft)
    if line.soft_bytes == line.hard_bytes:
        return VolumeAssessment(LimitHit.SOFT, 1.0)  # The soft limit is not above the hard one on this volume.
    return VolumeAssessment(LimitHit.SOFT, line.factor(usable_bytes))


def as_settings(limit: Limit | None) -> dict[str, Any] | None:
    """Write the limit as in the settings file, for the audit topic."""
    return None if limit is None else limit.model_dump(exclude_none=True)
