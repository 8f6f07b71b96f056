"""How much one volume lets producers write: a hard and a soft limit on its free space.

A limit is either a number of bytes or a share of the volume; the two may be of different kinds, and are compared in
bytes of the volume at hand. Source: the Strimzi proposal "cluster-wide volume usage quota management".
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.throttle.decisions import LimitHit
from policies.units import Ratio, Size


class Limit(BaseModel):
    """A limit on free space: exactly one of a number of bytes and a share of the volume."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    available_bytes_below: Size | None = Field(
        default=None, description="Reached when so many bytes or fewer are free."
    )
    available_ratio_below: Ratio | None = Field(
        default=None, description="Reached when so large a share of the volume or less is free."
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

    def in_bytes(self, total_bytes: int) -> float:
        """This limit on a volume of `total_bytes`."""
        if self.available_bytes_below is not None:
            return float(self.available_bytes_below)
        return self.value * total_bytes

    def reached(self, usable_bytes: int, total_bytes: int, *, margin: float = 0.0) -> bool:
        """Whether so little is free (the limit itself counts); with a margin, whether it is not yet clear of it."""
        if self.available_bytes_below is not None:
            return usable_bytes <= self.available_bytes_below * (1 + margin)
        ratio = usable_bytes / total_bytes if total_bytes else 0.0
        return ratio <= self.value * (1 + margin)

    def crosses(self, hard: "Limit", total_bytes: int) -> bool:
        """Whether this soft limit is not above the hard one on a volume of `total_bytes`."""
        return self.in_bytes(total_bytes) <= hard.in_bytes(total_bytes)

    def lies_above(self, other: "Limit") -> bool | None:
        """Whether this limit is reached before the other on every volume; None where that depends on the volume."""
        return self.value > other.value if self.kind == other.kind else None


_NOTHING_FREE = Limit(available_bytes_below=0)


class VolumeAssessment(NamedTuple):
    """What one volume's reading means."""

    hit: LimitHit
    factor: float


def assess(usable_bytes: int, total_bytes: int, hard: Limit | None, soft: Limit | None) -> VolumeAssessment:
    """Rules 1 to 3: the factor of a volume with `usable_bytes` of `total_bytes` free, in [0, 1].

    0.0 at the hard limit, 1.0 above the soft one, and in between as far as the free space is from the hard limit to
    the soft one, both in bytes of this volume.
    """
    if hard is not None and hard.reached(usable_bytes, total_bytes):
        return VolumeAssessment(LimitHit.HARD, 0.0)
    if soft is None or not soft.reached(usable_bytes, total_bytes):
        return VolumeAssessment(LimitHit.NONE, 1.0)
    floor = hard or _NOTHING_FREE
    if soft.crosses(floor, total_bytes):
        return VolumeAssessment(LimitHit.SOFT, 1.0)  # the soft one slows nobody down here
    hard_bytes = floor.in_bytes(total_bytes)
    share = (usable_bytes - hard_bytes) / (soft.in_bytes(total_bytes) - hard_bytes)
    return VolumeAssessment(LimitHit.SOFT, min(max(share, 0.0), 1.0))


def as_settings(limit: Limit | None) -> dict[str, Any] | None:
    """The limit as the settings file has it, for the audit."""
    return None if limit is None else limit.model_dump(exclude_none=True)
