"""When a factor is published, and what an actuator makes of the published factor. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from policies.decisions import Decision, Issuer, Mode, Publication, RepeatSchedule
from policies.free_space.gate import GateMove, Key
from policies.free_space.limits import FreeSpaceSettings
from policies.observations import ReportResult
from policies.units import ClosedEnum, InstantMs, millis_of

# Whether a verdict on a factor is published: if it is new, if its time to full is misleading, or as a repeat.

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
    """The published mode."""
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
        in_force = (last.factor, last.reason, last.limiting, last.mode)
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


ReasonT = TypeVar("ReasonT", bound=ClosedEnum)
"""The reasons of one actuator. All have `decided`, `stale`, `shadow` and `released`."""


class LimitVerdict(ClosedEnum):
    """The operation on a limit of writers."""

    SET = "set", "A rate is set, because writers are to be slowed down."
    RESTORE = "restore", "The limit from before Headgate is put back: a rate, or none."
    KEEP = "keep", "It is as it should be, or (`shadow`, `tighter`) not to be touched."
    REFUSE = "refuse", "Nothing is done, for the reason given."

    @property
    def acts(self) -> bool:
        """Whether it is a change."""
        return self in (LimitVerdict.SET, LimitVerdict.RESTORE)

    @property
    def result(self) -> ReportResult:
        """The result of the operation, if it succeeds."""
        if self.acts:
            return ReportResult.APPLIED
        return ReportResult.UNCHANGED if self is LimitVerdict.KEEP else ReportResult.REFUSED


@dataclass(frozen=True)
class WantedFactor(Generic[ReasonT]):
    """The factor that should be in force now."""

    factor: float
    reason: ReasonT

    @property
    def applies(self) -> bool:
        """Whether it may slow producers down; otherwise the original limits are put back."""
        return self.reason.value not in ("shadow", "released")

    @property
    def slows(self) -> bool:
        """Whether it slows producers down."""
        return self.applies and self.factor < 1.0


@dataclass(frozen=True, slots=True)
class FactorOrder:
    """A decision, as far as an actuator is concerned."""

    cluster: str
    subject: str
    decision_id: str
    sequence: int
    factor: float
    mode: Mode
    decided_at: datetime
    expires_at: datetime | None
    """None: the last decision about its subject."""
    frozen_until: datetime | None = None
    """The end of a pause that keeps the limits as they are set; None: it is not paused, or only watches anyway."""
    cluster_id: str | None = None
    """The system's own id of the cluster that was decided on; None if it has none, or it is not known."""

    @classmethod
    def build(cls, decision: Decision, factor: float, expires_at: datetime | None) -> "FactorOrder":
        """Turn a decision into an order."""
        about = (decision.cluster, decision.subject, decision.decision_id, decision.sequence)
        return cls(*about, factor, decision.mode, decision.decided_at, expires_at, decision.frozen_until)

    def is_stale(self, now: datetime) -> bool:
        """Return whether it should have had a successor by now."""
        return self.expires_at is not None and now >= self.expires_at

    def is_frozen(self, now: datetime) -> bool:
        """Return whether everything stays as it is set: during a pause, and after it until a decision comes."""
        return self.frozen_until is not None and (now < self.frozen_until or not self.is_stale(now))

    def choose_factor(
        self, now: datetime, settings: FreeSpaceSettings, reasons: type[ReasonT]
    ) -> WantedFactor[ReasonT]:
        """Return the factor to apply. In shadow mode nothing is applied, whether or not the decision has expired.

        The decisions of a pause that keeps all limits are in shadow mode, too. If the loop dies during the pause, no
        decision follows them: after the pause they have expired like any other, and do not open the gate.
        """
        if self.mode is Mode.SHADOW and self.frozen_until is None:
            return WantedFactor(self.factor, reasons("shadow"))
        if self.is_stale(now):
            return WantedFactor(settings.choose_expired(self.factor), reasons("stale"))
        return WantedFactor(self.factor, reasons("decided"))
