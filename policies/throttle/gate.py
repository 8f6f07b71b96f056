"""From the raw factor to the factor in force: lowered at once, raised slowly.

Rules: docs/design/throttle.md. Invariants, asserted after each move: the factor stays in [0, 1]; it is lowered whenever
the raw factor says so by a publishable amount; it is never above the raw factor by that much; it is not raised within
`min_hold` of its last change.
"""

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime

from policies.throttle.decisions import ThrottleReason, ThrottleVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import Gate, VolumeKey
from policies.units import millis_of, to_millis

_EPSILON = 1e-9
"""Factors that differ by less are equal: 0.3 - 0.25 is a change of 0.05."""


@dataclass(frozen=True, slots=True)
class GateMove:
    """What the gate does now."""

    gate: Gate
    verdict: ThrottleVerdict
    hold: ThrottleReason | None = None
    """What a factor that would rise waits for: RECOVERY_MARGIN or MIN_HOLD."""
    rises_at_ms: int | None = None
    """When a held factor may rise by time alone."""


def first_move(gate: Gate, raw: float, stopping: Set[VolumeKey], now: datetime) -> GateMove:
    """Move the gate for the first time: nothing was published yet, so no change can be too small or too soon."""
    stopped_by = tuple(sorted(stopping)) if raw == 0.0 else ()
    if raw == gate.factor:
        return GateMove(Gate(raw, None, stopped_by), ThrottleVerdict.NO_CHANGE)
    verdict = ThrottleVerdict.LOWER if raw < gate.factor else ThrottleVerdict.RAISE
    return GateMove(Gate(raw, to_millis(now), stopped_by), verdict)


def move(
    gate: Gate,
    raw: float,
    stopping: Set[VolumeKey],
    recovered: Set[VolumeKey],
    now: datetime,
    settings: ThrottleSettings,
) -> GateMove:
    """Move the gate towards the raw factor.

    Args:
        gate: as it was.
        raw: the least factor of all volumes that count, in [0, 1].
        stopping: volumes that are at their hard limit now.
        recovered: volumes that are clear of their hard limit by the recovery margin, or no longer known.
        now: the time of this step.
        settings: those of this cluster.
    """
    after = _moved(gate, raw, (stopping | set(gate.stopped_by)) - recovered, to_millis(now), settings)
    _check(gate, raw, after, to_millis(now), settings)
    return after


def _moved(gate: Gate, raw: float, stopped_by: Set[VolumeKey], now_ms: int, settings: ThrottleSettings) -> GateMove:
    blocked = tuple(sorted(stopped_by))
    if raw > gate.factor == 0.0 and blocked:
        held = Gate(0.0, gate.changed_ms, blocked)
        return GateMove(held, ThrottleVerdict.HOLD, ThrottleReason.RECOVERY_MARGIN)
    if not _publishable(gate.factor, raw, settings):
        same = Gate(gate.factor, gate.changed_ms, blocked if gate.factor == 0.0 else ())
        return GateMove(same, ThrottleVerdict.NO_CHANGE)
    if raw < gate.factor:
        return GateMove(Gate(raw, now_ms, blocked if raw == 0.0 else ()), ThrottleVerdict.LOWER)
    rises_at_ms = _rises_at_ms(gate, settings)
    if now_ms < rises_at_ms:
        held = Gate(gate.factor, gate.changed_ms)
        return GateMove(held, ThrottleVerdict.HOLD, ThrottleReason.MIN_HOLD, rises_at_ms)
    return GateMove(Gate(raw, now_ms), ThrottleVerdict.RAISE)


def _rises_at_ms(gate: Gate, settings: ThrottleSettings) -> int:
    return 0 if gate.changed_ms is None else gate.changed_ms + millis_of(settings.min_hold)


def _publishable(factor: float, raw: float, settings: ThrottleSettings) -> bool:
    if raw == factor:
        return False
    return raw in (0.0, 1.0) or abs(raw - factor) >= settings.min_change - _EPSILON


def _check(before: Gate, raw: float, after: GateMove, now_ms: int, settings: ThrottleSettings) -> None:
    factor = after.gate.factor
    assert 0.0 <= factor <= 1.0, f"factor {factor} is not in [0, 1]"  # noqa: S101
    assert factor <= raw or not _publishable(factor, raw, settings), f"factor {factor} stays above {raw}"  # noqa: S101
    assert factor <= before.factor or now_ms >= _rises_at_ms(before, settings), "raised within min_hold"  # noqa: S101
    assert not after.gate.stopped_by or factor == 0.0, "remembers what stopped it while open"  # noqa: S101
