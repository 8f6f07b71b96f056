"""The words that the decisions of all free-space policies share."""

from policies.actuator_events import ReportResult
from policies.closed_enum import ClosedEnum
from policies.decisions import Decision, Mode
from policies.free_space.dead_time import Projection
from policies.free_space.volumes import VolumeState
from policies.units import human_bytes, human_seconds


def explain_factor(
    decision: Decision, factor: float, writers: str, why: str, *, freely: str, has_actuator: bool | None
) -> str:
    """Write one plain sentence: what writers should do, why, and why it is not carried out, as far as is known.

    Args:
        writers: the subject of the sentence.
        why: the reason, from the numbers that decided.
        freely: the request at factor 1.0.
        has_actuator: whether an actuator is set; None if that is not known.
    """
    if factor == 1.0:
        return f"{writers} {freely}: {why}."
    inaction = ""
    if decision.frozen_until is not None:
        inaction = "; the policy is paused, what is set stays as it is"
    elif decision.mode is Mode.SHADOW:
        inaction = "; this is shadow mode, nothing is carried out"
    elif has_actuator is False:
        inaction = "; no actuator is set for this cluster"
    request = f"slowed to {render_factor(factor)}" if factor else "stopped"
    return f"{writers} should be {request}: {why}{inaction}."


def render_factor(factor: float) -> str:
    """Write a factor in two digits; one that is neither 0 nor 1 does not look like either."""
    digits = f"{factor:.2f}"
    if digits == "0.00" and factor > 0.0:
        return "less than 0.01"
    return "more than 0.99" if digits == "1.00" and factor < 1.0 else digits


def describe_age(volume: VolumeState, now_ms: int) -> str:
    """Write ``rate of 4 min ago`` if the last reading is older than two polls; empty for a present rate."""
    age_ms = now_ms - volume.read_ms
    is_old = volume.interval_ms is not None and age_ms > 2 * volume.interval_ms
    return f"rate of {human_seconds(age_ms / 1000)} ago" if is_old else ""


def describe_ahead(ahead: Projection | None) -> str:
    """Write the free space by which a volume was judged, if that is not what it has."""
    if ahead is None:
        return ""
    return f" ({human_bytes(ahead.usable_bytes)} in {human_seconds(ahead.seconds)} at the present rate)"


def render_rate(bytes_per_second: int | None, nothing: str, per: str = "") -> str:
    """Write a rate as ``4.0 MB/s``, or the words for no rate."""
    return nothing if bytes_per_second is None else f"{human_bytes(bytes_per_second)}/s{per}"


def explain_application(
    what: str,
    result: ReportResult,
    by: str,
    *,
    rates: tuple[int | None, int | None],
    nothing: str,
    factor: float | None,
    reason: ClosedEnum,
    per: str = "",
) -> str:
    """Write one sentence about an actuator's operation on a limit.

    Args:
        what: the limit.
        by: the actuator and the time.
        rates: the wanted one and the one that was found, in bytes per second.
        nothing: the words for no limit.
        factor: the decided factor, if there is a decision.
        reason: why; a rate that was set for the decision in force needs no further reason.
        per: the place for which a rate that was set holds.
    """
    wanted, found = rates[0], render_rate(rates[1], nothing)
    failed = "read or set" if wanted is None else f"set to {render_rate(wanted, nothing)}"
    sentence = {
        ReportResult.APPLIED: f"was set {by} to {render_rate(wanted, nothing, per)} (before: {found})",
        ReportResult.UNCHANGED: f"is left at {found}",
        ReportResult.REFUSED: "is not set",
        ReportResult.FAILED: f"could not be {failed}",
    }[result]
    why = "" if factor is None else f", for factor {factor:.2f}"
    shown = result not in (ReportResult.APPLIED, ReportResult.FAILED) or reason.value != "decided"
    because = f": {reason.meaning.rstrip('.')}" if shown else ""
    return f"{what} {sentence}{why}{because}."
