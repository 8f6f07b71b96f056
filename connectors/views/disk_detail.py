"""A disk on the status page, with its limits, for each policy that watches free space."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from policies.free_space.limits import Limit


class DiskDetail(BaseModel):
    """A disk as last read."""

    model_config = ConfigDict(frozen=True)

    usable_bytes: float = Field(description="Bytes that its server can still use.")
    total_bytes: float
    used_ratio: float = Field(description="From 0 to 1.")
    soft_ratio: float | None = Field(description="The used ratio from which producers are slowed; null: no limit.")
    hard_ratio: float | None = Field(description="The used ratio from which they are stopped; null: no limit.")
    seconds_to_full: float | None = Field(description="At its present rate; null: unknown, or it is not filling.")

    @classmethod
    def measure(
        cls,
        usable: float,
        total: float,
        soft: Limit | None,
        hard: Limit | None,
        seconds_to_full: float | None,
        **own: object,
    ) -> Self:
        """Make the section of a disk from its bytes and limits; `own` are the fields of a subclass."""
        measured = {
            "usable_bytes": usable,
            "total_bytes": total,
            "used_ratio": _used_ratio(usable, total),
            "soft_ratio": _limit_ratio(soft, total),
            "hard_ratio": _limit_ratio(hard, total),
            "seconds_to_full": seconds_to_full,
        }
        return cls.model_validate(measured | own)


def _limit_ratio(limit: Limit | None, total_bytes: float) -> float | None:
    return None if limit is None else _used_ratio(limit.in_bytes(round(total_bytes)), total_bytes)


def _used_ratio(free: float, total: float) -> float:
    return min(1.0, max(0.0, 1 - free / total)) if total > 0 else 0.0
