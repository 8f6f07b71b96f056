"""Publishes verdicts that differ from the last publication: changed placements, and quarantine orders new or due."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from policies.decisions import Decision, Issuer
from policies.isolation.counterfactuals import derive_quarantine_counterfactuals
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
from policies.isolation.settings import IsolationSettings, Quarantine
from policies.isolation.state import IsolationState, PublishedPlacements, QuarantineOrder
from policies.publication import Publication, RepeatSchedule
from policies.units import from_millis

MANY = "unassigned-bookies"
"""Stands for a bookie's id in the subject of a decision about many bookies."""


@dataclass(frozen=True, slots=True)
class EmittedIsolation:
    """The publications of one step."""

    decisions: tuple[Decision, ...]
    published: tuple[PublishedPlacements, ...]
    orders: tuple[QuarantineOrder, ...]
    """The orders in force after this step, by bookie."""
    sequence: int
    has_more: bool
    """Whether more placements are to be published as soon as possible."""


def emit(
    judgement: IsolationJudgement, facts: IsolationFacts, before: IsolationState, issuer: Issuer
) -> EmittedIsolation:
    """Compare the verdicts with the last publications, and return what to publish."""
    publication = Publication(facts.now_ms, before.sequence)
    placements = emit_placements(judgement, facts, before.published, issuer, publication)
    orders, changed = _update_orders(judgement, facts)
    known = {order.bookie for order in before.orders}
    taken_count = len(facts.quarantined.union(o.bookie for o in orders if o.verdict is QuarantineVerdict.QUARANTINE))
    quarantines = [
        _make_quarantine(order, facts, issuer, publication.next(is_first=order.bookie not in known), taken_count)
        for order in changed
    ]
    decisions = (*placements.decisions, *quarantines)
    return EmittedIsolation(decisions, placements.published, orders, publication.sequence, placements.has_more)


def _update_orders(
    judgement: IsolationJudgement, facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, ...], tuple[QuarantineOrder, ...]]:
    """Return the quarantine orders in force after this step, by bookie, and those to publish: lifted ones first."""
    before = judgement.standing
    lifted = [_lift(order, reason, facts) for order, reason in judgement.ended]
    singly, many = _split(judgement)
    decided = [_update_order(before.get(judged.bookie.bookie), judged, facts) for judged in singly]
    after = before | {order.bookie: order for order in decided}
    last_on_many = before.get("")
    if many:
        after[""] = _update_order_on_many(last_on_many, many, facts)
    elif last_on_many is not None and (facts.settings.quarantine is Quarantine.OFF or facts.is_fresh):
        is_off = facts.settings.quarantine is Quarantine.OFF
        reason = QuarantineReason.SWITCHED_OFF if is_off else QuarantineReason.FEWER
        lifted.append(_lift(after.pop(""), reason, facts))
    changed = [o for o in after.values() if o.published_ms == facts.now_ms and o != before.get(o.bookie)]
    return tuple(after[bookie] for bookie in sorted(after)), (*lifted, *changed)


def _split(judgement: IsolationJudgement) -> tuple[list[QuarantineJudgement], list[QuarantineJudgement]]:
    """Split the verdicts into those published one by one and those published as one decision about many bookies.

    Withheld quarantines are published together if there are too many of them, or if the cluster has no groups at all. A
    bookie that has an order of its own keeps it, so that no bookie is reported twice.
    """
    withheld = [j for j in judgement.quarantines if j.verdict is QuarantineVerdict.WITHHOLD]
    others = [j for j in withheld if j.bookie.bookie not in judgement.standing]
    if len(withheld) <= MOST_SINGLY and not any(j.reason is QuarantineReason.NO_GROUPS for j in others):
        return list(judgement.quarantines), []
    many = {j.bookie.bookie for j in others}
    return [j for j in judgement.quarantines if j.bookie.bookie not in many], others


def _make_order(judged: QuarantineJudgement, facts: IsolationFacts) -> QuarantineOrder:
    bookie = judged.bookie
    return QuarantineOrder(
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
    )


def _update_order(
    before: QuarantineOrder | None, judged: QuarantineJudgement, facts: IsolationFacts
) -> QuarantineOrder:
    """Return the order on a bookie after this step, published now if it changed or would expire.

    An order covers one registration, so a bookie that joins again gets a new order.
    """
    is_inside = judged.bookie.bookie in facts.quarantined
    schedule = order_schedule(facts.settings)
    repeat_at_ms = schedule.due_ms(facts.now_ms)
    order = replace(_make_order(judged, facts), repeat_at_ms=repeat_at_ms)
    if before is None or before.in_force != order.in_force or (before.carried_out and not is_inside):
        return order
    if is_inside:
        return replace(before, carried_out=True)
    is_due = facts.now_ms >= schedule.due_ms(before.published_ms, before.repeat_at_ms)
    if before.is_pending(facts.quarantined) and is_due:
        return replace(before, published_ms=facts.now_ms, repeat_at_ms=repeat_at_ms)
    return before


def _update_order_on_many(
    before: QuarantineOrder | None, many: Sequence[QuarantineJudgement], facts: IsolationFacts
) -> QuarantineOrder:
    """Return the order on many bookies, published if another guard withholds it or the number of bookies doubled."""
    order = replace(
        _make_order(many[0], facts),
        bookie="",
        session=None,
        czxid=None,
        bookies=tuple(sorted(j.bookie.bookie for j in many)[:MOST_SINGLY]),
        count=len(many),
    )
    if before is None or before.in_force != order.in_force or order.count >= 2 * before.count:
        return order
    return replace(before, count=min(before.count, order.count))


def _lift(order: QuarantineOrder, reason: QuarantineReason, facts: IsolationFacts) -> QuarantineOrder:
    return replace(
        order,
        verdict=QuarantineVerdict.LIFT,
        reason=reason,
        mode=facts.settings.mode,
        since_ms=facts.now_ms,
        published_ms=facts.now_ms,
    )


def order_schedule(settings: IsolationSettings) -> RepeatSchedule:
    """Return when an order that is not carried out is repeated: well before it expires."""
    return RepeatSchedule(settings.validity / 2, valid_for=2)


def _make_quarantine(
    order: QuarantineOrder, facts: IsolationFacts, issuer: Issuer, sequence: int, taken_count: int
) -> BookieQuarantine:
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
        valid_until=order_schedule(facts.settings).ends_at(facts.now),
        otherwise=derive_quarantine_counterfactuals(order, facts, taken_count),
    )
