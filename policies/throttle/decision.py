"""The throttle factor as it is decided: topic ``decided.throttle``, keyed by cluster, and its one sentence."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from policies.closed_enum import ClosedEnum
from policies.decisions import Decision
from policies.throttle.fleet import KnownVolume, Standing
from policies.throttle.gate import Verdict
from policies.throttle.limits import Hit
from policies.throttle.settings import ThrottleSettings
from policies.units import Instant, format_duration, from_millis, human_bytes, human_seconds


class Reason(ClosedEnum):
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


_FAR_SECONDS = 172_800.0
"""A volume that is full in more than two days is not worth half a sentence."""

FALLBACK_REASONS = frozenset({Reason.STALE_VOLUME, Reason.NO_DATA, Reason.INITIAL})
"""The reasons for which a factor rests on the fallback, not on a valid reading."""


class Limiting(BaseModel):
    """The volume that decided, and the limit it has reached (the harder one it is measured against)."""

    model_config = ConfigDict(frozen=True)

    broker: int
    log_dir: str
    usable_bytes: int
    total_bytes: int
    limit: Hit = Field(description="`hard` or `soft`.")
    limit_kind: str = Field(description="`available_bytes_below` or `available_ratio_below`.")
    limit_value: float = Field(description="As set: bytes, or a share of the volume.")
    limit_bytes: int = Field(description="The limit in bytes of this volume.")
    read_at: Instant = Field(description="When its usable bytes were read.")


class Counts(BaseModel):
    """How many stand how."""

    model_config = ConfigDict(frozen=True)

    counted: int = Field(description="With a valid reading.")
    stale: int = Field(description="Members without a valid reading.")
    departed: int = Field(description="Gone, but still counting because they limited the cluster.")


class ThrottleFactor(Decision):
    """How much the producers of one cluster may write: all of their base rate at 1.0, nothing but the floor at 0.0."""

    event_type: ClassVar[str] = "headgate.throttle-factor.v1"
    topic: ClassVar[str] = "decided.throttle"
    in_force: ClassVar[tuple[str, ...]] = ("factor", "reason")

    verdict: Verdict
    reason: Reason
    factor: float = Field(ge=0.0, le=1.0, description="The factor in force from now on.")
    previous_factor: float | None = Field(description="The factor before this decision; null for the first.")
    raw_factor: float = Field(ge=0.0, le=1.0, description="The least factor of all volumes that count, before holds.")
    limiting: Limiting | None = Field(description="The volume that decided; null when none holds producers back.")
    volumes: Counts
    brokers: Counts
    seconds_to_full: float | None = Field(
        description="Of the volume soonest full at its present rate; null when none is filling."
    )
    valid_until: Instant = Field(description="Without a newer decision by then, consumers apply their fallback.")


def limiting_of(known: KnownVolume, settings: ThrottleSettings) -> Limiting | None:
    """The limiting volume as published; null when no limit is set."""
    hit = Hit.HARD if known.assessment.hit is Hit.HARD or settings.soft is None else Hit.SOFT
    limit = settings.hard if hit is Hit.HARD else settings.soft
    if limit is None:
        return None
    volume = known.volume
    return Limiting(
        broker=known.broker.broker,
        log_dir=volume.log_dir,
        usable_bytes=volume.usable_bytes,
        total_bytes=volume.total_bytes,
        limit=hit,
        limit_kind=limit.kind,
        limit_value=limit.value,
        limit_bytes=round(limit.in_bytes(volume.total_bytes)),
        read_at=from_millis(volume.read_ms),
    )


def explain(decision: ThrottleFactor, about: KnownVolume | None, settings: ThrottleSettings) -> str:
    """One plain sentence from the values that decided.

    Args:
        decision: the decision it is for.
        about: the volume that decided, or the fullest one when none did.
        settings: those in force.
    """
    why = _why(decision, about, settings)
    named = decision.limiting is not None or decision.reason in (Reason.UNLIMITED, Reason.ABOVE_LIMITS)
    if named and about is not None and about.seconds_to_full is not None and about.seconds_to_full < _FAR_SECONDS:
        why += f"; full in {human_seconds(about.seconds_to_full)} at the present rate"
    return f"Producers of {decision.cluster} {_state(decision.factor)}: {why}."


def _state(factor: float) -> str:
    if factor == 0.0:
        return "are stopped"
    return "write freely" if factor == 1.0 else f"are slowed to {factor:.2f}"


def _why(decision: ThrottleFactor, about: KnownVolume | None, settings: ThrottleSettings) -> str:
    match decision.reason:
        case Reason.INITIAL:
            return f"no volume has been read yet, so the starting factor {decision.factor:.2f} applies"
        case Reason.NO_DATA:
            return f"no volume is known, so the fallback factor {settings.fallback:.2f} applies"
        case Reason.MIN_HOLD:
            held = format_duration(settings.min_hold)
            return f"volumes would allow {decision.raw_factor:.2f}, but a factor that changed is held for {held}"
        case Reason.UNLIMITED:
            return f"no limit is set; {_fullest_of(decision, about)}"
        case Reason.ABOVE_LIMITS:
            return f"no volume has reached a limit; {_fullest_of(decision, about)}"
    if about is None or (decision.limiting is None and decision.factor == 1.0):
        return f"no volume has a valid reading; what is known allows {decision.raw_factor:.2f}"
    return _about(decision, about, settings)


def _fullest_of(decision: ThrottleFactor, about: KnownVolume | None) -> str:
    if about is None:
        return "there is none to read"
    count = decision.volumes.counted
    return f"the fullest of {count}, {_free(about)}" if count > 1 else _free(about)


def _free(known: KnownVolume) -> str:
    volume = known.volume
    free, total = human_bytes(volume.usable_bytes), human_bytes(volume.total_bytes)
    return f"broker {known.broker.broker} {volume.log_dir} has {free} free of {total}"


def _about(decision: ThrottleFactor, decisive: KnownVolume, settings: ThrottleSettings) -> str:
    volume, total = decisive.volume, decisive.volume.total_bytes
    place, free = f"broker {decisive.broker.broker} {volume.log_dir}", _free(decisive)
    hard = human_bytes(settings.hard.in_bytes(total)) if settings.hard else "0 B"
    soft = human_bytes(settings.soft.in_bytes(total)) if settings.soft else hard
    if decision.reason is Reason.RECOVERY_MARGIN:
        margin = f"{settings.recovery_margin:.0%}"
        return f"{free}, and must be clear of the hard limit {hard} by {margin} before they may write"
    if decisive.standing is Standing.STALE:
        age_seconds = decision.decided_at.timestamp() - volume.read_ms / 1000
        return f"{place}, last read {human_seconds(age_seconds)} ago, counts as {decisive.factor:.2f} until it is read"
    if decisive.standing is Standing.DEPARTED:
        return (
            f"{place} left the cluster while it limited it, and goes on counting as {decisive.factor:.2f} for a while"
        )
    if decision.reason is Reason.HARD_LIMIT:
        return f"{free}, at or below the hard limit {hard}"
    between = f"{free}, between the soft limit {soft} and the hard limit {hard}"
    small = decision.factor != decision.raw_factor
    return f"{between}, which is too small a change to follow" if small else between
