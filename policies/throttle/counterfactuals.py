"""The counterfactuals of a decision: for each direction, the condition under which the factor moves next.

They are worded from the comparisons that the judge makes: those of the gate between factors, turned into free bytes of
the volume that decided, and the instants at which a hold ends.
"""

from collections.abc import Iterator

from policies.comparison import Relation
from policies.decisions import Otherwise
from policies.free_space.counterfactuals import NO_LIMIT, describe_threshold, describe_wait, list_otherwise
from policies.free_space.gate import lowering, raising
from policies.free_space.verdicts import hold_ends_ms
from policies.free_space.volumes import Freshness
from policies.throttle.commands import format_forget
from policies.throttle.judge.cluster import ClusterVerdict
from policies.throttle.state import name_volume
from policies.units import format_duration, format_instant, from_millis


def counterfactuals(verdict: ClusterVerdict) -> tuple[Otherwise, ...]:
    """Name the conditions under which the factor falls, then those under which it rises."""
    return list_otherwise(_lower(verdict), _higher(verdict))


def _lower(verdict: ClusterVerdict) -> Iterator[str]:
    settings, factor = verdict.brokers.settings, verdict.move.gate.factor
    if factor == 0.0:
        return
    if not settings.limited:
        yield NO_LIMIT
        return
    volume = verdict.decisive or verdict.brokers.nearest()
    if volume is not None and volume.freshness is Freshness.FRESH:
        threshold = lowering(factor, verdict.raw.factor, settings).threshold
        yield describe_threshold(name_volume(volume.key), volume, Relation.AT_MOST, threshold, settings)
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
    name, held = name_volume(volume.key), _held(verdict)
    if volume.freshness is Freshness.FRESH:
        threshold, stops = raising(gate.factor, verdict.raw.factor, settings).threshold, volume.key in gate.stopped_by
        yield describe_threshold(name, volume, Relation.MORE, threshold, settings, stops=stops) + held
    elif volume.freshness in (Freshness.STALE, Freshness.NEVER_READ):
        again = " again" if volume.freshness is Freshness.STALE else ""
        yield f"{name} is read{again}, and has more free than its limits{held}"
    elif volume.departed_ms is not None:
        ends = format_instant(from_millis(hold_ends_ms(volume.departed_ms, settings)))
        forget = format_forget(verdict.brokers.cluster, volume.key)
        yield f"{name} is back with more free, or it is {ends}, or somebody runs `{forget}`{held}"


def _held(verdict: ClusterVerdict) -> str:
    """Name what else a factor that would rise waits for."""
    gate = verdict.move.gate
    others = len(gate.stopped_by) - 1
    also = f", and so have {others} more that stopped it" if others > 0 else ""
    return also + describe_wait(gate, verdict.brokers.settings, verdict.brokers.now_ms)
