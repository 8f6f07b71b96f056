"""The throttle policy's settings for the canary: decide on each reading, in shadow mode, and never alert."""

from collections.abc import Mapping
from typing import Any

from policies.canary import CANARY
from policies.settings import PolicySettings
from policies.throttle.policy import NAME

_BLOCK: dict[str, Any] = {
    "mode": "shadow",
    "preset": None,
    "hard": None,
    "soft": {"available_ratio_below": 1.0},
    "fallback_factor": 1.0,
    "validity": "5m",
    "recovery_margin": 0.0,
    "min_hold": "0s",
    "min_change": 0.0,
    "departed_hold": "0s",
    "heartbeat": "1d",
    "expired_action": "hold",
    "time_to_full_alert": "0s",
    "has_actuator": False,
    "alert_grace": "36500d",
    "alert_repeat": "1d",
}
"""With a soft limit of the whole volume, the factor is the free fraction, so each reading has another decision."""


def with_canary(blocks: Mapping[str, PolicySettings]) -> dict[str, PolicySettings]:
    """Return all policies' blocks by name with the canary's settings, which nothing overrides."""
    return {**blocks, NAME: blocks[NAME].with_override(CANARY, _BLOCK)}
