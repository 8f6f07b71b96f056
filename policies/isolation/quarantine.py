"""Decides which unassigned bookies must be put into quarantine, and which quarantine orders end. Pure.

Headgate never takes a quarantine back, so an order rests on facts that have held for `settle` without a gap. A need
counts while it is unmet, too: a namespace that has lost one more bookie for the time of a restart needs the rest more
than before. Bookies are judged one after the other, each as if the orders on the earlier ones were carried out already.
Rules: docs/design/isolation.md.
"""

from collections.abc import Iterator, Mapping, Sequence, Sized

from msgspec.structs import replace

from policies.alerts import MOST_SINGLY
from policies.bookie_readings import BookieAffinity
from policies.decisions import Issuer, Mode, RepeatSchedule
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    QUARANTINE_RACK,
    BookieQuarantine,
    QuarantineReason,
    QuarantineVerdict,
)
from policies.isolation.fold import list_affinities
from policies.isolation.judge import IsolationFacts, PlacementJudgement, explain_portless, judge_placements
from policies.isolation.placement import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieState, Presence, QuarantineOrder, collect_cohorts
from policies.units import agreeing, counted, counted_with, format_duration, from_millis, millis_of, name_some

MANY = "unassigned-bookies"
"""Stands for a bookie's id in the subject of a decision about many bookies."""
_LAST = 2**63

Need = tuple[int, str]
"""How many bookies in no group namespaces need, and the first namespace that needs as many."""


def find_need(placements: Sequence[PlacementJudgement], *, has_groups: bool) -> Need:
    """Return the greatest need of all placements. No rule distinguishes bookies in no group, so their number suffices.

    Without groups every bookie is needed, because the first group would constrain all; the name is then empty.
    """
    need = (0 if has_groups else _LAST, "")
    for judged in placements:
        placed = judged.placed
        count = judged.ensemble_size - placed.count + len(placed.unassigned) if placed.takes_unassigned else 0
        if count > need[0]:
            need = count, judged.namespaces[0] if judged.namespaces else "namespaces without affinity"
    return need


def find_starved(need: Need, left: Sized) -> str | None:
    """Return the namespace that needs more than the bookies left in no group; None if there is none."""
    return need[1] if need[0] > len(left) else None


def find_starved_now(
    bookie: str, membership: BookieMembership, affinity: BookieAffinity, settings: IsolationSettings
) -> str | None:
    """Return the namespace of a cluster with groups that could not place data with one bookie in no group less."""
    placements = judge_placements(membership, collect_cohorts(list_affinities(affinity)), (), settings)
    return find_starved(find_need(placements, has_groups=True), membership.unassigned.members - {bookie})


def update_orders(
    before: Sequence[QuarantineOrder], facts: IsolationFacts, placements: Sequence[PlacementJudgement]
) -> tuple[tuple[QuarantineOrder, ...], tuple[QuarantineOrder, ...]]:
    """Return the quarantine orders in force after this step, by bookie, and those to publish: lifted ones first.

    Withheld quarantines without an order of their own are one order, with the empty name, if there are too many of
    them, or if the cluster has no groups at all.
    """
    remaining: dict[str, QuarantineOrder] = {}
    lifted: list[QuarantineOrder] = []
    known = {b.bookie: b for b in facts.known.bookies} if before else {}
    for order in before:
        reason = _judge_end(order, known.get(order.bookie), facts) if order.bookie else None
        if reason is not None:
            lifted.append(_lift(order, reason, facts))
        else:
            is_carried_out = order.carried_out or order.bookie in facts.quarantined
            remaining[order.bookie] = replace(order, carried_out=is_carried_out)
    judged = list(_judge_bookies(remaining, facts, placements))
    withheld = [order for order in judged if order.verdict is QuarantineVerdict.WITHHOLD]
    many = [order for order in withheld if order.bookie not in remaining]
    if len(withheld) <= MOST_SINGLY and not any(order.reason is QuarantineReason.NO_GROUPS for order in many):
        many = []
    after = dict(remaining)
    for order in judged:
        if order not in many:
            after[order.bookie] = _renew(remaining.get(order.bookie), order, facts)
    if many:
        after[""] = _gather(remaining.get(""), many)
    elif "" in after and (facts.is_settled or not facts.settings.acts):
        reason = QuarantineReason.FEWER if facts.settings.acts else QuarantineReason.SWITCHED_OFF
        lifted.append(_lift(after.pop(""), reason, facts))
    changed = [o for o in after.values() if o.published_ms == facts.now_ms and o != remaining.get(o.bookie)]
    return tuple(after[bookie] for bookie in sorted(after)), (*lifted, *changed)


