"""What to do about one entity's quota: from what is wanted, remembered and found to an operation and what to remember.

Pure. Invariants, asserted on each plan:
- no rate that is set is below the floor, nor above the quota that was there before: throttling never loosens;
- at factor 1.0 exactly what was there before is put back;
- before a rate is set, it and what was there before are remembered.

Values that are found are told apart by what is remembered: one of ours, what was there before, or else an operator's
own change, which becomes what is put back in the end.
"""

from dataclasses import dataclass

from policies.closed_enum import ClosedEnum

Rate = int | None
"""Bytes per second and broker; null: no quota."""

_REMEMBERED_RATES = 4
"""What a request that timed out may still bring about, and what a broker that lags behind may still show."""


class QuotaVerdict(ClosedEnum):
    """What is done about a quota."""

    SET = "set", "A rate is set, because the cluster is to be slowed down."
    RESTORE = "restore", "What was there before Headgate is put back: a rate, or none."
    KEEP = "keep", "It is as it should be, or (`shadow`, `tighter`) not to be touched."
    REFUSE = "refuse", "Nothing is done, for the reason given."


class QuotaReason(ClosedEnum):
    """Why."""

    DECIDED = "decided", "The decision in force says so."
    STALE = "stale", "The decision in force has expired without a successor: the fallback factor applies."
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
class Wanted:
    """What should hold for a cluster now."""

    factor: float
    fallback_factor: float
    """Its rate is remembered with each other, so that it can be set when nothing can be remembered any more."""
    reason: QuotaReason

    @property
    def applies(self) -> bool:
        """Whether it may slow anybody down; else what was there before is put back."""
        return self.reason not in (QuotaReason.SHADOW, QuotaReason.RELEASED)


@dataclass(frozen=True, slots=True)
class Memo:
    """What is remembered of one entity, where it survives a restart."""

    held: bool
    """Whether its quota may be one of ours."""
    baseline: Rate
    """What was there before, and is put back."""
    base: int | None
    """What counts as factor 1.0."""
    rates: tuple[int, ...] = ()
    """What we may have set, the latest first."""


@dataclass(frozen=True, slots=True)
class Put:
    """What was set a moment ago: brokers may not show it yet."""

    rate: Rate


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a plan for one entity rests on."""

    wanted: Wanted
    memo: Memo | None
    found: Rate
    base: int | None
    """As set by the user."""
    floor: int
    put: Put | None = None
    obstacle: QuotaReason | None = None
    """Why no throttling may begin here; what has begun goes on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one entity."""

    verdict: QuotaVerdict
    reason: QuotaReason
    rate: Rate
    """What the entity is to have; for `shadow` and refusals what it would have."""
    found: Rate
    memo: Memo | None
    """To be remembered: before a rate is set, but only after what was there before is put back."""

    @property
    def acts(self) -> bool:
        """Whether a request is to be sent."""
        return self.verdict in (QuotaVerdict.SET, QuotaVerdict.RESTORE)

    @property
    def holds(self) -> bool:
        """Whether the entity's quota is one of ours afterwards."""
        return self.memo is not None and self.memo.held


def plan(it: Situation) -> Plan:
    """What to do about one entity's quota."""
    baseline, by_hand = _baseline(it)
    base = _base(it, baseline)
    asked = baseline if it.wanted.factor >= 1.0 else _slowed(it.wanted.factor, base, baseline, it.floor)
    target = asked if it.wanted.applies else baseline
    refusal = _refusal(it, base, throttles=asked != baseline or base is None)
    if refusal is not None:
        # What it would have: unknown without a base.
        return Plan(QuotaVerdict.REFUSE, refusal, asked, it.found, it.memo)
    planned = _act(it, target, Memo(target != baseline, baseline, base, _rates(it, target, base, baseline)), by_hand)
    if planned.verdict is QuotaVerdict.KEEP and it.wanted.reason is QuotaReason.SHADOW:
        planned = Plan(QuotaVerdict.KEEP, QuotaReason.SHADOW, asked, it.found, planned.memo)
    _check(it, planned, baseline)
    return planned


