"""The next operation on one entity's quota, and the record to write first: from the wanted, recorded and found values.

Pure. Invariants, asserted on each plan:
- no rate that is set is below the floor, nor above the original quota: throttling never loosens;
- at factor 1.0 exactly the original quota is restored;
- a rate is set together with the record of it and of the original quota (`quota_state.Original`).

A found value is one that Headgate has set since all brokers last showed its quota, or the original, or else an
operator's own change, which then becomes the value to restore. A value of which nothing is known and that Headgate may
have set is not taken for an original.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import TypeAlias

from policies.free_space.publication import LimitVerdict, WantedFactor
from policies.throttle.quota_state import Original, Rate
from policies.units import ClosedEnum

# How low a quota may be set now, so that Kafka makes no producer wait too long.
#
# Kafka makes a producer wait for (the bytes that it counted in its window) / (the new quota) - (the window), without
# a bound. It does not report these bytes, but the greatest quota in force within the window limits them. So a quota
# goes down in steps, each after the window of the step before. A rate that somebody else put back for a moment lets
# through no more than that rate for that time. Pure: seconds are those of any monotonic clock.

DEFAULT_WINDOW_SECONDS = 11.0
"""Kafka's window: `quota.window.num` (11) samples of `quota.window.size.seconds` (1), by default."""
_AIM = 0.75
"""The share of the longest wait that a step may use. The rest is for the request that breaks the quota in force: Kafka
accepts and counts it."""


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """The lowest rate that a quota may have, and for how long."""

    least: int
    """Bytes per second and broker."""
    seconds: float
    """Time until it may be lower; infinite while the rate in force stays."""


@dataclass(frozen=True, slots=True)
class PastRate:
    """A rate that was in force within the window."""

    until_seconds: float
    bytes_per_second: int
    put_back_seconds: float | None = None
    """If somebody else had put it back: for how long at most. Its bytes come on top of the others."""


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates that were in force within the window, without the present one."""

    past: tuple[PastRate, ...] = ()

    def changed(self, ended: PastRate, window_seconds: float) -> "RatesInForce":
        """Return the rates after a change."""
        recent = (each for each in self.past if each.until_seconds > ended.until_seconds - window_seconds)
        return RatesInForce((*recent, ended))

    def step(
        self, at_seconds: float, in_force: int | None, max_told_wait_seconds: float, window_seconds: float
    ) -> QuotaStep | None:
        """Return how low a quota may be set now; None if no rate within the window is known.

        Args:
            in_force: the present quota, or without one the rate that producers write; None if not known.
            max_told_wait_seconds: the longest wait that Kafka may impose on a producer.
        """
        recent = [each for each in self.past if each.until_seconds > at_seconds - window_seconds]
        if in_force is None and not recent:
            return None
        highest, put_back_bytes = in_force or 0, 0.0
        for each in recent:
            if each.put_back_seconds is None:
                highest = max(highest, each.bytes_per_second)
            else:
                put_back_bytes += each.bytes_per_second * min(each.put_back_seconds, window_seconds)
        least = ceil((highest * window_seconds + put_back_bytes) / (_AIM * max_told_wait_seconds + window_seconds))
        higher = (each for each in recent if each.bytes_per_second > (in_force or 0))
        left = (each.until_seconds + window_seconds - at_seconds for each in higher)
        return QuotaStep(least, max(left, default=float("inf")))


def full_rate_seconds(rate: float, floor: float, max_told_wait_seconds: float | None, window_seconds: float) -> float:
    """Return for how long producers at a rate write as much as they do while a quota goes down from it to the floor."""
    if max_told_wait_seconds is None:
        return 0.0
    share, written, present = window_seconds / (_AIM * max_told_wait_seconds + window_seconds), 0.0, rate
    while present * share > floor:
        present *= share
        written += present * window_seconds
    return written / rate


class QuotaReason(ClosedEnum):
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
        "Nothing asks for a quota there any more: a stop is over, the entity left the settings, or an operator ran "
        "`headgate act --release`.",
    )
    CHANGED_BY_HAND = "changed_by_hand", "Somebody else changed the quota: their value is what is put back in the end."
    CONFIRMED = "confirmed", "An operator declared the quota there to be the original (`act --release --forget`)."
    MISSING = "missing", "What should have been set was not there: put back by somebody, or it never reached Kafka."
    UNKNOWN_ORIGINAL = (
        "unknown_original",
        "Headgate may have set the quota there, and no record on the cluster tells what was there before.",
    )
    TIGHTER = "tighter", "The quota there is lower than what would be set: throttling never loosens."
    NO_BASE = "no_base", "The entity has neither a `base` nor a quota, so a factor of it is nothing."
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


WantedQuota: TypeAlias = WantedFactor[QuotaReason]
"""The factor that should be in force for a quota now."""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """The known state of one entity."""

    held: bool
    """Whether its quota may be one of ours."""
    baseline: Rate
    base: int | None
    """The rate at factor 1.0."""
    rates: tuple[int, ...] = ()
    """The rates that we have set since all brokers last showed our quota, the latest first."""


@dataclass(frozen=True, slots=True)
class QuotaSituation:
    """The inputs of a plan for one entity."""

    wanted: WantedQuota
    record: QuotaRecord | None
    found: Rate
    base: int | None
    floor: int
    recorded: Original | None = None
    is_unknown: bool = False
    """Whether `found` may be a rate of ours that no record explains."""
    is_original_new: bool = False
    """Whether the original appeared during the throttle. Then its removal is its owner's wish."""
    obstacle: QuotaReason | None = None
    """Why no throttling may begin here; throttling that has begun goes on."""
    least: int | None = None
    """The lowest rate to set now: below it, Kafka would make producers wait too long (`RatesInForce.step`)."""


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """The operation on one entity's quota."""

    verdict: LimitVerdict
    reason: QuotaReason
    rate: Rate
    """The rate that the entity should have; for `shadow` and refusals, the rate that it would have."""
    found: Rate
    record: QuotaRecord | None

    @property
    def holds(self) -> bool:
        """Whether the entity's quota is one of ours afterwards."""
        return self.record is not None and self.record.held


