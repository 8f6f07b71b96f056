"""Whether a verdict on a factor is published: if it is new, if its time to full is misleading, or as a repeat."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.decisions import Decision, Issuer
from policies.free_space.gate import GateMove, Key
from policies.free_space.settings import FreeSpaceSettings
from policies.publication import Publication, RepeatSchedule
from policies.units import InstantMs, millis_of

DecisionT = TypeVar("DecisionT", bound=Decision)

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


class LastPublished(Struct, Generic[Key], array_like=True, frozen=True):
    """The last decision about one subject, as far as the next one depends on it."""

    sequence: int
    at_ms: InstantMs
    factor: float
    reason: str
    limiting: Key | None
    noted: tuple[str, ...] = ()
    """Verdicts in the audit topic since the factor, its reason or the limiting volume last changed."""
    full_ms: InstantMs | None = None
    """The published time at which a volume is full."""
    mode: str = ""
    """The published mode; empty if an earlier version wrote this."""
    repeat_at_ms: InstantMs | None = None
    """The latest time of its repeat; other settings never postpone it. None if an earlier version wrote this."""


@dataclass(frozen=True, slots=True)
class Emitted(Generic[Key, DecisionT]):
    """The result of this stage for one subject."""

    last: LastPublished[Key]
    decision: DecisionT | None = None
    """To publish."""
    note: DecisionT | None = None
    """A verdict that changed nothing, when it first appears; for the audit topic only."""


@dataclass(frozen=True, slots=True)
class FactorContent(Generic[Key]):
    """The content of a verdict by which it differs from the decision in force."""

    move: GateMove[Key]
    reason: str
    limiting: Key | None
    seconds_to_full: float | None
    is_asked_for: bool = False
    """Whether a decision answers a command, so it is published even if nothing changed."""


def emit_factor(
    content: FactorContent[Key],
    last: LastPublished[Key] | None,
    now_ms: int,
    settings: FreeSpaceSettings,
    issuer: Issuer,
    make: Callable[..., DecisionT],
) -> Emitted[Key, DecisionT]:
    """Compare a verdict with the decision in force.

    Args:
        make: makes the decision of a sequence number, with marks for its id.
    """
    schedule, name, factor = repeat_schedule(settings), content.move.verdict.value, content.move.gate.factor
    full_ms = None if content.seconds_to_full is None else now_ms + round(1000 * content.seconds_to_full)
    now, in_force, due_ms = (factor, content.reason, content.limiting, issuer.stance), None, None
    if last is not None:
        in_force = (last.factor, last.reason, last.limiting, last.mode or issuer.stance)
        must_replace = content.is_asked_for or is_misleading(last.full_ms, full_ms, now_ms, settings)
        due_ms = now_ms if must_replace else schedule.due_ms(last.at_ms, last.repeat_at_ms)
    publication = Publication(now_ms, last.sequence if last else 0)
    noted = last.noted if last is not None and now == in_force else ()
    if last is None or publication.is_needed(now, in_force, due_ms):
        sequence = publication.next(is_first=last is None)
        published = LastPublished(
            sequence=sequence,
            at_ms=now_ms,
            factor=factor,
            reason=content.reason,
            limiting=content.limiting,
            noted=tuple(sorted({*noted, name})),
            full_ms=full_ms,
            mode=issuer.stance,
            repeat_at_ms=schedule.due_ms(now_ms),
        )
        return Emitted(published, decision=make(sequence))
    if name in last.noted:
        return Emitted(last)
    noted_now = replace(last, noted=tuple(sorted({*last.noted, name})))
    return Emitted(noted_now, note=make(last.sequence, "noted", name))
