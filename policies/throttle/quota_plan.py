"""The next operation on one entity's quota, and the record to write first: from the wanted, recorded and found values.

Pure. Invariants, asserted on each plan:
- no rate that is set is below the floor, nor above the original quota: throttling never loosens;
- at factor 1.0 exactly the original quota is restored;
- before a rate is set, it and the original quota are recorded.

By the records, a found value is one of ours, or the original, or else an operator's own change, which then becomes the
value to restore.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from policies.closed_enum import ClosedEnum
from policies.decisions import Mode
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.settings import ThrottleSettings

Rate = int | None
"""Bytes per second and broker; None: no quota."""

_REMEMBERED_RATES = 4
"""The number of recorded rates: a request that timed out may still set one, and a slow broker may still show one."""


class QuotaVerdict(ClosedEnum):
    """The operation on a quota."""

    SET = "set", "A rate is set, because the cluster is to be slowed down."
    RESTORE = "restore", "What was there before Headgate is put back: a rate, or none."
    KEEP = "keep", "It is as it should be, or (`shadow`, `tighter`) not to be touched."
    REFUSE = "refuse", "Nothing is done, for the reason given."


class QuotaReason(ClosedEnum):
    """The cause of the operation."""

    DECIDED = "decided", "The decision in force says so."
    STEPPING = (
        "stepping",
        "On its way down to what is decided: set at once, producers would be told to wait longer than `max_told_wait`.",
    )
    STALE = "stale", "The decision in force has expired without a successor: `expired_action` decides the factor."
    SHADOW = "shadow", "The decision is published only: nothing is set, and what was set is taken back."
    RELEASED = "released", "Asked for with `headgate act --release`, or the entity is no longer in the settings."
    CHANGED_BY_HAND = "changed_by_hand", "Somebody else changed the quota: their value is what is put back in the end."
    MISSING = "missing", "What should have been set was not there: taken away by hand, or never reached Kafka."
    TIGHTER = "tighter", "The quota there is lower than what would be set: throttling never loosens."
    NO_BASE = "no_base", "The entity has neither a `base` nor a quota, so a factor of it is nothing."
    FENCED = "fenced", "The decision came after one with a higher sequence, which is in force."
    QUOTA_CALLBACK = "quota_callback", "A broker has a `client.quota.callback.class`: it heeds no quotas."
    EXCLUDED_USER = "excluded_user", "An excluded user without a quota of their own would be slowed down."


@dataclass(frozen=True, slots=True)
class WantedFactor:
    """The factor that should be in force for a cluster now."""

    factor: float
    expired_factor: float
    """The factor once the decision has expired. Its rate is recorded with each other rate, so it can be set when no
    record can be written any more."""
    reason: QuotaReason

    @property
    def applies(self) -> bool:
        """Whether it may slow producers down; otherwise the original quota is put back."""
        return self.reason not in (QuotaReason.SHADOW, QuotaReason.RELEASED)


@dataclass(frozen=True, slots=True)
class QuotaOrder:
    """A decision, as far as the actuator is concerned."""

    cluster: str
    decision_id: str
    sequence: int
    factor: float
    mode: Mode
    valid_until: datetime
    frozen_until: datetime | None = None
    """While the policy is paused: until when everything stays as it is set."""

    @property
    def subject(self) -> str:
        """The cluster: it has one factor."""
        return self.cluster

    @property
    def expires_at(self) -> datetime:
        """The end of its validity, for the fence."""
        return self.valid_until

    def is_stale(self, now: datetime) -> bool:
        """Return whether it should have had a successor by now."""
        return now >= self.valid_until

    def is_frozen(self, now: datetime) -> bool:
        """Return whether everything stays as it is set: during a pause, and after it until a decision comes."""
        return self.frozen_until is not None and (now < self.frozen_until or not self.is_stale(now))


def make_order(decision: ThrottleFactor) -> QuotaOrder:
    """Turn a decision into an order."""
    return QuotaOrder(
        decision.cluster,
        decision.decision_id,
        decision.sequence,
        decision.factor,
        decision.mode,
        decision.valid_until,
        decision.frozen_until,
    )


def choose_factor(order: QuotaOrder, now: datetime, settings: ThrottleSettings) -> WantedFactor:
    """Return the factor to apply. In shadow mode nothing is applied, whether or not the decision has expired.

    After a pause that kept what was set, no decision may come because the loop is dead: it has expired then.
    """
    expired_factor = settings.choose_expired(order.factor)
    if order.mode is Mode.SHADOW and order.frozen_until is None:
        return WantedFactor(order.factor, expired_factor, QuotaReason.SHADOW)
    if order.is_stale(now):
        return WantedFactor(expired_factor, expired_factor, QuotaReason.STALE)
    return WantedFactor(order.factor, expired_factor, QuotaReason.DECIDED)


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """The record of one entity, which survives a restart."""

    held: bool
    """Whether its quota may be one of ours."""
    baseline: Rate
    """The original quota, which is put back."""
    base: int | None
    """The rate at factor 1.0."""
    rates: tuple[int, ...] = ()
    """The rates that we may have set, the latest first."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A rate that was set a moment ago: brokers may not show it yet."""

    rate: Rate