def plan(it: QuotaSituation) -> QuotaPlan:
    """Return the next operation on one entity's quota."""
    if it.is_unknown and it.record is None:
        return QuotaPlan(LimitVerdict.REFUSE, QuotaReason.UNKNOWN_ORIGINAL, it.found, it.found, None)
    held = it.record if it.record is not None and it.record.held else None
    baseline, by_hand = it.found, False
    if held is not None:
        # Strimzi's User Operator deletes each user's quota that no KafkaUser names. It is no change by hand.
        is_deleted = it.found is None and not it.is_original_new
        by_hand = not is_deleted and it.found != held.baseline and it.found not in held.rates
        baseline = it.found if by_hand else held.baseline
    # The base of the settings, or else the original quota, or else the recorded base of a held entity.
    base = it.base if it.base is not None else baseline
    if base is None and held is not None:
        base = held.base
    asked = _slow_down(it, base, baseline)
    stepped = _step_down(it, asked, baseline)
    target = stepped if it.wanted.applies else baseline
    if (refusal := _find_refusal(it, held, base, throttles=asked != baseline or base is None)) is not None:
        return QuotaPlan(LimitVerdict.REFUSE, refusal, asked, it.found, it.record)
    if target == stepped != asked:
        it = replace(it, wanted=replace(it.wanted, reason=QuotaReason.STEPPING))
    before = it.record.rates if it.record is not None else ()
    rates = tuple(dict.fromkeys(rate for rate in (target, *before) if rate is not None and rate != baseline))
    record = QuotaRecord(target != baseline, baseline, base, rates)
    planned = _plan_operation(it, held, target, record, by_hand=by_hand)
    if planned.verdict is LimitVerdict.KEEP and it.wanted.reason is QuotaReason.SHADOW:
        planned = QuotaPlan(LimitVerdict.KEEP, QuotaReason.SHADOW, asked, it.found, planned.record)
    _check(it, planned, baseline)
    return planned


def may_be_ours(found: Rate, base: int | None, floor: int, factors: Iterable[float]) -> bool:
    """Return whether a quota without a record equals the floor, or the base times one of the known factors."""
    throttling = (factor for factor in factors if factor < 1.0)
    return found is not None and (
        found == floor or (base is not None and any(found == max(int(base * factor), floor) for factor in throttling))
    )


def _slow_down(it: QuotaSituation, base: int | None, baseline: Rate) -> Rate:
    """Return the rate for the wanted factor: never below the floor, never looser than the original."""
    if it.wanted.factor >= 1.0 or (base is None and it.wanted.factor > 0.0):
        return baseline
    rate = max(int((base or 0) * it.wanted.factor), it.floor)
    return rate if baseline is None else min(rate, baseline)


def _step_down(it: QuotaSituation, asked: Rate, baseline: Rate) -> Rate:
    """Raise a rate to the lowest one that may be set now, but never above the present or the original quota."""
    if asked is None or it.least is None or it.wanted.factor >= 1.0:
        return asked
    bounds = [rate for rate in (it.found, baseline) if rate is not None]
    return max(asked, min([it.least, *bounds]))


def _find_refusal(
    it: QuotaSituation, held: QuotaRecord | None, base: int | None, *, throttles: bool
) -> QuotaReason | None:
    if it.wanted.factor >= 1.0 or it.wanted.reason is QuotaReason.RELEASED:
        return None
    if held is not None and it.wanted.reason is QuotaReason.SHADOW:
        return None  # The original quota is put back in any case.
    if base is None and it.wanted.factor > 0.0:
        return QuotaReason.NO_BASE
    return it.obstacle if throttles and held is None and it.wanted.applies else None


