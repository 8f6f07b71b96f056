"""Publishes what differs from the last publication: changed placements, and quarantine orders that are new or due."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from policies.decisions import Decision, Issuer
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    QUARANTINE_RACK,
    BookieQuarantine,
    QuarantineReason,
    QuarantineVerdict,
)
from policies.isolation.emit_placements import emit_placements
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.judge.quarantine import QuarantineJudgement
from policies.isolation.messages import MOST_SINGLY, explain_quarantine
from policies.isolation.otherwise import quarantined_otherwise
from policies.isolation.settings import IsolationSettings, Quarantine
from policies.isolation.state import IsolationState, PublishedPlacements, QuarantineOrder
from policies.succession import ends_at, next_sequence, repeated_after, repeated_by
from policies.units import from_millis, millis_of

MANY = "unassigned-bookies"
"""In place of a bookie's id in the subject of a decision about many."""


@dataclass(frozen=True, slots=True)
class EmittedIsolation:
    """What comes of one step."""

    decisions: tuple[Decision, ...]
    published: tuple[PublishedPlacements, ...]
    orders: tuple[QuarantineOrder, ...]
    """In force after this step, by bookie."""
    sequence: int


@dataclass(slots=True)
class _SequenceCounter:
    """Hands out sequence numbers within a step."""

    last: int
    now_ms: int

    def next(self, *, is_first: bool) -> int:
        """The next one of the cluster; `is_first` of its subject."""
        self.last = next_sequence(self.last, self.now_ms, is_first=is_first)
        return self.last


def emit(
    judgement: IsolationJudgement, facts: IsolationFacts, before: IsolationState, issuer: Issuer
) -> EmittedIsolation:
    """Hold the verdicts against what was published last."""
    numbers = _SequenceCounter(before.sequence, facts.now_ms)
    placements, published = emit_placements(judgement, facts, before.published, issuer, numbers.next)
    orders, news = _orders(judgement, facts)
    ordered = {order.bookie for order in before.orders}
    quarantines = [
        _quarantine(order, facts, issuer, numbers.next(is_first=order.bookie not in ordered)) for order in news
    ]
    return EmittedIsolation((*placements, *quarantines), published, orders, numbers.last)


def _orders(
    judgement: IsolationJudgement, facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, ...], tuple[QuarantineOrder, ...]]:
    """The quarantine orders in force after this step, by bookie, and those to publish: lifts first."""
    before = judgement.standing
    lifted = [_lifted(order, reason, facts) for order, reason in judgement.ended]
    singly, many = _parted(judgement)
    decided = [_order(before.get(judged.bookie.bookie), judged, facts) for judged in singly]
    after = before | {order.bookie: order for order in decided}
    if many:
        after[""] = _order_on_many(before.get(""), many, facts)
    elif (ended := _why_no_longer_many(before.get(""), facts)) is not None:
        lifted.append(_lifted(after.pop(""), ended, facts))
    news = [o for o in after.values() if o.published_ms == facts.now_ms and o != before.get(o.bookie)]
    return tuple(after[bookie] for bookie in sorted(after)), (*lifted, *news)


def _parted(judgement: IsolationJudgement) -> tuple[list[QuarantineJudgement], list[QuarantineJudgement]]:
    """The verdicts that are said singly, and those withheld that are too many for that, or all for want of any group.

    What has an order of its own keeps it: nobody is to hear twice of one bookie.
    """
    withheld = [j for j in judgement.quarantines if j.verdict is QuarantineVerdict.WITHHOLD]
    others = [j for j in withheld if j.bookie.bookie not in judgement.standing]
    if len(withheld) <= MOST_SINGLY and not any(j.reason is QuarantineReason.NO_GROUPS for j in others):
        return list(judgement.quarantines), []
    many = {j.bookie.bookie for j in others}
    return [j for j in judgement.quarantines if j.bookie.bookie not in many], others


