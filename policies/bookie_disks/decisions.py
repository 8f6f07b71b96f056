"""The factor of a placement group as it is decided: topic ``decided.bookie-disks``, keyed by cluster and group."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.free_space.gate import FactorVerdict
from policies.free_space.levels import FactorDecision
from policies.free_space.limits import LimitHit
from policies.units import ClosedEnum, Instant


class BookieThrottleReason(ClosedEnum):
    """The cause of the factor."""

    UNLIMITED = "unlimited", "No limit is set: observed, never throttled."
    ABOVE_LIMITS = "above_limits", "Enough bookies are above their limits."
    SOFT_LIMIT = "soft_limit", "A dir of the bookie that decides is between its soft and its hard limit."
    HARD_LIMIT = "hard_limit", "A dir of the bookie that decides is at or below its hard limit."
    READ_ONLY = "read_only", "The bookie that decides is read-only."
    RECOVERY_MARGIN = (
        "recovery_margin",
        "Publishing was stopped, and not enough bookies are above their hard limit by the margin yet.",
    )
    MIN_HOLD = "min_hold", "The factor changed less than `min_hold` ago."
    STALE_VOLUME = "stale_volume", "The bookie that decides, or one of its dirs, has not been read for `validity`."
    DEPARTED_VOLUME = (
        "departed_volume",
        "The bookie that decides no longer reports a dir that limited it; the dir counts for `departed_hold` more.",
    )
    NO_DATA = "no_data", "No bookie has ever been read: the fallback applies."
    TOO_FEW_BOOKIES = "too_few_bookies", "Fewer bookies are known than a ledger needs."
    INITIAL = "initial", "Not enough bookies have been read yet since the start."
    GROUP_ENDED = "group_ended", "No namespace is placed there any more: the last decision about the group."


FALLBACK_REASONS = frozenset(
    {BookieThrottleReason.STALE_VOLUME, BookieThrottleReason.NO_DATA, BookieThrottleReason.INITIAL}
)
"""The reasons of a factor that no valid reading decided."""


class LimitingDir(BaseModel):
    """The dir that decided, and the harder of the limits that it has reached."""

    model_config = ConfigDict(frozen=True)

    bookie: str
    dir: str = Field(description="Empty for a read-only bookie whose dirs are not known.")
    usable_bytes: int
    total_bytes: int
    limit: LimitHit = Field(description="`hard` or `soft`.")
    limit_kind: str = Field(description="`available_bytes_below` or `available_ratio_below`.")
    limit_value: float = Field(description="The limit as set: bytes, or a share of the dir's disk.")
    limit_bytes: int = Field(description="The limit in bytes of this disk.")
    read_at: Instant | None = Field(description="When its usable bytes were read; null if they never were.")


class BookieCounts(BaseModel):
    """The number of a group's bookies by state."""

    model_config = ConfigDict(frozen=True)

    counted: int = Field(description="With a valid reading.")
    stale: int = Field(description="Read before, but not for `validity`.")
    unread: int = Field(description="Registered, and never read.")
    read_only: int = Field(description="Of the first two, the read-only ones.")


class PlacedHere(BaseModel):
    """The namespaces that place their data on a group."""

    model_config = ConfigDict(frozen=True)

    count: int
    first: tuple[str, ...] = Field(max_length=10, description="The first ten, in order.")


class BookieThrottle(FactorDecision):
    """The share of their full rate that producers should publish to a placement group of bookies.

    The decision is a request. The actuator's events tell whether and when it was carried out.
    """

    event_type: ClassVar[str] = "headgate.bookie-throttle.v1"
    topic: ClassVar[str] = "decided.bookie-disks"
    in_force: ClassVar[tuple[str, ...]] = ("factor", "reason")

    verdict: FactorVerdict
    reason: BookieThrottleReason
    group: str = Field(
        description="The primary groups of its namespaces, joined by commas; `default` for all bookies (`*` where a "
        "group of bookies has that name)."
    )
    factor: float = Field(ge=0.0, le=1.0, description="The factor in force from now on.")
    previous_factor: float | None = Field(description="The factor before this decision; null for the first.")
    raw_factor: float = Field(ge=0.0, le=1.0, description="The factor of the bookie that decides, before holds.")
    ensemble: int = Field(description="The largest number of bookies that a ledger of these namespaces needs.")
    limiting: LimitingDir | None = Field(description="The dir that decided; null if none limits.")
    bookies: BookieCounts
    namespaces: PlacedHere
    seconds_to_full: float | None = Field(
        description="Time until the bookie that decides is full at its present rate; null if it is not known to fill."
    )
    valid_until: Instant | None = Field(
        description="Without a newer decision by then, consumers apply their fallback. Null in a group's last decision."
    )

    def wanted(self) -> str:
        """Return the factor of the group."""
        return f"factor {self.factor:.2f} for {self.group}"