@dataclass(frozen=True, slots=True)
class QuotaSituation:
    """The inputs of a plan for one entity."""

    wanted: WantedFactor
    record: QuotaRecord | None
    found: Rate
    base: int | None
    """The base of the settings."""
    floor: int
    pending: PendingWrite | None = None
    obstacle: QuotaReason | None = None
    """Why no throttling may begin here; throttling that has begun goes on."""
    least: int | None = None
    """The lowest rate to set now: below it, Kafka would make producers wait too long (`quota_steps`)."""


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The operation on one entity's quota."""

    verdict: QuotaVerdict
    reason: QuotaReason
    rate: Rate
    """The rate that the entity should have; for `shadow` and refusals, the rate that it would have."""
    found: Rate
    record: QuotaRecord | None
    """To be written before a rate is set, but only after the original quota is put back."""

    @property
    def acts(self) -> bool:
        """Whether to send a request."""
        return self.verdict in (QuotaVerdict.SET, QuotaVerdict.RESTORE)

    @property
    def holds(self) -> bool:
        """Whether the entity's quota is one of ours afterwards."""
        return self.record is not None and self.record.held


def plan(it: QuotaSituation) -> QuotaPlan:
    """Return the next operation on one entity's quota."""
    baseline, by_hand = _find_baseline(it)
    base = _find_base(it, baseline)
    asked = baseline if it.wanted.factor >= 1.0 else _slow_down(it.wanted.factor, base, baseline, it.floor)
    stepped = _step_down(it, asked, baseline)
    target = stepped if it.wanted.applies else baseline
    refusal = _find_refusal(it, base, throttles=asked != baseline or base is None)
    if refusal is not None:
        return QuotaPlan(QuotaVerdict.REFUSE, refusal, asked, it.found, it.record)
    if target == stepped != asked:
        it = replace(it, wanted=replace(it.wanted, reason=QuotaReason.STEPPING))
    planned = _plan_operation(
        it, target, QuotaRecord(target != baseline, baseline, base, _list_rates(it, target, base, baseline)), by_hand
    )
    if planned.verdict is QuotaVerdict.KEEP and it.wanted.reason is QuotaReason.SHADOW:
        planned = QuotaPlan(QuotaVerdict.KEEP, QuotaReason.SHADOW, asked, it.found, planned.record)
    _check(it, planned, baseline)
    return planned


def _find_baseline(it: QuotaSituation) -> tuple[Rate, bool]:
    """Return the quota to put back in the end, and whether somebody else has just changed it."""
    if it.record is None or not (it.record.held or it.pending):
        return it.found, False
    ours = it.found is not None and it.found in it.record.rates
    if ours or it.found == it.record.baseline:
        return it.record.baseline, False
    return it.found, True


def _find_base(it: QuotaSituation, baseline: Rate) -> int | None:
    """Return the base of the settings, or else the original quota, or else the recorded base of a held entity."""
    if it.base is not None:
        return it.base
    return baseline if baseline is not None or it.record is None or not it.record.held else it.record.base


