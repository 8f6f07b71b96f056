"""The factor that one volume allows: a hard and a soft limit on its free space.

A limit is either a number of bytes or a share of the volume. The two may be of different kinds; they are compared in
bytes of the volume. Source: the Strimzi proposal "cluster-wide volume usage quota management".
"""

from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.free_space.trend import WINDOW_MS
from policies.settings import PolicySettings
from policies.units import ClosedEnum, Duration, PositiveDuration, Ratio, Size, parse_duration


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
        has_ratio = self.available_bytes_below is None
        return (self.available_ratio_below if has_ratio else self.available_bytes_below) or 0.0

    def in_bytes(self, total_bytes: int) -> float:
        """Return this limit on a volume of this size."""
        return self.value if self.available_bytes_below is not None else self.value * total_bytes

    def reached(self, usable_bytes: int, total_bytes: int, *, margin: float = 0.0) -> bool:
        """Return whether the free space is at or below this limit, raised by a margin."""
        if self.available_bytes_below is not None:
            return usable_bytes <= self.available_bytes_below * (1 + margin)
        ratio = usable_bytes / total_bytes if total_bytes else 0.0
        return ratio <= self.value * (1 + margin)


def assess(usable_bytes: int, total_bytes: int, hard: Limit | None, soft: Limit | None) -> tuple[LimitHit, float]:
    """Apply rules 1 to 3 to a volume: return the limit that it has reached, and the factor in [0, 1] that it allows."""
    if hard is not None and hard.reached(usable_bytes, total_bytes):
        return LimitHit.HARD, 0.0
    if soft is None or not soft.reached(usable_bytes, total_bytes):
        return LimitHit.NONE, 1.0
    soft_bytes, hard_bytes = soft.in_bytes(total_bytes), hard.in_bytes(total_bytes) if hard is not None else 0.0
    if soft_bytes <= hard_bytes:
        return LimitHit.SOFT, 1.0  # The soft limit is not above the hard one on this volume.
    share = (usable_bytes - hard_bytes) / (soft_bytes - hard_bytes)
    return LimitHit.SOFT, min(max(share, 0.0), 1.0)


def as_settings(limit: Limit | None) -> dict[str, Any] | None:
    """Write the limit as in the settings file, for the audit topic."""
    return None if limit is None else limit.model_dump(exclude_none=True)


# The settings of a policy that slows writers down while volumes fill up.


class ExpiredAction(StrEnum):
    """What replaces a decision that expires without a successor."""

    HOLD = "hold"
    FALLBACK = "fallback"


class FreeSpaceSettings(PolicySettings):
    """Limits on free space, and how a factor follows them."""

    ranks_by_share: ClassVar[bool] = False
    """Whether the tightest of volumes with equal factors is the one with the least share free, not the fewest bytes."""

    hard: Limit | None = Field(default=None, description="At this limit producers should stop (factor 0.0).")
    soft: Limit | None = Field(default=None, description="From this limit on producers should slow down; above `hard`.")
    fallback_factor: Ratio = Field(default=1.0, description="The factor if the readings are too old.")
    validity: PositiveDuration = Field(default=parse_duration("5m"), description="How long a reading counts.")
    recovery_margin: float = Field(
        default=0.1,
        ge=0.0,
        le=10.0,
        description="A stopped cluster opens again when every volume that stopped it has more than hard * (1 + this) "
        "free.",
    )
    min_hold: Duration = Field(
        default=parse_duration("30s"),
        description="A factor that changed is not raised again sooner; lowering is never delayed.",
    )
    min_change: Ratio = Field(
        default=0.05, description="A smaller change is not published, unless it reaches 0.0 or 1.0."
    )
    departed_hold: Duration = Field(
        default=parse_duration("1h"),
        description="A volume counts this much longer if it limited while its server left or ceased to report it.",
    )
    heartbeat: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="The decision is repeated at least this often, and each 8h; it is valid for three times as long.",
    )
    expired_action: ExpiredAction = Field(
        default=ExpiredAction.HOLD,
        description="What applies if a decision expires because the loop is dead. `hold`: the lesser of its factor and "
        "`fallback_factor`, so a dead loop opens no gate. `fallback`: `fallback_factor`, as with the released plugin.",
    )
    time_to_full_alert: Duration = Field(
        default=parse_duration("30m"), description="Warn if a volume, at its present rate, is full sooner."
    )

    anticipate: bool = Field(
        default=True,
        description="A volume that fills with a confident trend is judged by its free space after the dead time: the "
        "time until the next reading, 1 s, and `stop_time`. `false`: by the free space that it has.",
    )
    stop_time: Duration | None = Field(
        default=None,
        description="The time in which producers at their full rate write as much as they do until a stop has its "
        "effect, as quotas go down in steps. Default: from the cluster's actuator; 0 s without one; without a watched "
        "cluster of that name (as in a replay with `policies` alone) nothing is anticipated.",
    )
    has_actuator: bool | None = Field(
        default=None,
        description="Whether an actuator carries the factor out, for the sentence of a decision. Default: whether the "
        "cluster has the setting that makes one (`quotas`, `publish`). Set it to true if a consumer of your own does.",
    )

    @model_validator(mode="after")
    def _soft_above_hard(self) -> Self:
        # Which of two limits of different kinds is reached first depends on the volume.
        if self.soft and self.hard and self.soft.kind == self.hard.kind and self.soft.value <= self.hard.value:
            raise ValueError(
                f"soft.{self.soft.kind} ({self.soft.value}) must lie above hard.{self.hard.kind} "
                f"({self.hard.value}): producers are slowed before they are stopped"
            )
        return self

    @property
    def limited(self) -> bool:
        """Whether any limit is set."""
        return self.hard is not None or self.soft is not None

    @property
    def fallback(self) -> float:
        """The fallback factor in force: without a limit a cluster is observed, never throttled."""
        return self.fallback_factor if self.limited else 1.0

    @property
    def forgets_unread(self) -> bool:
        """Whether a volume without a valid reading is forgotten, as the released plugin does."""
        return False

    @property
    def history(self) -> timedelta:
        """The age of the oldest reading that still counts in any cluster: by its validity, or in a trend."""
        return max(timedelta(milliseconds=WINDOW_MS), *(settings.validity for settings in self.everywhere()))

    def choose_expired(self, factor: float) -> float:
        """Return the factor that replaces a decision with this factor once it has expired (rule 10)."""
        return min(factor, self.fallback) if self.expired_action is ExpiredAction.HOLD else self.fallback
