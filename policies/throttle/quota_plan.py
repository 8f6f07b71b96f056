"""The next operation on one entity's quota, and what to record first: from the wanted, recorded and found values.

Pure. Invariants, asserted on each plan:
- no rate that is set is below the floor, nor above the original quota: throttling never loosens;
- at factor 1.0 exactly the original quota is restored;
- before a rate is set, it and the original quota are recorded.

The records tell what a found value is: one of ours, the original, or else an operator's own change, which then becomes
the value to restore.
"""

from dataclasses import dataclass, replace

from policies.closed_enum import ClosedEnum

Rate = int | None
"""Bytes per second and broker; None: no quota."""

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
    STEPPING = (
        "stepping",
        "On its way down to what is decided: set at once, producers would be told to wait longer than `max_told_wait`.",
    )
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
class WantedFactor:
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
class QuotaRecord:
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
class PendingWrite:
    """What was set a moment ago: brokers may not show it yet."""

    rate: Rate


@dataclass(frozen=True, slots=True)
class QuotaSituation:
    """All that a plan for one entity rests on."""

    wanted: WantedFactor
    record: QuotaRecord | None
    found: Rate
    base: int | None
    """As set by the user."""
    floor: int
    pending: PendingWrite | None = None
    obstacle: QuotaReason | None = None
    """Why no throttling may begin here; what has begun goes on."""
    least: int | None = None
    """No rate is set below it yet, for producers would be told to wait too long (`quota_steps`)."""


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """What to do about one entity."""

    verdict: QuotaVerdict
    reason: QuotaReason
    rate: Rate
    """What the entity is to have; for `shadow` and refusals what it would have."""
    found: Rate
    record: QuotaRecord | None
    """To be remembered: before a rate is set, but only after what was there before is put back."""

    @property
    def acts(self) -> bool:
        """Whether a request is to be sent."""
        return self.verdict in (QuotaVerdict.SET, QuotaVerdict.RESTORE)

    @property
    def holds(self) -> bool:
        """Whether the entity's quota is one of ours afterwards."""
        return self.record is not None and self.record.held


def plan(it: QuotaSituation) -> QuotaPlan:
    """What to do about one entity's quota."""
    baseline, by_hand = _baseline(it)
    base = _base(it, baseline)
    asked = baseline if it.wanted.factor >= 1.0 else _slowed(it.wanted.factor, base, baseline, it.floor)
    stepped = _stepped(it, asked, baseline)
    target = stepped if it.wanted.applies else baseline
    refusal = _refusal(it, base, throttles=asked != baseline or base is None)
    if refusal is not None:
        # What it would have: unknown without a base.
        return QuotaPlan(QuotaVerdict.REFUSE, refusal, asked, it.found, it.record)
    if target == stepped != asked:
        it = replace(it, wanted=replace(it.wanted, reason=QuotaReason.STEPPING))
    planned = _act(
        it, target, QuotaRecord(target != baseline, baseline, base, _rates(it, target, base, baseline)), by_hand
    )
    if planned.verdict is QuotaVerdict.KEEP and it.wanted.reason is QuotaReason.SHADOW:
        planned = QuotaPlan(QuotaVerdict.KEEP, QuotaReason.SHADOW, asked, it.found, planned.record)
    _check(it, planned, baseline)
    return planned


def _baseline(it: QuotaSituation) -> tuple[Rate, bool]:
    """What is to be put back in the end, and whether somebody else has just changed it."""
    if it.record is None or not (it.record.held or it.pending):
        return it.found, False
    ours = it.found is not None and it.found in it.record.rates
    if ours or it.found == it.record.baseline:
        return it.record.baseline, False
    return it.found, True


def _base(it: QuotaSituation, baseline: Rate) -> int | None:
    """The user's; else the existing quota; and where that has been taken away while it is held, the one before."""
    if it.base is not None:
        return it.base
    return baseline if baseline is not None or it.record is None or not it.record.held else it.record.base


def _slowed(factor: float, base: int | None, baseline: Rate, floor: int) -> Rate:
    if base is None:
        return baseline
    rate = max(int(base * factor), floor)
    return rate if baseline is None else min(rate, baseline)


def _stepped(it: QuotaSituation, asked: Rate, baseline: Rate) -> Rate:
    """What may be set of it now: not below the least, but never looser than what is there or was there before."""
    if asked is None or it.least is None or it.wanted.factor >= 1.0:
        return asked
    bounds = [rate for rate in (it.found, baseline) if rate is not None]
    return max(asked, min([it.least, *bounds]))


def _refusal(it: QuotaSituation, base: int | None, *, throttles: bool) -> QuotaReason | None:
    if it.wanted.factor >= 1.0 or it.wanted.reason is QuotaReason.RELEASED:
        return None
    held = it.record is not None and it.record.held
    if held and it.wanted.reason is QuotaReason.SHADOW:
        return None  # to be put back, whatever else
    if base is None:
        return QuotaReason.NO_BASE
    return it.obstacle if throttles and not held and it.wanted.applies else None


def _act(it: QuotaSituation, target: Rate, record: QuotaRecord, by_hand: bool) -> QuotaPlan:
    in_place = it.found == target and (it.pending is None or it.pending.rate == target)
    if record.held:
        verdict = QuotaVerdict.KEEP if in_place else QuotaVerdict.SET
        reason = it.wanted.reason
        if by_hand:
            reason = QuotaReason.CHANGED_BY_HAND
        elif not in_place and it.pending is None and _was_to_be(it.record, target):
            reason = QuotaReason.MISSING
        return QuotaPlan(verdict, reason, target, it.found, record)
    reason = QuotaReason.CHANGED_BY_HAND if by_hand else it.wanted.reason
    if in_place and it.wanted.applies and it.wanted.factor < 1.0:
        reason = QuotaReason.TIGHTER
    remembered = record if it.record is not None and it.record.held else it.record
    return QuotaPlan(QuotaVerdict.KEEP if in_place else QuotaVerdict.RESTORE, reason, target, it.found, remembered)


def _was_to_be(record: QuotaRecord | None, target: Rate) -> bool:
    return record is not None and record.held and record.rates[:1] == (target,)


def _rates(it: QuotaSituation, target: Rate, base: int | None, baseline: Rate) -> tuple[int, ...]:
    """What may be found from now on and is ours: the rate, the fallback's, what is in place, and the latest before."""
    fallback = _slowed(it.wanted.fallback_factor, base, baseline, it.floor) if it.wanted.fallback_factor < 1.0 else None
    before = it.record.rates if it.record is not None and (it.record.held or it.pending) else ()
    # What is in place stays remembered, however often a later rate was written down and then not set.
    in_place = it.found if it.found in before else None
    rates = (rate for rate in (target, fallback, in_place, *before) if rate is not None and rate != baseline)
    return tuple(dict.fromkeys(rates))[:_REMEMBERED_RATES]


def same_but_for_order(one: QuotaRecord | None, other: QuotaRecord | None) -> bool:
    """Whether nothing needs to be written to remember `other` instead of `one`."""
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
        assert record is not None, "set without being remembered"  # noqa: S101
        assert record.held, "set without being remembered"  # noqa: S101
        assert rate in record.rates, f"{rate} is not remembered as ours"  # noqa: S101
    if planned.verdict is QuotaVerdict.RESTORE:
        assert planned.rate == baseline, f"{planned.rate} was not there before"  # noqa: S101
