"""What would have to change for another factor: the next thresholds of the values that decided this one.

By rules 1 to 3 and the gate (docs/design/throttle.md): a volume's factor in bytes, changes too small for `min_change`,
and what `recovery_margin` and `min_hold` wait for.
"""

from collections.abc import Iterator

from policies.decisions import Otherwise
from policies.throttle.decisions import ThrottleReason, ThrottleVerdict
from policies.throttle.facts import Freshness
from policies.throttle.judge.cluster import ClusterVerdict
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.limits import Limit
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import place
from policies.units import format_duration, format_instant, from_millis, human_bytes, millis_of

_NONE = Limit(available_bytes_below=0)


def otherwise(verdict: ClusterVerdict) -> tuple[Otherwise, ...]:
    """Each way the factor may go next, and once what is so."""
    lower = [(ThrottleVerdict.LOWER, when) for when in _lower(verdict)]
    higher = [(ThrottleVerdict.RAISE, when) for when in _higher(verdict)]
    return tuple(Otherwise(verdict.value, when) for verdict, when in (*lower, *higher))


def _lower(verdict: ClusterVerdict) -> Iterator[str]:
    settings, factor = verdict.brokers.settings, verdict.move.gate.factor
    if factor == 0.0:
        return
    if not settings.limited:
        yield "a limit is set for the cluster: there is neither `hard` nor `soft`"
        return
    volume = _nearest(verdict)
    if volume is not None and volume.freshness is Freshness.FRESH:
        free = human_bytes(_bytes_at(volume, factor - settings.min_change, settings))
        yield f"{place(volume.key)} has {free} or less free{_now(volume)}"
    if settings.fallback < factor:
        unread = f"is not read for {format_duration(settings.validity)}"
        yield f"a volume {unread}: the fallback is {settings.fallback:.2f}"


def _higher(verdict: ClusterVerdict) -> Iterator[str]:
    settings, gate, volume = verdict.brokers.settings, verdict.move.gate, verdict.decisive
    if gate.factor == 1.0:
        return
    if verdict.reason is ThrottleReason.MIN_HOLD and verdict.move.rises_at_ms is not None:
        at = format_instant(from_millis(verdict.move.rises_at_ms))
        yield f"it is {at}, if volumes still allow {verdict.raw.factor:.2f}"
        return
    if volume is None:
        yield "a broker's volumes are read"
        return
    held = _held(verdict)
    if volume.freshness is Freshness.FRESH:
        free = human_bytes(_opens_at(volume, verdict, settings))
        yield f"{place(volume.key)} has more than {free} free{_now(volume)}{held}"
    elif volume.freshness is Freshness.STALE:
        yield f"{place(volume.key)} is read again, and has more free than its limits{held}"
    elif volume.departed_ms is not None:
        ends = from_millis(volume.departed_ms + millis_of(settings.departed_hold))
        yield f"{place(volume.key)} is back with more free, or it is {format_instant(ends)}{held}"


def _opens_at(volume: VolumeVerdict, verdict: ClusterVerdict, settings: ThrottleSettings) -> float:
    """Free bytes that open the gate further."""
    gate = verdict.move.gate
    follows = _bytes_at(volume, gate.factor + settings.min_change, settings)
    if volume.key not in gate.stopped_by or settings.hard is None:
        return follows
    return max(follows, settings.hard.in_bytes(volume.state.total_bytes) * (1 + settings.recovery_margin))


def _bytes_at(volume: VolumeVerdict, factor: float, settings: ThrottleSettings) -> float:
    """Free bytes at which a volume allows so much: between its limits as far as the factor says."""
    total = volume.state.total_bytes
    hard = (settings.hard or _NONE).in_bytes(total)
    soft = settings.soft.in_bytes(total) if settings.soft else hard
    return hard + min(max(factor, 0.0), 1.0) * max(soft - hard, 0.0)


def _nearest(verdict: ClusterVerdict) -> VolumeVerdict | None:
    """The volume that decided; where none has reached a limit, the one that is next to."""
    if verdict.decisive is not None:
        return verdict.decisive
    limit = verdict.brokers.settings.soft or verdict.brokers.settings.hard or _NONE
    fresh = [v for v in verdict.brokers.volumes() if v.freshness is Freshness.FRESH]
    return min(fresh, key=lambda v: (v.state.usable_bytes - limit.in_bytes(v.state.total_bytes), v.key), default=None)


def _now(volume: VolumeVerdict) -> str:
    return f" (now {human_bytes(volume.state.usable_bytes)})"


def _held(verdict: ClusterVerdict) -> str:
    """What else a factor that would rise waits for."""
    gate, others = verdict.move.gate, len(verdict.move.gate.stopped_by) - 1
    also = f", and so have {others} more that stopped it" if others > 0 else ""
    rises_ms = 0 if gate.changed_ms is None else gate.changed_ms + millis_of(verdict.brokers.settings.min_hold)
    wait = f", not before {format_instant(from_millis(rises_ms))}" if rises_ms > verdict.brokers.now_ms else ""
    return f"{also}{wait}"
