"""The throttle factor as it is decided: topic ``decided.throttle``, keyed by cluster."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.decisions import Decision
from policies.units import Instant


class ThrottleVerdict(ClosedEnum):
    """What becomes of the factor."""

    INITIAL = "initial", "Before the first reading: the starting factor."
    LOWER = "lower", "The factor goes down, at once."
    RAISE = "raise", "The factor goes up."
    HOLD = "hold", "It would go up, but must wait: `reason` says for what."
    NO_CHANGE = (
        "no_change",
        "It stays; the decision is repeated as a heartbeat, or another reason now stands behind it.",
    )


class ThrottleReason(ClosedEnum):
    """What decided the factor."""

    UNLIMITED = "unlimited", "No limit is set: observed, never throttled."
    ABOVE_LIMITS = "above_limits", "All volumes that count have more free than their limits."
    SOFT_LIMIT = "soft_limit", "A volume is between its soft and its hard limit."
    HARD_LIMIT = "hard_limit", "A volume is at or below its hard limit."
    RECOVERY_MARGIN = (
        "recovery_margin",
        "A volume that stopped the cluster is not clear of its hard limit by the margin yet.",
    )
    MIN_HOLD = "min_hold", "The factor changed less than `min_hold` ago."
    STALE_VOLUME = "stale_volume", "A volume of a member broker has not been read for `validity`."
    NO_DATA = "no_data", "No volume counts: the fallback applies."
    DEPARTED_VOLUME = (
        "departed_volume",
        "A volume that limited the cluster left it, and goes on counting for `departed_hold`.",
    )
    INITIAL = "initial", "Nothing has been read yet."


FALLBACK_REASONS = frozenset({ThrottleReason.STALE_VOLUME, ThrottleReason.NO_DATA, ThrottleReason.INITIAL})
"""The reasons for which a factor rests on the fallback, not on a valid reading."""


class LimitHit(ClosedEnum):
    """Which of its limits a volume has reached."""

    NONE = "none", "Neither limit is reached."
    SOFT = "soft", "The soft limit."
    HARD = "hard", "The hard limit."


class LimitingVolume(BaseModel):
    """The volume that decided, and the limit it has reached (the harder one it is measured against)."""

    model_config = ConfigDict(frozen=True)

    broker: int
    log_dir: str
    usable_bytes: int
    total_bytes: int
    limit: LimitHit = Field(description="`hard` or `soft`.")
    limit_kind: str = Field(description="`available_bytes_below` or `available_ratio_below`.")
    limit_value: float = Field(description="As set: bytes, or a share of the volume.")
    limit_bytes: int = Field(description="The limit in bytes of this volume.")
    read_at: Instant = Field(description="When its usable bytes were read.")


class FreshnessCounts(BaseModel):
    """How many volumes or brokers count as what."""

    model_config = ConfigDict(frozen=True)

    counted: int = Field(description="With a valid reading.")
    stale: int = Field(description="Members without a valid reading.")
    departed: int = Field(description="Gone, but still counting because they limited the cluster.")


class SoonestFull(BaseModel):
    """The volume that is full first at its present rate, where its trend is to be believed."""

    model_config = ConfigDict(frozen=True)

    broker: int
    log_dir: str
    seconds: float = Field(description="From `decided_at` until nothing is free.")
    confidence: float = Field(
        description="From 0 to 1: how well its readings agree, and how far they are drawn out. Where it is lower than "
        "one half, nothing is said."
    )


class ThrottleFactor(Decision):
    """How much the producers of one cluster should write: all of their base rate at 1.0, nothing but the floor at 0.0.

    What is wanted: whether it was carried out, by whom and when, the actuator's events say.
    """

    event_type: ClassVar[str] = "headgate.throttle-factor.v1"
    topic: ClassVar[str] = "decided.throttle"
    in_force: ClassVar[tuple[str, ...]] = ("factor", "reason")

    verdict: ThrottleVerdict
    reason: ThrottleReason
    factor: float = Field(ge=0.0, le=1.0, description="The factor in force from now on.")
    previous_factor: float | None = Field(description="The factor before this decision; null for the first.")
    raw_factor: float = Field(ge=0.0, le=1.0, description="The least factor of all volumes that count, before holds.")
    limiting: LimitingVolume | None = Field(description="The volume that decided; null when none limits.")
    volumes: FreshnessCounts
    brokers: FreshnessCounts
    seconds_to_full: float | None = Field(
        description="Of the volume soonest full at its present rate; null when none is filling, as far as can be told."
    )
    soonest_full: SoonestFull | None = Field(default=None, description="Which volume that is, and how sure it is.")
    valid_until: Instant = Field(description="Without a newer decision by then, consumers apply their fallback.")
