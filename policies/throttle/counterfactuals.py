"""The counterfactuals of a decision: for each direction, the condition under which the factor moves next.

They are worded from the comparisons that the judge makes: those of the gate between factors, turned into free bytes of
the volume that decided, and the instants at which a hold ends.
"""

from collections.abc import Iterator

from policies.comparison import Comparison, Relation
from policies.decisions import Otherwise
from policies.free_space.gate import FactorVerdict, earliest_rise_ms, lowering, raising
from policies.free_space.limits import factor_line
from policies.free_space.verdicts import hold_ends_ms
from policies.free_space.volumes import Freshness
from policies.throttle.judge.cluster import ClusterVerdict
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import name_volume
from policies.units import format_duration, format_instant, from_millis, human_bytes


def counterfactuals(verdict: ClusterVerdict) -> tuple[Otherwise, ...]:
    """Name the conditions under which the factor falls, then those under which it rises."""
    lower = (Otherwise(FactorVerdict.LOWER.value, when) for when in _lower(verdict))
    higher = (Otherwise(FactorVerdict.RAISE.value, when) for when in _higher(verdict))
    return (*lower, *higher)


def _lower(verdict: ClusterVerdict) -> Iterator[str]:
    settings, factor = verdict.brokers.settings, verdict.move.gate.factor
    if factor == 0.0:
        return
    if not settings.limited:
        yield "a limit is set for the cluster: there is neither `hard` nor `soft`"
        return
    volume = verdict.decisive or verdict.brokers.nearest()
    if volume is not None and volume.freshness is Freshness.FRESH:
        threshold = _usable_bytes(volume, lowering(factor, verdict.raw.factor, settings), settings)
        yield _describe(volume, Comparison(volume.state.usable_bytes, Relation.AT_MOST, threshold))
    if settings.fallback < factor:
        unread = f"is not read for {format_duration(settings.validity)}"
        yield f"a volume {unread}: the fallback is {settings.fallback:.2f}"


def _higher(verdict: ClusterVerdict) -> Iterator[str]:
    settings, gate, volume = verdict.brokers.settings, verdict.move.gate, verdict.decisive
    if gate.factor == 1.0:
        return
    if verdict.move.rises_at_ms is not None:
        at = format_instant(from_millis(verdict.move.rises_at_ms))
        yield f"it is {at}, if volumes still allow {verdict.raw.factor:.2f}"
        return
    if volume is None:
        yield "a broker's volumes are read"
        return
    held = _held(verdict)
    if volume.freshness is Freshness.FRESH:
        threshold = _usable_bytes(volume, raising(gate.factor, verdict.raw.factor, settings), settings)
        if volume.key in gate.stopped_by and settings.hard is not None:
            clear = settings.hard.in_bytes(volume.state.total_bytes, margin=settings.recovery_margin)
            threshold = max(threshold, clear + volume.state.usable_bytes - volume.judged_bytes)
        yield _describe(volume, Comparison(volume.state.usable_bytes, Relation.MORE, threshold)) + held
    elif volume.freshness in (Freshness.STALE, Freshness.NEVER_READ):
        again = " again" if volume.freshness is Freshness.STALE else ""
        yield f"{name_volume(volume.key)} is read{again}, and has more free than its limits{held}"
    elif volume.departed_ms is not None:
        ends = format_instant(from_millis(hold_ends_ms(volume.departed_ms, settings)))
        yield f"{name_volume(volume.key)} is back with more free, or it is {ends}{held}"


def _usable_bytes(volume: VolumeVerdict, comparison: Comparison, settings: ThrottleSettings) -> float:
    """Turn the threshold of a comparison of factors into free bytes of a volume, at its present rate."""
    judged = factor_line(volume.state.total_bytes, settings.hard, settings.soft).usable_bytes(comparison.threshold)
    return judged + volume.state.usable_bytes - volume.judged_bytes


def _describe(volume: VolumeVerdict, free: Comparison) -> str:
    return f"{name_volume(volume.key)} has {free.describe(human_bytes)} free (now {human_bytes(free.value)})"


def _held(verdict: ClusterVerdict) -> str:
    """Name what else a factor that would rise waits for."""
    gate = verdict.move.gate
    others, rises_ms = len(gate.stopped_by) - 1, earliest_rise_ms(gate, verdict.brokers.settings)
    also = f", and so have {others} more that stopped it" if others > 0 else ""
    wait = f", not before {format_instant(from_millis(rises_ms))}" if rises_ms > verdict.brokers.now_ms else ""
    return f"{also}{wait}"
