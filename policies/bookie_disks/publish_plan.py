"""The next operation on one publish limit, and the record to write first: from the wanted, recorded and found values.

Pure. Invariants, asserted on each plan:
- no rate that is set is below the floor, nor above the original limit: throttling never loosens, and never sets 0;
- at factor 1.0 exactly the original limit is restored;
- before a rate is set, it and the original limit are recorded.

By the record, a found limit is one of ours, or the original, or else an operator's own change, which then becomes the
limit to restore.
"""

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from policies.free_space.publication import LimitVerdict, WantedFactor
from policies.units import ClosedEnum

_REMEMBERED_RATES = 4


class PublishReason(ClosedEnum):
    """The cause of the operation."""

    DECIDED = "decided", "By the decision in force."
    STALE = "stale", "The decision in force has expired without a successor: what `expired_action` makes of it applies."
    SHADOW = "shadow", "The decision is published only: nothing is set, and what was set is taken back."
    RELEASED = "released", "By `headgate act --release`, or the group has no decision any more."
    CHANGED_BY_HAND = "changed_by_hand", "An operator changed the limit: their value is put back in the end."
    TIGHTER = "tighter", "The limit there is lower than the one that would be set: throttling never loosens."
    NO_BASE = "no_base", "There is neither a `base` nor a limit, so a factor of it is nothing."


class FoundLimit(Struct, frozen=True):
    """A limit as it was found."""

    rate: int | None
    """Bytes per second; None: no limit."""
    document: str | None
    """The limit as Pulsar has it, with which it is put back exactly; None: there is none."""


class PublishRecord(Struct, frozen=True):
    """The record of one limit. It is kept in a property of a namespace, on the watched cluster itself."""

    original: FoundLimit
    rates: tuple[int, ...] = ()
    """The rates that Headgate may have set, the latest first."""


WantedShare: TypeAlias = WantedFactor[PublishReason]
"""The factor that should be in force for a limit now."""
RELEASED_SHARE = WantedShare(1.0, PublishReason.RELEASED)


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """The operation on one limit."""

    verdict: LimitVerdict
    reason: PublishReason
    rate: int | None
    """The rate that it should have; None: none."""
    found: FoundLimit
    record: PublishRecord | None
    """To be written before a rate is set; None: to be deleted after the original limit is put back."""
    original: FoundLimit | None = None
    """The limit to put back; None: the found one stays."""

    @property
    def highest_rate(self) -> int | None:
        """The highest rate that may be in force while the operation is carried out; None if there may be no limit."""
        return None if self.rate is None or self.found.rate is None else max(self.rate, self.found.rate)


def plan_publish(
    wanted: WantedShare, record: PublishRecord | None, found: FoundLimit, base: int | None, floor: int
) -> PublishPlan:
    """Return the next operation on one limit.

    Args:
        record: the limit's record; None: it is not one of ours.
        base: the rate at factor 1.0, of the settings.
    """
    is_ours = record is not None and (found.rate in record.rates or found == record.original)
    original = record.original if record is not None and is_ours else found
    reason = wanted.reason if is_ours or record is None else PublishReason.CHANGED_BY_HAND
    if not wanted.slows:
        return _put_back(original if is_ours else None, record, found, reason)
    full = base if base is not None else original.rate
    if full is None:
        return PublishPlan(LimitVerdict.REFUSE, PublishReason.NO_BASE, None, found, record)
    rate = max(int(full * wanted.factor), floor)
    if original.rate is not None and original.rate <= rate:
        return _put_back(original if is_ours else None, record, found, PublishReason.TIGHTER)
    rates = tuple(dict.fromkeys((rate, *(record.rates if record else ()))))[:_REMEMBERED_RATES]
    kept = found.rate == rate and record is not None and is_ours
    verdict = LimitVerdict.KEEP if kept else LimitVerdict.SET
    planned = PublishPlan(verdict, reason, rate, found, PublishRecord(original, rates))
    _check(planned, original, floor)
    return planned


def _put_back(
    original: FoundLimit | None, record: PublishRecord | None, found: FoundLimit, reason: PublishReason
) -> PublishPlan:
    verdict = LimitVerdict.KEEP if record is None else LimitVerdict.RESTORE
    return PublishPlan(verdict, reason, (original or found).rate, found, None, original)


def _check(planned: PublishPlan, original: FoundLimit, floor: int) -> None:
    rate, record = planned.rate, planned.record
    assert rate is not None and rate >= floor > 0, f"{rate} is below the floor {floor}"  # noqa: S101, PT018
    assert original.rate is None or rate <= original.rate, f"{rate} is looser than {original.rate}"  # noqa: S101
    assert record is not None and rate in record.rates, f"{rate} is not recorded as ours"  # noqa: S101, PT018
