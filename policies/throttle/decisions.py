"""The throttle factor as it is decided: topic ``decided.throttle``, keyed by cluster."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.free_space.gate import FactorVerdict
from policies.free_space.levels import FactorDecision
from policies.free_space.limits import LimitHit
from policies.throttle.readings import VolumeUsage
from policies.units import ClosedEnum, Instant


class ThrottleReason(ClosedEnum):
    """The cause of the factor."""

    UNLIMITED = "unlimited", "No limit is set: observed, never throttled."
    ABOVE_LIMITS = "above_limits", "All volumes that count are above their limits."
    SOFT_LIMIT = "soft_limit", "A volume is between its soft and its hard limit."
    HARD_LIMIT = "hard_limit", "A volume is at or below its hard limit."
    RECOVERY_MARGIN = (
        "recovery_margin",
        "A volume that stopped the cluster is not above its hard limit by the margin yet.",
    )
    MIN_HOLD = "min_hold", "The factor changed less than `min_hold` ago."
    STALE_VOLUME = "stale_volume", "A volume of a member broker has not been read for `validity`, or never."
    NO_DATA = "no_data", "No volume counts: the fallback applies."
    DEPARTED_VOLUME = (
        "departed_volume",
        "A volume that limited the cluster left it, and counts for `departed_hold` more.",
    )
    INITIAL = "initial", "Nothing has been read yet."


FALLBACK_REASONS = frozenset({ThrottleReason.STALE_VOLUME, ThrottleReason.NO_DATA, ThrottleReason.INITIAL})
"""The reasons of a factor that is the fallback, because no valid reading decided it."""


class LimitingVolume(BaseModel):
    """The volume that decided, and the harder of the limits that it has reached."""

    model_config = ConfigDict(frozen=True)

    broker: int
    log_dir: str = Field(description="Empty if the broker was never read: its log dirs are not known.")
    usable_bytes: int = Field(description="-1 if it was never readable.")
    total_bytes: int = Field(description="-1 if it was never readable.")
    limit: LimitHit = Field(description="`hard` or `soft`.")
    limit_kind: str = Field(description="`available_bytes_below` or `available_ratio_below`.")
    limit_value: float = Field(description="The limit as set: bytes, or a share of the volume.")
    limit_bytes: int = Field(description="The limit in bytes of this volume.")
    read_at: Instant | None = Field(description="When its usable bytes were read; null if never.")
    cordoned: bool = Field(default=False, description="Its broker places no new partitions on it.")


class FreshnessCounts(BaseModel):
    """The number of volumes or brokers by freshness."""

    model_config = ConfigDict(frozen=True)

    counted: int = Field(description="With a valid reading.")
    stale: int = Field(description="Members without a valid reading.")
    departed: int = Field(description="Gone, but still counted because they limited the cluster.")


class VolumeCounts(FreshnessCounts):
    """The number of volumes by freshness."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    never_read: int = Field(
        default=0, description="Never readable, for `validity` and longer; a member that was never read counts as one."
    )


class SoonestFull(BaseModel):
    """The volume that is full first at its present rate, if its trend is reliable."""

    model_config = ConfigDict(frozen=True)

    broker: int
    log_dir: str
    seconds: float = Field(description="From `decided_at` until nothing is free.")
    confidence: float = Field(
        description="From 0 to 1: how well its readings agree, and how far they are extrapolated. Below one half, "
        "there is no estimate."
    )


class FilledBy(VolumeUsage):
    """What fills the volume that decided, or else the one that is full first."""

    broker: int
    read_at: Instant = Field(description="When the replica sizes were read.")


class ThrottleFactor(FactorDecision):
    """The share of their base rate that the producers of one cluster should write; at 0.0 only the floor is left.

    The decision is a request. The actuator's events tell whether and when it was carried out.
    """

    event_type: ClassVar[str] = "headgate.throttle-factor.v1"
    topic: ClassVar[str] = "decided.throttle"
    in_force: ClassVar[tuple[str, ...]] = ("factor", "reason")

    verdict: FactorVerdict
    reason: ThrottleReason
    factor: float = Field(ge=0.0, le=1.0, description="The factor in force from now on.")
    previous_factor: float | None = Field(description="The factor before this decision; null for the first.")
    raw_factor: float = Field(ge=0.0, le=1.0, description="The least factor of all volumes that count, before holds.")
    limiting: LimitingVolume | None = Field(description="The volume that decided; null if none limits.")
    volumes: VolumeCounts
    brokers: FreshnessCounts
    seconds_to_full: float | None = Field(
        description="Time until the first volume is full at its present rate; null if none is known to fill."
    )
    soonest_full: SoonestFull | None = Field(default=None, description="That volume, and how certain the estimate is.")
    filled_by: FilledBy | None = Field(
        default=None,
        description="The topics that fill the volume that decided; null if none did, or its replica sizes are unknown.",
    )
    cluster_id: str | None = Field(
        default=None, description="Kafka's id of the cluster that it is about; null if it is not known."
    )
    valid_until: Instant = Field(
        description="Without a newer decision by then, consumers apply the lesser of its factor and their fallback."
    )

    def runbook_values(self) -> Mapping[str, str]:
        """Name the largest topic on the volume that decided, whose retention frees most; not one of Kafka's own."""
        topics = () if self.filled_by is None else self.filled_by.topics
        named = sorted((each.size_bytes, each.topic) for each in topics if not each.topic.startswith("__"))
        return {"topic": named[-1][1]} if named else {}

    def wanted(self) -> str:
        """Return the factor."""
        return f"factor {self.factor:.2f}"
