"""From the raw factor to the published one: down at once, up with patience.

Rules: docs/design/throttle.md. Invariants, asserted after each move: the factor stays in [0, 1]; it is lowered whenever
the raw factor says so by a publishable amount; it is never above the raw factor by that much; it is not raised within
`min_hold` of its last change.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from policies.closed_enum import ClosedEnum
from policies.throttle.settings import ThrottleSettings
from policies.units import millis_of, to_millis

_EPSILON = 1e-9
"""Factors that differ by less are equal: 0.3 - 0.25 is a change of 0.05."""


class Verdict(ClosedEnum):
    """What becomes of the factor."""

    INITIAL = "initial", "Before the first reading: the starting factor."
    LOWER = "lower", "The factor goes down, at once."
    RAISE = "raise", "The factor goes up."
    HOLD = "hold", "It would go up, but must wait: `reason` says for what."
    NO_CHANGE = (
        "no_change",
        "It stays; the decision is repeated as a heartbeat, or another reason now stands behind it.",
    )


class Hold(StrEnum):
    """What a factor that would rise waits for."""

    RECOVERY_MARGIN = "recovery_margin"
    MIN_HOLD = "min_hold"


class Gate(Struct, array_like=True, frozen=True):
    """The published factor and what its next rise depends on."""

    factor: float
    changed_ms: int | None = None
    stopped_by: tuple[tuple[int, str], ...] = ()
    """The volumes (broker, log dir) that stopped the cluster and have not recovered; empty unless stopped."""


@dataclass(frozen=True, slots=True)
class Move:
    """What the gate does now."""

    gate: Gate
    verdict: Verdict
    hold: Hold | None = None
    rises_at_ms: int | None = None
    """When a held factor may rise by time alone."""


def move(
    gate: Gate,
    raw: float,
    stopping: set[tuple[int, str]],
    recovered: set[tuple[int, str]],
    now: datetime,
    settings: ThrottleSettings,
) -> Move:
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


def _moved(gate: Gate, raw: float, stopped_by: set[tuple[int, str]], now_ms: int, settings: ThrottleSettings) -> Move:
    blocked = tuple(sorted(stopped_by))
    if raw > gate.factor == 0.0 and blocked:
        return Move(Gate(0.0, gate.changed_ms, blocked), Verdict.HOLD, Hold.RECOVERY_MARGIN)
    if not _publishable(gate.factor, raw, settings):
        return Move(Gate(gate.factor, gate.changed_ms, blocked if gate.factor == 0.0 else ()), Verdict.NO_CHANGE)
    if raw < gate.factor:
        return Move(Gate(raw, now_ms, blocked if raw == 0.0 else ()), Verdict.LOWER)
    rises_at_ms = _rises_at_ms(gate, settings)
    if now_ms < rises_at_ms:
        return Move(Gate(gate.factor, gate.changed_ms), Verdict.HOLD, Hold.MIN_HOLD, rises_at_ms)
    return Move(Gate(raw, now_ms), Verdict.RAISE)


def _rises_at_ms(gate: Gate, settings: ThrottleSettings) -> int:
    return 0 if gate.changed_ms is None else gate.changed_ms + millis_of(settings.min_hold)


def _publishable(factor: float, raw: float, settings: ThrottleSettings) -> bool:
    if raw == factor:
        return False
    return raw in (0.0, 1.0) or abs(raw - factor) >= settings.min_change - _EPSILON


def _check(before: Gate, raw: float, after: Move, now_ms: int, settings: ThrottleSettings) -> None:
    factor = after.gate.factor
    assert 0.0 <= factor <= 1.0, f"factor {factor} is not in [0, 1]"  # noqa: S101
    assert factor <= raw or not _publishable(factor, raw, settings), f"factor {factor} stays above {raw}"  # noqa: S101
    assert factor <= before.factor or now_ms >= _rises_at_ms(before, settings), "raised within min_hold"  # noqa: S101
    assert not after.gate.stopped_by or factor == 0.0, "remembers what stopped it while open"  # noqa: S101
