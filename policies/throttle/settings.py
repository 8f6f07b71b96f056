"""Settings of the throttle policy: ``policies.throttle``, per cluster by name or glob."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from policies.free_space.limits import ExpiredAction, FreeSpaceSettings
from policies.settings import PolicySettings


class Preset(StrEnum):
    """Settings that reproduce another product."""

    STRIMZI = "strimzi"


_PRESETS: Mapping[str, Mapping[str, Any]] = {
    # The released plugin opens and closes at once, and uses its last complete reading only.
    Preset.STRIMZI.value: {
        "anticipate": False,
        "recovery_margin": 0.0,
        "min_hold": "0s",
        "min_change": 0.0,
        "departed_hold": "0s",
        "expired_action": ExpiredAction.FALLBACK.value,
    }
}


class _Presets(PolicySettings):
    """The setting `preset`.

    The fingerprint of settings depends on the order of their fields. As a second base, this one keeps its place in it.
    """

    preset: Preset | None = Field(
        default=None,
        description="`strimzi` reproduces the released kafka-quotas-plugin: no margins and holds, a volume unseen for "
        "`validity` is forgotten, an empty good reading means 1.0, the start is 1.0, an expired decision means the "
        "fallback.",
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


class ThrottleSettings(FreeSpaceSettings, _Presets):
    """One throttle factor for a cluster whose disks fill up. Without a limit it is observed, never throttled."""

    has_actuator: bool | None = Field(
        default=None,
        description="Whether an actuator carries the factor out, for the sentence of a decision. Default: whether "
        "`clusters.<name>.quotas` is set. Set it to true if a consumer of your own does.",
    )

    @property
    def forgets_unread(self) -> bool:
        """Whether a volume without a valid reading is forgotten, as the released plugin does."""
        return self.preset is Preset.STRIMZI

    @property
    def start_factor(self) -> float:
        """The factor before the first reading."""
        return 1.0 if self.preset is Preset.STRIMZI else self.fallback