def _baseline(it: Situation) -> tuple[Rate, bool]:
    """What is to be put back in the end, and whether somebody else has just changed it."""
    if it.memo is None or not (it.memo.held or it.put):
        return it.found, False
    ours = it.found is not None and it.found in it.memo.rates
    if ours or it.found == it.memo.baseline:
        return it.memo.baseline, False
    return it.found, True


def _base(it: Situation, baseline: Rate) -> int | None:
    """The user's; else the existing quota; and where that has been taken away while it is held, the one before."""
    if it.base is not None:
        return it.base
    return baseline if baseline is not None or it.memo is None or not it.memo.held else it.memo.base


def _slowed(factor: float, base: int | None, baseline: Rate, floor: int) -> Rate:
    if base is None:
        return baseline
    rate = max(int(base * factor), floor)
    return rate if baseline is None else min(rate, baseline)


def _refusal(it: Situation, base: int | None, *, throttles: bool) -> QuotaReason | None:
    if it.wanted.factor >= 1.0 or it.wanted.reason is QuotaReason.RELEASED:
        return None
    held = it.memo is not None and it.memo.held
    if held and it.wanted.reason is QuotaReason.SHADOW:
        return None  # to be put back, whatever else
    if base is None:
        return QuotaReason.NO_BASE
    return it.obstacle if throttles and not held and it.wanted.applies else None


def _act(it: Situation, target: Rate, memo: Memo, by_hand: bool) -> Plan:
    in_place = it.found == target and (it.put is None or it.put.rate == target)
    if memo.held:
        verdict = QuotaVerdict.KEEP if in_place else QuotaVerdict.SET
        reason = it.wanted.reason
        if by_hand:
            reason = QuotaReason.CHANGED_BY_HAND
        elif not in_place and it.put is None and _was_to_be(it.memo, target):
            reason = QuotaReason.MISSING
        return Plan(verdict, reason, target, it.found, memo)
    reason = QuotaReason.CHANGED_BY_HAND if by_hand else it.wanted.reason
    if in_place and it.wanted.applies and it.wanted.factor < 1.0:
        reason = QuotaReason.TIGHTER
    remembered = memo if it.memo is not None and it.memo.held else it.memo
    return Plan(QuotaVerdict.KEEP if in_place else QuotaVerdict.RESTORE, reason, target, it.found, remembered)


def _was_to_be(memo: Memo | None, target: Rate) -> bool:
    return memo is not None and memo.held and memo.rates[:1] == (target,)


def _rates(it: Situation, target: Rate, base: int | None, baseline: Rate) -> tuple[int, ...]:
    """What may be found from now on and is ours: the rate, the fallback's, and the latest before."""
    fallback = _slowed(it.wanted.fallback_factor, base, baseline, it.floor) if it.wanted.fallback_factor < 1.0 else None
    before = it.memo.rates if it.memo is not None and (it.memo.held or it.put) else ()
    rates = dict.fromkeys(rate for rate in (target, fallback, *before) if rate is not None and rate != baseline)
    return tuple(rates)[:_REMEMBERED_RATES]


def same_but_for_order(one: Memo | None, other: Memo | None) -> bool:
    """Whether nothing needs to be written to remember `other` instead of `one`."""
    if one is None or other is None:
        return one is other
    return (one.held, one.baseline, one.base, set(one.rates)) == (
        other.held, other.baseline, other.base, set(other.rates),
    )  # fmt: skip


def _check(it: Situation, planned: Plan, baseline: Rate) -> None:
    if planned.verdict is QuotaVerdict.SET:
        rate, memo = planned.rate, planned.memo
        assert rate is not None, "a quota that is set has a rate"  # noqa: S101
        assert rate >= it.floor or rate == baseline, f"{rate} is below the floor {it.floor}"  # noqa: S101
        assert baseline is None or rate <= baseline, f"{rate} is looser than {baseline}"  # noqa: S101
        assert memo is not None, "set without being remembered"  # noqa: S101
        assert memo.held, "set without being remembered"  # noqa: S101
        assert rate in memo.rates, f"{rate} is not remembered as ours"  # noqa: S101
    if planned.verdict is QuotaVerdict.RESTORE:
        assert planned.rate == baseline, f"{planned.rate} was not there before"  # noqa: S101
