"""The settings of a policy that slows writers down while volumes fill up."""

from datetime import timedelta
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from policies.free_space.limits import Limit
from policies.free_space.trend import WINDOW_MS
from policies.settings import PolicySettings
from policies.units import Duration, PositiveDuration, Ratio, parse_duration


class ExpiredAction(StrEnum):
    """What replaces a decision that expires without a successor."""

    HOLD = "hold"
    FALLBACK = "fallback"


class FreeSpaceSettings(PolicySettings):
    """Limits on free space, and how a factor follows them."""

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
        description="Volumes of a broker that left the cluster while they limited it count this much longer.",
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
        "effect. Default: from the cluster's actuator; 0 s without one; without a watched cluster of that name (as in "
        "a replay with `policies` alone) nothing is anticipated.",
    )

    @model_validator(mode="after")
    def _soft_above_hard(self) -> Self:
        if self.soft and self.hard and self.soft.lies_above(self.hard) is False:
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
    def history(self) -> timedelta:
        """The age of the oldest reading that still counts in any cluster: by its validity, or in a trend."""
        return max(timedelta(milliseconds=WINDOW_MS), *(settings.validity for settings in self.everywhere()))

    def choose_expired(self, factor: float) -> float:
        """Return the factor that replaces a decision with this factor once it has expired (rule 10)."""
        return min(factor, self.fallback) if self.expired_action is ExpiredAction.HOLD else self.fallback
