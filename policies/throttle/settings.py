"""Settings of the throttle policy: ``policies.throttle``, per cluster by name or glob."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from policies.settings import PolicySettings
from policies.throttle.limits import Limit
from policies.units import Duration, PositiveDuration, Ratio, parse_duration


class Preset(StrEnum):
    """Settings that reproduce another product."""

    STRIMZI = "strimzi"


class ExpiredAction(StrEnum):
    """What replaces a decision that expires without a successor."""

    HOLD = "hold"
    FALLBACK = "fallback"


_PRESETS: Mapping[str, Mapping[str, Any]] = {
    # The released plugin opens and closes at once, and uses its last complete reading only.
    Preset.STRIMZI.value: {
        "recovery_margin": 0.0,
        "min_hold": "0s",
        "min_change": 0.0,
        "departed_hold": "0s",
        "expired_action": ExpiredAction.FALLBACK.value,
    },
}


class ThrottleSettings(PolicySettings):
    """One throttle factor for a cluster whose disks fill up. Without a limit it is observed, never throttled."""

    preset: Preset | None = Field(
        default=None,
        description="`strimzi` reproduces the released kafka-quotas-plugin: no margins and holds, a volume unseen for "
        "`validity` is forgotten, an empty good reading means 1.0, the start is 1.0, an expired decision means the "
        "fallback.",
    )
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

    has_actuator: bool | None = Field(
        default=None,
        description="Whether an actuator carries the factor out, for the sentence of a decision. Default: whether "
        "`clusters.<name>.quotas` is set. Set it to true if a consumer of your own does.",
    )

    @classmethod
    def expand(cls, block: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a preset by its settings; settings of the block itself win over them."""
        preset = block.get("preset")
        return {**_PRESETS.get(preset, {}), **block} if isinstance(preset, str) else dict(block)

    @classmethod
    def overridden(cls, block: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the block's preset and its settings by the override's preset, which may be none."""
        if "preset" not in override:
            return {**block, **override}
        own = {name: value for name, value in block.items() if name != "preset"}
        return {**own, **cls.expand(override)}

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

    def choose_expired(self, factor: float) -> float:
        """Return the factor that replaces a decision with this factor once it has expired (rule 10)."""
        return min(factor, self.fallback) if self.expired_action is ExpiredAction.HOLD else self.fallback

    @property
    def forgets_unread(self) -> bool:
        """Whether a volume without a valid reading is forgotten, as the released plugin does."""
        return self.preset is Preset.STRIMZI

    @property
    def start_factor(self) -> float:
        """The factor before the first reading."""
        return 1.0 if self.preset is Preset.STRIMZI else self.fallback
