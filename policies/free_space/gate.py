"""From the raw factor to the factor in force: lowered at once, raised slowly.

The factor is that of a cluster or of a part of it; `Key` names a volume. Rules: docs/design/throttle.md. Invariants,
asserted after each move:

- The factor stays in [0, 1].
- It is lowered whenever the raw factor is lower by a publishable amount, so it never exceeds that by as much.
- It is not raised within `min_hold` of its last change.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from msgspec import Struct

from policies.book import Wanted
from policies.decisions import Decision, RepeatSchedule
from policies.free_space.limits import FreeSpaceSettings
from policies.units import ClosedEnum, InstantMs, millis_of

Key = TypeVar("Key", bound=tuple[Any, ...])

_EPSILON = 1e-9
"""Factors that differ by less are equal: 0.3 - 0.25 is a change of 0.05."""


class FactorVerdict(ClosedEnum):
    """The move of the factor."""

    INITIAL = "initial", "Before the first reading: the starting factor."
    LOWER = "lower", "The factor goes down, at once."
    RAISE = "raise", "The factor goes up."
    HOLD = "hold", "It would go up, but must wait; `reason` names the cause."
    NO_CHANGE = ("no_change", "It stays; the decision is a heartbeat, or its reason is another one now.")


class HoldReason(StrEnum):
    """What a factor that would rise waits for; each policy has a reason of the same name."""

    RECOVERY_MARGIN = "recovery_margin"
    MIN_HOLD = "min_hold"


class Gate(Struct, Generic[Key], array_like=True, frozen=True):
    """The factor in force, and the state on which its next rise depends."""

    factor: float
    changed_ms: InstantMs | None = None
    stopped_by: tuple[Key, ...] = ()
    """The volumes that stopped the writers; empty unless stopped. All must be recovered at the instant of a rise."""


@dataclass(frozen=True, slots=True)
class GateMove(Generic[Key]):
    """The move of the gate in one step."""

    gate: Gate[Key]
    verdict: FactorVerdict
    hold: HoldReason | None = None
    rises_at_ms: int | None = None
    """When a factor that waits for MIN_HOLD may rise by time alone."""


def first_move(gate: Gate[Key], raw: float, stopping: Set[Key], now_ms: int) -> GateMove[Key]:
    """Move the gate for the first time: nothing was published yet, so no change can be too small or too soon."""
    stopped_by = tuple(sorted(stopping)) if raw == 0.0 else ()
    if raw == gate.factor:
        return GateMove(Gate(raw, None, stopped_by), FactorVerdict.NO_CHANGE)
    verdict = FactorVerdict.LOWER if raw < gate.factor else FactorVerdict.RAISE
    return GateMove(Gate(raw, now_ms, stopped_by), verdict)


def move(
    gate: Gate[Key], raw: float, stopping: Set[Key], recovered: Set[Key], now_ms: int, settings: FreeSpaceSettings
) -> GateMove[Key]:
    """Move the gate towards the raw factor.

    Volumes are `stopping` at their hard limit, and `recovered` above it by the margin, or if they no longer count.
    """
    stopped_by = stopping | set(gate.stopped_by)
    after = _move(gate, raw, tuple(sorted(stopped_by)), now_ms, settings, is_blocked=not stopped_by <= recovered)
    _check(gate, raw, after, now_ms, settings)
    return after


def earliest_rise_ms(gate: Gate[Key], settings: FreeSpaceSettings) -> int:
    """Return from when on `min_hold` allows a rise."""
    return 0 if gate.changed_ms is None else gate.changed_ms + millis_of(settings.min_hold)


def _move(
    gate: Gate[Key],
    raw: float,
    stopped_by: tuple[Key, ...],
    now_ms: int,
    settings: FreeSpaceSettings,
    *,
    is_blocked: bool,
) -> GateMove[Key]:
    # A volume that recovers during a hold may be within the margin again at its end.
    held = Gate(gate.factor, gate.changed_ms, stopped_by if gate.factor == 0.0 else ())
    if raw > gate.factor == 0.0 and is_blocked:
        return GateMove(held, FactorVerdict.HOLD, HoldReason.RECOVERY_MARGIN)
    if not is_publishable(gate.factor, raw, settings):
        return GateMove(held, FactorVerdict.NO_CHANGE)
    if raw < gate.factor:
        return GateMove(Gate(raw, now_ms, stopped_by if raw == 0.0 else ()), FactorVerdict.LOWER)
    if now_ms < (rises_at_ms := earliest_rise_ms(gate, settings)):
        return GateMove(held, FactorVerdict.HOLD, HoldReason.MIN_HOLD, rises_at_ms)
    return GateMove(Gate(raw, now_ms), FactorVerdict.RAISE)


def is_publishable(factor: float, raw: float, settings: FreeSpaceSettings) -> bool:
    """Return whether a raw factor differs from the one in force by enough to change it."""
    if raw == factor or raw in (0.0, 1.0):
        return raw != factor
    limit = factor - settings.min_change if raw < factor else factor + settings.min_change
    return raw <= limit + _EPSILON if raw < factor else raw >= limit - _EPSILON


def _check(before: Gate[Key], raw: float, after: GateMove[Key], now_ms: int, settings: FreeSpaceSettings) -> None:
    factor = after.gate.factor
    assert 0.0 <= factor <= 1.0, f"factor {factor} is not in [0, 1]"  # noqa: S101
    assert factor <= raw or not is_publishable(factor, raw, settings), f"factor {factor} stays above {raw}"  # noqa: S101
    assert factor <= before.factor or now_ms >= earliest_rise_ms(before, settings), "raised within min_hold"  # noqa: S101
    assert not after.gate.stopped_by or factor == 0.0, "keeps the volumes that stopped it while it is open"  # noqa: S101


# Whether a verdict on a factor is published: if it is new, if its time to full is misleading, or as a repeat.

_MISLEADING = 2
"""A published time to full that is wrong by more than this factor is replaced."""
_INSTANT_MS = 5000
"""A shorter time makes no difference."""


def repeat_schedule(settings: FreeSpaceSettings) -> RepeatSchedule:
    """Return when a decision is repeated: two heartbeats may be late before it expires."""
    return RepeatSchedule(settings.heartbeat, valid_for=3)


def is_misleading(published_ms: int | None, full_ms: int | None, now_ms: int, settings: FreeSpaceSettings) -> bool:
    """Return whether the published time to full is wrong by now.

    Sentence, metric and alert state one number, so a new one for the alert needs a new decision.
    """
    published, left = (None if ms is None else max(ms - now_ms, 0) for ms in (published_ms, full_ms))
    soon = millis_of(settings.time_to_full_alert)
    was_soon, is_soon = published is not None and published < soon, left is not None and left < soon
    if published is None or left is None or not (was_soon and is_soon):
        return was_soon != is_soon
    return max(published, left) > _MISLEADING * min(published, left) + _INSTANT_MS


def want_factor(
    move: GateMove[Any],
    reason: str,
    limiting: object,
    seconds_to_full: float | None,
    now_ms: int,
    settings: FreeSpaceSettings,
    make: Callable[[Mapping[str, Any]], Decision],
    *,
    is_asked_for: bool = False,
) -> Wanted:
    """Want the factor in force: published if it, its reason or the limiting volume changed, or its time to full."""
    full_ms = None if seconds_to_full is None else now_ms + round(1000 * seconds_to_full)
    return Wanted(
        content=f"{move.gate.factor}|{reason}|{limiting}",
        schedule=repeat_schedule(settings),
        make=make,
        note=move.verdict.value,
        told_ms=full_ms,
        is_misleading=lambda told_ms: is_misleading(told_ms, full_ms, now_ms, settings),
        is_asked_for=is_asked_for,
    )