def _judge_end(order: QuarantineOrder, bookie: BookieState | None, facts: IsolationFacts) -> QuarantineReason | None:
    if not facts.settings.acts:
        return QuarantineReason.SWITCHED_OFF
    if not facts.has_fresh_registrations:
        return None
    is_put_there = order.verdict is QuarantineVerdict.WITHHOLD and order.bookie in facts.quarantined
    if bookie is not None and (bookie.assigned or is_put_there):
        return QuarantineReason.ASSIGNED
    return QuarantineReason.GONE if bookie is None or bookie.presence is Presence.OFFLINE else None


def _judge_bookies(
    remaining: Mapping[str, QuarantineOrder], facts: IsolationFacts, placements: Sequence[PlacementJudgement]
) -> Iterator[QuarantineOrder]:
    """Make the order on every writable bookie that has been in no group for the grace; none while a reading is stale.

    Bookies with an order to quarantine them come first, then the others in the order of registration.
    """
    if not facts.settings.acts or not facts.is_fresh:
        return
    ordered = {b: order for b, order in remaining.items() if order.verdict is QuarantineVerdict.QUARANTINE}
    away = {b.bookie for b in facts.known.bookies if b.bookie in ordered and not b.takes_data}
    # An order is not repeated while its bookie is read-only, so it expires, and then keeps no place.
    valid_from_ms = facts.now_ms - millis_of(facts.settings.validity)
    taken = facts.quarantined | {b for b in away if ordered[b].published_ms > valid_from_ms}
    oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
    has_groups, unassigned = facts.membership.has_groups, facts.membership.unassigned.members
    due = [
        b
        for b in facts.notable
        if b.bookie in unassigned and (b.bookie in remaining or (b.since_ms <= oldest_ms and facts.may_order(b.bookie)))
    ]
    if not due:
        return
    need = settled = find_need(placements, has_groups=has_groups)
    if recent := _find_recent(facts):
        membership = BookieMembership(facts.membership.writable - recent, facts.membership.groups)
        without = judge_placements(membership, facts.known.cohorts, facts.known.promises, facts.settings)
        settled = find_need(without, has_groups=has_groups)
    is_waiting = _may_come_back(facts)
    due.sort(key=lambda b: (b.czxid or 0, b.registered_ms, b.bookie))
    for bookie in sorted(due, key=lambda b: b.bookie not in ordered):
        name = bookie.bookie
        left = unassigned - taken - {name}
        starved = find_starved(need, left) if name in ordered else find_starved(settled, left - recent)
        if (forbidden := _find_guard(name, starved, len(taken), facts)) is not None:
            needs_it = forbidden is QuarantineReason.WOULD_BE_INFEASIBLE
            yield _make_order(bookie, forbidden, (starved or "") if needs_it else "", facts)
        elif not is_waiting and facts.may_order(name):
            taken |= {name}
            yield _make_order(bookie, None, "", facts)


def _find_guard(bookie: str, starved: str | None, taken: int, facts: IsolationFacts) -> QuarantineReason | None:
    """Return the reason to withhold a quarantine that starves a namespace (see `find_need`), or None.

    `taken` is the number of bookies that are in quarantine or on their way there.
    """
    if starved == "":
        return QuarantineReason.NO_GROUPS
    if bookie in facts.portless:
        return QuarantineReason.RACK_ENTRY
    if taken >= facts.settings.max_quarantined:
        return QuarantineReason.MAX_QUARANTINED
    return QuarantineReason.WOULD_BE_INFEASIBLE if starved else None


def _find_recent(facts: IsolationFacts) -> frozenset[str]:
    """Return the writable bookies that came, or became writable, within `settle` and after the first readings."""
    oldest_ms = max(facts.known.complete_ms or 0, facts.now_ms - millis_of(facts.settings.settle))
    return frozenset(b.bookie for b in facts.known.bookies if b.takes_data and b.since_ms > oldest_ms)


def _may_come_back(facts: IsolationFacts) -> bool:
    """Whether a member of a group may come back: its cookie exists, and it left within the last `settle`."""
    oldest_ms = facts.now_ms - millis_of(facts.settings.settle)
    away = (b for b in facts.notable if b.assigned and b.presence is Presence.OFFLINE and b.has_cookie)
    return any(b.since_ms > oldest_ms for b in away)


def quarantine_due_ms(facts: IsolationFacts, orders: Sequence[QuarantineOrder]) -> Iterator[int]:
    """When (milliseconds since the epoch) an order may become right without a reading, or is due to be repeated."""
    if facts.settings.acts:
        settle_ms, schedule = millis_of(facts.settings.settle), order_schedule(facts.settings)
        yield facts.known.changed_ms + settle_ms
        yield from (b.since_ms + settle_ms for b in facts.known.bookies)
        pending = (order for order in orders if order.is_pending(facts.quarantined))
        yield from (schedule.due_ms(order.published_ms, order.repeat_at_ms) for order in pending)