def _plan_operation(
    it: QuotaSituation, held: QuotaRecord | None, target: Rate, record: QuotaRecord, *, by_hand: bool
) -> QuotaPlan:
    reason = QuotaReason.CHANGED_BY_HAND if by_hand else it.wanted.reason
    if record.held:
        recorded = None if it.recorded is None else (it.recorded.baseline, it.recorded.latest)
        is_there = it.found == target and recorded == (record.baseline, target)
        verdict = LimitVerdict.KEEP if is_there else LimitVerdict.SET
        if not by_hand and it.found != target and held is not None and held.rates[:1] == (target,):
            reason = QuotaReason.MISSING
        return QuotaPlan(verdict, reason, target, it.found, record)
    in_place = it.found == target and (it.recorded is None or not it.recorded.is_held)
    if in_place and it.wanted.applies and it.wanted.factor < 1.0:
        reason = QuotaReason.TIGHTER
    remembered = record if held is not None else it.record
    return QuotaPlan(LimitVerdict.KEEP if in_place else LimitVerdict.RESTORE, reason, target, it.found, remembered)


def _check(it: QuotaSituation, planned: QuotaPlan, baseline: Rate) -> None:
    if planned.verdict is LimitVerdict.SET:
        rate, record = planned.rate, planned.record
        assert rate is not None, "a quota that is set has a rate"  # noqa: S101
        assert rate >= it.floor or rate == baseline, f"{rate} is below the floor {it.floor}"  # noqa: S101
        assert baseline is None or rate <= baseline, f"{rate} is looser than {baseline}"  # noqa: S101
        assert record is not None, "set without a record"  # noqa: S101
        assert record.held, "set without a record"  # noqa: S101
        assert rate in record.rates, f"{rate} is not recorded as ours"  # noqa: S101
    if planned.verdict is LimitVerdict.RESTORE:
        assert planned.rate == baseline, f"{planned.rate} was not there before"  # noqa: S101


# Who else sets a quota: how often it was put back, at which period, and when to look for the next time. Pure.

TIMES_CONTESTED = 3
"""A quota that was put back this many times is fought over."""
_KEPT = 5
_FORGOTTEN_AFTER_PERIODS = 3.0
_FORGOTTEN_AFTER_SECONDS = 900.0
_EARLY_SECONDS = 2.5
_LATE_SECONDS = 3.0
CLOSE_LOOK_SECONDS = 0.5
"""The time between two looks when a quota is expected to be put back."""
_OPEN_SHARE = 0.04
"""The time until the next look, as a share of the time since the quota was put back last."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The last times at which somebody else put one quota back. Seconds are those of any monotonic clock."""

    at: tuple[float, ...]
    value: Rate
    """The value that was found; None: the quota was removed."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody sets it again and again."""
        return len(self.at) >= TIMES_CONTESTED

    @property
    def period_seconds(self) -> float | None:
        """The median time between two, if it came back more than once."""
        between = sorted(after - before for before, after in pairwise(self.at))
        return between[len(between) // 2] if between else None

    def is_over(self, now: float) -> bool:
        """Whether it has not come back for so long that it need not be expected any more."""
        period = self.period_seconds
        patience = _FORGOTTEN_AFTER_SECONDS if period is None else _FORGOTTEN_AFTER_PERIODS * period + _LATE_SECONDS
        return now - self.at[-1] > patience

    def look_seconds(self, now: float, longest: float) -> float:
        """Return the time until the next look.

        If it came back at even intervals, that is often for a few seconds around each expected time. Otherwise it is a
        small share of the time since it came back last, so that the quota is open for at most that share.
        """
        *_, before, last = (0.0, 0.0, *(after - at for at, after in pairwise(self.at)))
        passed = now - self.at[-1]
        if not before or abs(last - before) > _LATE_SECONDS or last <= _EARLY_SECONDS + _LATE_SECONDS:
            return min(max(CLOSE_LOOK_SECONDS, _OPEN_SHARE * passed), longest)
        due = max(1, round(passed / last)) * last
        if due - _EARLY_SECONDS <= passed <= due + _LATE_SECONDS:
            return min(CLOSE_LOOK_SECONDS, longest)
        ahead = due if passed < due else due + last
        return min(ahead - _EARLY_SECONDS - passed, longest)


def note_put_back(before: Contest | None, now: float, value: Rate) -> Contest:
    """Return the contest after a quota was found put back; another value begins another contest."""
    at = before.at if before is not None and before.value == value else ()
    return Contest((*at, now)[-_KEPT:], value)
