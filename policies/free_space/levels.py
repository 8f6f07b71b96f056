"""How a level of a foreign system, such as a quota, follows a factor: its wanted value, its plan and its report. Pure.

A plan is the next operation on one level, and the record to keep with it: from the wanted, recorded and found values.
Invariants, asserted on each plan:

- no rate that is set is below the floor, nor above the original one: throttling never loosens;
- at factor 1.0 exactly the original is restored;
- a rate is set together with, or after, the record of it and of the original.

A found value is one that Headgate has set, or the original, or else an operator's own change, which then becomes the
value to restore. A value of which nothing is known and that Headgate may have set is not taken for an original.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from policies.decisions import Decision, Mode, has_expired
from policies.free_space.limits import FreeSpaceSettings
from policies.observations import ActuatorEvent, ReportedEffect, ReportResult
from policies.units import ClosedEnum, format_instant, human_bytes

Rate = int | None
"""Bytes per second; None: no limit."""


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


class LimitReason(ClosedEnum):
    """The cause of the operation."""

    DECIDED = "decided", "The decision in force says so."
    STEPPING = (
        "stepping",
        "On its way down to what is decided: set at once, producers would be told to wait longer than `max_told_wait`.",
    )
    STALE = "stale", "The decision in force has expired without a successor: `expired_action` decides the factor."
    SHADOW = "shadow", "The decision is published only: nothing is set, and what was set is taken back."
    RELEASED = (
        "released",
        "Nothing asks for a limit there any more: a stop is over, its entity or group is gone, or an operator ran "
        "`headgate act --release`.",
    )
    CHANGED_BY_HAND = "changed_by_hand", "Somebody else changed it: their value is what is put back in the end."
    CONFIRMED = "confirmed", "An operator declared the quota there to be the original (`act --release --forget`)."
    MISSING = "missing", "What should have been set was not there: put back by somebody, or it never arrived."
    UNKNOWN_ORIGINAL = (
        "unknown_original",
        "Headgate may have set the quota there, and no record on the cluster tells what was there before.",
    )
    TIGHTER = "tighter", "What is there is lower than what would be set: throttling never loosens."
    NO_BASE = "no_base", "There is neither a `base` nor a limit, so a factor of it is nothing."
    FENCED = "fenced", "The decision came late: another one is in force."
    QUOTA_CALLBACK = "quota_callback", "A broker has a `client.quota.callback.class`: it heeds no quotas."
    EXCLUDED_USER = (
        "excluded_user",
        "An excluded user without a quota of their own would be slowed down: until factor 1.0 they have a huge one.",
    )
    ALL_CLIENTS = (
        "all_clients",
        "Besides the entities: a stop also reaches clients without a client id, and no client gets a looser quota.",
    )


@dataclass(frozen=True)
class WantedFactor:
    """The factor that should be in force now."""

    factor: float
    reason: LimitReason

    @property
    def applies(self) -> bool:
        """Whether it may slow producers down; otherwise the original limits are put back."""
        return self.reason not in (LimitReason.SHADOW, LimitReason.RELEASED)

    @property
    def slows(self) -> bool:
        """Whether it slows producers down."""
        return self.applies and self.factor < 1.0


RELEASED = WantedFactor(1.0, LimitReason.RELEASED)


class FactorDecision(Decision):
    """A decision on a factor, which an actuator of levels carries out."""

    if TYPE_CHECKING:  # in the record it has another place in each kind of decision
        factor: float

    def is_frozen(self, now: datetime) -> bool:
        """Return whether everything stays as it is set: during a pause, and after it until a decision comes."""
        return self.frozen_until is not None and (now < self.frozen_until or not has_expired(self, now))

    def choose_factor(self, now: datetime, settings: FreeSpaceSettings) -> WantedFactor:
        """Return the factor to apply. In shadow mode nothing is applied, whether or not the decision has expired.

        The decisions of a pause that keeps all limits are in shadow mode, too. If the loop dies during the pause, no
        decision follows them: after the pause they have expired like any other, and do not open the gate.
        """
        if self.mode is Mode.SHADOW and self.frozen_until is None:
            return WantedFactor(self.factor, LimitReason.SHADOW)
        if has_expired(self, now):
            return WantedFactor(settings.choose_expired(self.factor), LimitReason.STALE)
        return WantedFactor(self.factor, LimitReason.DECIDED)


@dataclass(frozen=True, slots=True)
class Original:
    """The record of one level on the watched system."""

    baseline: Rate
    """The original rate, which is put back; None: there was none."""
    latest: int
    """The rate that Headgate set with this record. Equal to `baseline`: an operator confirmed it as the original."""
    owner: int = 1
    """The number of the cluster's name in the settings (`quotas.owner_number`)."""

    @property
    def is_held(self) -> bool:
        """Whether the present rate is one of Headgate's."""
        return self.latest != self.baseline


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """The known state of one level."""

    held: bool
    """Whether its rate may be one of ours."""
    baseline: Rate
    base: Rate = None
    """The rate at factor 1.0."""
    rates: tuple[int, ...] = ()
    """The rates that may be in force by us, the latest first: of a quota, those since all brokers last showed it."""