def _slow_down(factor: float, base: int | None, baseline: Rate, floor: int) -> Rate:
    if base is None:
        return baseline
    rate = max(int(base * factor), floor)
    return rate if baseline is None else min(rate, baseline)


def _step_down(it: QuotaSituation, asked: Rate, baseline: Rate) -> Rate:
    """Raise a rate to the lowest one that may be set now, but never above the present or the original quota."""
    if asked is None or it.least is None or it.wanted.factor >= 1.0:
        return asked
    bounds = [rate for rate in (it.found, baseline) if rate is not None]
    return max(asked, min([it.least, *bounds]))


def _find_refusal(it: QuotaSituation, base: int | None, *, throttles: bool) -> QuotaReason | None:
    if it.wanted.factor >= 1.0 or it.wanted.reason is QuotaReason.RELEASED:
        return None
    held = it.record is not None and it.record.held
    if held and it.wanted.reason is QuotaReason.SHADOW:
        return None  # The original quota is put back in any case.
    if base is None:
        return QuotaReason.NO_BASE
    return it.obstacle if throttles and not held and it.wanted.applies else None


def _plan_operation(it: QuotaSituation, target: Rate, record: QuotaRecord, by_hand: bool) -> QuotaPlan:
    in_place = it.found == target and (it.pending is None or it.pending.rate == target)
    if record.held:
        verdict = QuotaVerdict.KEEP if in_place else QuotaVerdict.SET
        reason = it.wanted.reason
        if by_hand:
            reason = QuotaReason.CHANGED_BY_HAND
        elif not in_place and it.pending is None and _is_missing(it.record, target):
            reason = QuotaReason.MISSING
        return QuotaPlan(verdict, reason, target, it.found, record)
    reason = QuotaReason.CHANGED_BY_HAND if by_hand else it.wanted.reason
    if in_place and it.wanted.applies and it.wanted.factor < 1.0:
        reason = QuotaReason.TIGHTER
    remembered = record if it.record is not None and it.record.held else it.record
    return QuotaPlan(QuotaVerdict.KEEP if in_place else QuotaVerdict.RESTORE, reason, target, it.found, remembered)


def _is_missing(record: QuotaRecord | None, target: Rate) -> bool:
    return record is not None and record.held and record.rates[:1] == (target,)


def _list_rates(it: QuotaSituation, target: Rate, base: int | None, baseline: Rate) -> tuple[int, ...]:
    """List our rates that may be found from now on: this one, that after expiry, the present one, the latest before."""
    expired_factor = it.wanted.expired_factor
    expired = _slow_down(expired_factor, base, baseline, it.floor) if expired_factor < 1.0 else None
    before = it.record.rates if it.record is not None and (it.record.held or it.pending) else ()
    # The present rate stays in the record, however often a later one was recorded and then not set.
    in_place = it.found if it.found in before else None
    rates = (rate for rate in (target, expired, in_place, *before) if rate is not None and rate != baseline)
    return tuple(dict.fromkeys(rates))[:_REMEMBERED_RATES]


def same_but_for_order(one: QuotaRecord | None, other: QuotaRecord | None) -> bool:
    """Return whether two records are equal, except for the order of their rates."""
    if one is None or other is None:
        return one is other
    return (one.held, one.baseline, one.base, set(one.rates)) == (
        other.held, other.baseline, other.base, set(other.rates),
    )  # fmt: skip


def _check(it: QuotaSituation, planned: QuotaPlan, baseline: Rate) -> None:
    if planned.verdict is QuotaVerdict.SET:
        rate, record = planned.rate, planned.record
        assert rate is not None, "a quota that is set has a rate"  # noqa: S101
        assert rate >= it.floor or rate == baseline, f"{rate} is below the floor {it.floor}"  # noqa: S101
        assert baseline is None or rate <= baseline, f"{rate} is looser than {baseline}"  # noqa: S101
        assert record is not None, "set without a record"  # noqa: S101
        assert record.held, "set without a record"  # noqa: S101
        assert rate in record.rates, f"{rate} is not recorded as ours"  # noqa: S101
    if planned.verdict is QuotaVerdict.RESTORE:
        assert planned.rate == baseline, f"{planned.rate} was not there before"  # noqa: S101