def _make_order(
    bookie: BookieState, forbidden: QuarantineReason | None, starved: str, facts: IsolationFacts
) -> QuarantineOrder:
    return QuarantineOrder(
        bookie=bookie.bookie,
        session=bookie.session,
        czxid=bookie.czxid,
        registered_ms=bookie.registered_ms or 0,
        verdict=QuarantineVerdict.QUARANTINE if forbidden is None else QuarantineVerdict.WITHHOLD,
        reason=forbidden or QuarantineReason.UNASSIGNED,
        mode=facts.settings.mode,
        since_ms=facts.now_ms,
        published_ms=facts.now_ms,
        starved=starved,
    )


def _renew(before: QuarantineOrder | None, order: QuarantineOrder, facts: IsolationFacts) -> QuarantineOrder:
    """Return the order on a bookie after this step, published now if it changed or would expire.

    An order covers one registration, so a bookie that joins again gets a new order, and so does one that was taken out
    of quarantine.
    """
    schedule = order_schedule(facts.settings)
    repeat_at_ms = schedule.due_ms(facts.now_ms)
    if before is None or before.in_force != order.in_force or before.carried_out:
        return replace(order, repeat_at_ms=repeat_at_ms)
    is_due = facts.now_ms >= schedule.due_ms(before.published_ms, before.repeat_at_ms)
    if before.verdict is QuarantineVerdict.QUARANTINE and is_due:
        return replace(before, published_ms=facts.now_ms, repeat_at_ms=repeat_at_ms)
    return before


def _gather(before: QuarantineOrder | None, many: Sequence[QuarantineOrder]) -> QuarantineOrder:
    """Return the order on many bookies, published if another guard withholds it or the number of bookies doubled."""
    first, names = many[0], tuple(sorted(each.bookie for each in many)[:MOST_SINGLY])
    order = replace(first, bookie="", session=None, czxid=None, bookies=names, count=len(many))
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


def make_quarantine(order: QuarantineOrder, facts: IsolationFacts, issuer: Issuer, sequence: int) -> BookieQuarantine:
    """Make the decision of an order."""
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
    )


def explain_quarantine(order: QuarantineOrder, settings: IsolationSettings) -> str:
    """What to do with a bookie, or with many, and why."""
    allowed, is_one = "max_quarantined allows none", not order.bookies
    if most := settings.max_quarantined:
        are = agreeing(most, "is in quarantine or on its way there", "are in quarantine or on their way there")
        allowed = f"the {counted(most, 'bookie')} that max_quarantined allows {are}"
    without = "without it" if is_one else "with one fewer of them,"
    withheld = {
        QuarantineReason.MAX_QUARANTINED: allowed,
        QuarantineReason.WOULD_BE_INFEASIBLE: f"{without} {order.starved} could not place data",
        QuarantineReason.NO_GROUPS: "the cluster has no groups, and the first one would constrain every namespace",
        QuarantineReason.RACK_ENTRY: explain_portless(order.bookie) if is_one else "their rack entries lack the port",
    }
    if order.bookies:
        named = name_some(order.bookies, MOST_SINGLY, order.count)
        if order.verdict is QuarantineVerdict.LIFT:
            return f"The decision on {counted(order.count, 'bookie')} together is withdrawn: {named}."
        many = counted_with(order.count, "bookie", "is", "are")
        return f"{many} in no group, and an operator must decide: {withheld[order.reason]} ({named})."
    for_long = f"has been in no group for {format_duration(settings.grace)} or longer"
    reasons = {
        QuarantineReason.UNASSIGNED: for_long if settings.grace else "is in no group",
        QuarantineReason.ASSIGNED: "is in a group now",
        QuarantineReason.GONE: "is no longer registered",
        QuarantineReason.SWITCHED_OFF: "is no longer to be quarantined, because quarantine is switched off",
    }
    not_done = ""
    if order.mode is Mode.SHADOW:
        why = "the policy is paused" if settings.frozen_until is not None else "this is shadow mode"
        not_done = f"; {why}, nothing is carried out"
    match order.verdict:
        case QuarantineVerdict.WITHHOLD:
            what = f"is in no group, but {withheld[order.reason]}: an operator must decide"
        case QuarantineVerdict.QUARANTINE:
            what = f"{reasons[order.reason]}: it should be put into {QUARANTINE_GROUP}{not_done}"
        case QuarantineVerdict.LIFT:
            what = f"{reasons[order.reason]}: no action is needed"
    return f"Bookie {order.bookie} {what}."