@dataclass(frozen=True, slots=True)
class LevelSituation:
    """The inputs of a plan for one level."""

    wanted: WantedFactor
    record: LevelRecord | None
    found: Rate
    base: Rate
    floor: int
    recorded: Original | None = None
    is_unknown: bool = False
    """Whether `found` may be a rate of ours that no record explains."""
    is_removal_meant: bool = False
    """Whether a level that is gone was removed by its owner. Strimzi's User Operator deletes each user's quota that no
    `KafkaUser` names, which is no change by hand, unless the original appeared during the throttle."""
    obstacle: LimitReason | None = None
    """Why no throttling may begin here; throttling that has begun goes on."""
    least: int | None = None
    """The lowest rate to set now: below it, Kafka would make producers wait too long (`RatesInForce.step`)."""
    needs_base: bool = False
    """Whether not even a stop sets a rate where there is neither a base nor an original."""


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The operation on one level."""

    verdict: LimitVerdict
    reason: LimitReason
    rate: Rate = None
    """The rate that it should have; for `shadow` and refusals, the rate that it would have."""
    found: Rate = None
    record: LevelRecord | None = None

    @property
    def holds(self) -> bool:
        """Whether the level is one of ours afterwards."""
        return self.record is not None and self.record.held


def plan_level(it: LevelSituation) -> LevelPlan:
    """Return the next operation on one level."""
    if it.is_unknown and it.record is None:
        return LevelPlan(LimitVerdict.REFUSE, LimitReason.UNKNOWN_ORIGINAL, it.found, it.found)
    held = it.record if it.record is not None and it.record.held else None
    baseline, by_hand = it.found, False
    if held is not None:
        by_hand = (it.found is not None or it.is_removal_meant) and it.found not in (held.baseline, *held.rates)
        baseline = it.found if by_hand else held.baseline
    # The base of the settings, or else the original rate, or else the recorded base of a held level.
    base = it.base if it.base is not None else baseline
    if base is None and held is not None:
        base = held.base
    asked = _slow_down(it, base, baseline)
    stepped = _step_down(it, asked, baseline)
    target = stepped if it.wanted.applies else baseline
    if (refusal := _find_refusal(it, held, base, throttles=asked != baseline or base is None)) is not None:
        return LevelPlan(LimitVerdict.REFUSE, refusal, asked, it.found, it.record)
    if target == stepped != asked:
        it = replace(it, wanted=replace(it.wanted, reason=LimitReason.STEPPING))
    before = it.record.rates if it.record is not None else ()
    rates = tuple(dict.fromkeys(rate for rate in (target, *before) if rate is not None and rate != baseline))
    record = LevelRecord(target != baseline, baseline, base, rates)
    planned = _plan_operation(it, held, target, record, by_hand=by_hand)
    if planned.verdict is LimitVerdict.KEEP and it.wanted.reason is LimitReason.SHADOW:
        planned = replace(planned, reason=LimitReason.SHADOW, rate=asked)
    _check(it, planned, baseline)
    return planned


def _slow_down(it: LevelSituation, base: Rate, baseline: Rate) -> Rate:
    """Return the rate for the wanted factor: never below the floor, never looser than the original."""
    if it.wanted.factor >= 1.0 or (base is None and it.wanted.factor > 0.0):
        return baseline
    rate = max(int((base or 0) * it.wanted.factor), it.floor)
    return rate if baseline is None else min(rate, baseline)


def _step_down(it: LevelSituation, asked: Rate, baseline: Rate) -> Rate:
    """Raise a rate to the lowest one that may be set now, but never above the present or the original one."""
    if asked is None or it.least is None or it.wanted.factor >= 1.0:
        return asked
    bounds = [rate for rate in (it.found, baseline) if rate is not None]
    return max(asked, min([it.least, *bounds]))


def _find_refusal(it: LevelSituation, held: LevelRecord | None, base: Rate, *, throttles: bool) -> LimitReason | None:
    if it.wanted.factor >= 1.0 or it.wanted.reason is LimitReason.RELEASED:
        return None
    if held is not None and it.wanted.reason is LimitReason.SHADOW:
        return None  # The original is put back in any case.
    if base is None and (it.wanted.factor > 0.0 or it.needs_base):
        return LimitReason.NO_BASE
    return it.obstacle if throttles and held is None and it.wanted.applies else None


def _plan_operation(
    it: LevelSituation, held: LevelRecord | None, target: Rate, record: LevelRecord, *, by_hand: bool
) -> LevelPlan:
    reason = LimitReason.CHANGED_BY_HAND if by_hand else it.wanted.reason
    if record.held:
        recorded = None if it.recorded is None else (it.recorded.baseline, it.recorded.latest)
        is_there = it.found == target and recorded == (record.baseline, target)
        verdict = LimitVerdict.KEEP if is_there else LimitVerdict.SET
        if not by_hand and it.found != target and held is not None and held.rates[:1] == (target,):
            reason = LimitReason.MISSING
        return LevelPlan(verdict, reason, target, it.found, record)
    in_place = it.found == target and (it.recorded is None or not it.recorded.is_held)
    if in_place and it.wanted.slows:
        reason = LimitReason.TIGHTER
    remembered = record if held is not None else it.record
    return LevelPlan(LimitVerdict.KEEP if in_place else LimitVerdict.RESTORE, reason, target, it.found, remembered)


def _check(it: LevelSituation, planned: LevelPlan, baseline: Rate) -> None:
    if planned.verdict is LimitVerdict.SET:
        rate, record = planned.rate, planned.record
        assert rate is not None, "a level that is set has a rate"  # noqa: S101
        assert rate >= it.floor or rate == baseline, f"{rate} is below the floor {it.floor}"  # noqa: S101
        assert baseline is None or rate <= baseline, f"{rate} is looser than {baseline}"  # noqa: S101
        assert record is not None, "set without a record"  # noqa: S101
        assert record.held, "set without a record"  # noqa: S101
        assert rate in record.rates, f"{rate} is not recorded as ours"  # noqa: S101
    if planned.verdict is LimitVerdict.RESTORE:
        assert planned.rate == baseline, f"{planned.rate} was not there before"  # noqa: S101


# The report about one level, in the audit topic.


def render_rate(bytes_per_second: Rate, nothing: str, per: str = "") -> str:
    """Write a rate as ``4.0 MB/s``, or the words for no rate."""
    return nothing if bytes_per_second is None else f"{human_bytes(bytes_per_second)}/s{per}"


_NOT_HELD = (LimitReason.SHADOW, LimitReason.TIGHTER, LimitReason.RELEASED, LimitReason.CONFIRMED)


class LimitApplication(ActuatorEvent):
    """A limit that was set, put back, refused or failed; or one that needs no change, when that is new."""

    actuator: ClassVar[str]
    """In words, such as ``the quota actuator``."""
    what: ClassVar[str]
    """The limit in words, with `target` and `cluster`."""
    nothing: ClassVar[str]
    """The words for no limit."""
    per: ClassVar[str] = ""
    """The place for which a rate that was set holds."""

    factor: float | None = Field(
        description="The factor carried out: the decision's, or what `expired_action` makes of it once it is stale."
    )
    verdict: LimitVerdict
    reason: LimitReason
    rate_bytes_per_second: Rate = Field(
        description="The rate that it should have (in shadow mode or refused: would have); null: none."
    )
    previous_bytes_per_second: Rate = Field(description="The rate that was found; null: none.")
    outcome: ReportResult
    detail: str | None = Field(default=None, description="What went wrong, in a few words; never a secret.")
    explanation: str | None = Field(
        default=None, description="One plain sentence: what the actuator did and when, or why it did nothing."
    )

    @abstractmethod
    def name_target(self) -> str:
        """Return the thing that is limited; empty: all of the cluster."""

    def subject(self) -> str:
        """The target, or the cluster."""
        target = self.name_target()
        return f"{self.cluster}/{target}" if target else self.cluster

    def describe_effect(self, **own: Any) -> ReportedEffect:
        """Return the rate that is set, or why it is not; `own` are further fields."""
        result, is_slowed = self.outcome, self.factor is not None and self.factor < 1.0
        rate = self.previous_bytes_per_second if result is ReportResult.UNCHANGED else self.rate_bytes_per_second
        is_kept = result is ReportResult.UNCHANGED and self.reason not in _NOT_HELD and is_slowed
        is_planned = rate is not None or self.verdict is not LimitVerdict.SET
        return ReportedEffect(
            target=self.name_target(),
            by=self.actuator,
            result=result,
            value=render_rate(rate, self.nothing, self.per) if self.name_target() and is_planned else None,
            is_held=is_kept or (result is ReportResult.APPLIED and self.verdict is LimitVerdict.SET),
            number=rate,
            detail=self.detail or (self.reason.meaning.rstrip(".") if result is ReportResult.REFUSED else None),
            **own,
        )

    def explained(self, at: datetime) -> Self:
        """Add the sentence; `at` is the time of the operation."""
        wanted, found = self.rate_bytes_per_second, render_rate(self.previous_bytes_per_second, self.nothing)
        failed = "read or set" if wanted is None else f"set to {render_rate(wanted, self.nothing)}"
        by = f"by {self.actuator} at {format_instant(at)}"
        did = {
            ReportResult.APPLIED: f"was set {by} to {render_rate(wanted, self.nothing, self.per)} (before: {found})",
            ReportResult.UNCHANGED: f"is left at {found}",
            ReportResult.REFUSED: "is not set",
            ReportResult.FAILED: f"could not be {failed}",
        }[self.outcome]
        is_told = self.outcome in (ReportResult.APPLIED, ReportResult.FAILED) and self.reason is LimitReason.DECIDED
        why = "" if self.factor is None else f", for factor {self.factor:.2f}"
        why += "" if is_told else f": {self.reason.meaning.rstrip('.')}"
        what = self.what.format(target=self.name_target() or "every target", cluster=self.cluster)
        return self.model_copy(update={"explanation": f"{what} {did}{why}."})