def _order(before: QuarantineOrder | None, judged: QuarantineJudgement, facts: IsolationFacts) -> QuarantineOrder:
    """The order on a bookie after this step; published now if it is news, or if it must not run out.

    It is about one registration: a bookie that joins again gets another.
    """
    bookie, inside = judged.bookie, judged.bookie.bookie in facts.quarantined
    order = QuarantineOrder(
        bookie=bookie.bookie,
        session=bookie.session,
        czxid=bookie.czxid,
        registered_ms=bookie.since_ms if bookie.registered_ms is None else bookie.registered_ms,
        verdict=judged.verdict,
        reason=judged.reason,
        mode=facts.settings.mode,
        since_ms=facts.now_ms,
        published_ms=facts.now_ms,
        starved=judged.starved,
        repeat_at_ms=facts.now_ms + _repeated_after_ms(facts.settings),
    )
    if before is None or before.in_force != order.in_force or (before.carried_out and not inside):
        return order
    if inside:
        return replace(before, carried_out=True)
    if before.is_pending(facts.quarantined) and facts.now_ms >= renewal_ms(before, facts.settings):
        return replace(before, published_ms=facts.now_ms, repeat_at_ms=order.repeat_at_ms)
    return before


def _order_on_many(
    before: QuarantineOrder | None, many: Sequence[QuarantineJudgement], facts: IsolationFacts
) -> QuarantineOrder:
    """One order on all of these; news when the guard is another, or when there are twice as many as it said."""
    first = many[0]
    order = QuarantineOrder(
        bookie="",
        session=None,
        czxid=None,
        registered_ms=first.bookie.since_ms if first.bookie.registered_ms is None else first.bookie.registered_ms,
        verdict=first.verdict,
        reason=first.reason,
        mode=facts.settings.mode,
        since_ms=facts.now_ms,
        published_ms=facts.now_ms,
        starved=first.starved,
        bookies=tuple(sorted(j.bookie.bookie for j in many)[:MOST_SINGLY]),
        count=len(many),
    )
    if before is None or before.in_force != order.in_force or order.count >= 2 * before.count:
        return order
    return replace(before, count=min(before.count, order.count))


def _why_no_longer_many(before: QuarantineOrder | None, facts: IsolationFacts) -> QuarantineReason | None:
    if before is None:
        return None
    if facts.settings.quarantine is Quarantine.OFF:
        return QuarantineReason.SWITCHED_OFF
    return QuarantineReason.FEWER if facts.all_fresh else None


def _lifted(order: QuarantineOrder, reason: QuarantineReason, facts: IsolationFacts) -> QuarantineOrder:
    return replace(
        order,
        verdict=QuarantineVerdict.LIFT,
        reason=reason,
        mode=facts.settings.mode,
        since_ms=facts.now_ms,
        published_ms=facts.now_ms,
    )


def renewal_ms(order: QuarantineOrder, settings: IsolationSettings) -> int:
    """When an order that nobody carried out is repeated: well before it runs out."""
    return repeated_by(order.published_ms + _repeated_after_ms(settings), order.repeat_at_ms)


def _repeated_after_ms(settings: IsolationSettings) -> int:
    return max(1, millis_of(repeated_after(settings.validity / 2, valid_for=2)))


def _quarantine(order: QuarantineOrder, facts: IsolationFacts, issuer: Issuer, sequence: int) -> BookieQuarantine:
    subject = f"{facts.cluster}/{order.bookie or MANY}"
    return BookieQuarantine(
        **issuer.header(subject, sequence, facts.now, about=("quarantine", subject)),
        verdict=order.verdict,
        reason=order.reason,
        explanation=explain_quarantine(order, facts.settings),
        evidence=facts.evidence,
        numbers={
            "quarantined": sorted(facts.quarantined)[:MOST_SINGLY],
            "quarantined_count": len(facts.quarantined),
            "max_quarantined": facts.settings.max_quarantined,
        },
        bookie=order.bookie or order.bookies[0],
        count=order.count,
        bookies=order.bookies,
        group=QUARANTINE_GROUP,
        rack=QUARANTINE_RACK,
        session=order.session,
        czxid=order.czxid,
        registered_at=from_millis(order.registered_ms),
        valid_until=ends_at(facts.now, facts.settings.validity),
        otherwise=quarantined_otherwise(order, facts),
    )
