"""Judges which unassigned bookies must be quarantined, and which quarantine orders end.

Three guards prevent mass mistakes. The cluster must have groups; `max_quarantined` bounds the bookies in quarantine;
each namespace that can place its data now must still be able to. Bookies are judged one after the other, each as if the
orders on the earlier ones were carried out already.

A quarantine cannot be taken back, so it needs the guards' consent twice: by the last readings, and by what two readings
have confirmed. A single reading that shows a group's member, or lacks a namespace, lifts no guard.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.comparison import Comparison, Relation
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.facts import IsolationFacts, Picture
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.settings import IsolationSettings, Quarantine
from policies.isolation.state import BookieState, Presence, QuarantineOrder
from policies.units import millis_of

_LAST = 2**63
_Needs = Sequence[tuple[int, str]]
Placements = tuple[Sequence[PlacementJudgement], Sequence[PlacementJudgement]]
"""The verdicts on namespaces, by the last readings and by confirmed ones."""


@dataclass(frozen=True, slots=True)
class QuarantineJudgement:
    """The verdict on one unassigned bookie."""

    bookie: BookieState
    verdict: QuarantineVerdict
    reason: QuarantineReason
    starved: str = ""
    """The namespaces that could not place data without it, if that is the reason."""


def judge_ends(
    orders: Sequence[QuarantineOrder], facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, QuarantineReason], ...]:
    """Return the orders that end now, and why.

    An order on many bookies ends when none of them is left, which `emit` finds out from the verdicts.
    """
    known = {b.bookie: b for b in facts.known.bookies} if orders else {}
    ended = ((order, _judge_end(order, known.get(order.bookie), facts)) for order in orders if order.bookie)
    return tuple((order, reason) for order, reason in ended if reason is not None)


def _judge_end(order: QuarantineOrder, bookie: BookieState | None, facts: IsolationFacts) -> QuarantineReason | None:
    if facts.settings.quarantine is Quarantine.OFF:
        return QuarantineReason.SWITCHED_OFF
    if not facts.has_fresh_registrations:
        return None
    is_put_there = order.verdict is QuarantineVerdict.WITHHOLD and order.bookie in facts.quarantined
    if bookie is not None and (bookie.assigned or is_put_there):
        return QuarantineReason.ASSIGNED
    return QuarantineReason.GONE if bookie is None or bookie.presence is Presence.OFFLINE else None


def judge_quarantines(
    standing: Mapping[str, QuarantineOrder], facts: IsolationFacts, placements: Placements
) -> Iterator[QuarantineJudgement]:
    """Judge every writable bookie that has been unassigned for the grace; none while a reading is stale.

    They are judged in the order of registration. Bookies with an order to quarantine them come first, so that a
    newcomer does not take their place.

    Args:
        standing: the orders that remain in force, by bookie.
        placements: the verdicts on namespaces, by the last readings and by confirmed ones.
    """
    if facts.settings.quarantine is Quarantine.OFF or not facts.is_fresh:
        return
    ordered = {b: order for b, order in standing.items() if order.verdict is QuarantineVerdict.QUARANTINE}
    away = {b.bookie for b in facts.known.bookies if b.bookie in ordered and not b.takes_data}
    # An order is not repeated while its bookie is read-only, so it expires, and then keeps no place.
    valid_from_ms = facts.now_ms - millis_of(facts.settings.validity)
    taken = facts.quarantined | {b for b in away if ordered[b].published_ms > valid_from_ms}
    oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
    doubtful = facts.doubtful_bookies()
    due = [
        b
        for b in facts.notable
        if b.assigned is False
        and b.takes_data
        and (b.bookie in standing or (b.since_ms <= oldest_ms and b.bookie not in doubtful and not facts.disputed))
    ]
    if not due:
        return
    pictures = [(facts.read, _collect_needs(placements[0]))]
    if facts.confirmed is not facts.read:
        pictures.append((facts.confirmed, _collect_needs(placements[1])))
    for bookie in sorted(due, key=lambda b: (b.bookie not in ordered, *_registration_order(b))):
        if bookie.bookie in facts.quarantined:
            if bookie.bookie in ordered:
                yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)
            continue
        forbidden, starved = _guard(bookie.bookie, taken, facts, pictures)
        if forbidden is not None:
            yield QuarantineJudgement(bookie, QuarantineVerdict.WITHHOLD, forbidden, starved)
        elif bookie.bookie not in doubtful and not facts.disputed:
            taken |= {bookie.bookie}
            yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)


def _registration_order(bookie: BookieState) -> tuple[int, int, str]:
    return (_LAST if bookie.czxid is None else bookie.czxid, bookie.registered_ms or bookie.since_ms, bookie.bookie)


def _collect_needs(placements: Sequence[PlacementJudgement]) -> _Needs:
    """List the namespaces that can place data now and need bookies in no group for it, each with the number.

    A quarantine takes away one bookie in no group. No rule distinguishes these bookies, so their number suffices.
    """
    needs: list[tuple[int, str]] = []
    for judged in placements:
        needed = judged.placed.needed_unassigned(judged.ensemble_size) if judged.placed.feasible else 0
        # The first namespace that a quarantine starves needs more than all before it, so only those are listed.
        if needed > (needs[-1][0] if needs else 0):
            needs.append((needed, judged.namespaces[0] if judged.namespaces else "namespaces without affinity"))
    return needs


def _guard(
    bookie: str, taken: frozenset[str], facts: IsolationFacts, pictures: Sequence[tuple[Picture, _Needs]]
) -> tuple[QuarantineReason | None, str]:
    """Return the guard that forbids the quarantine of a bookie, or None; and the namespaces that it would starve."""
    if not (facts.membership.has_groups and facts.confirmed.membership.has_groups):
        return QuarantineReason.NO_GROUPS, ""
    if not limit_quarantined(len(taken), facts.settings).holds:
        return QuarantineReason.MAX_QUARANTINED, ""
    for picture, needs in pictures:
        left = len(picture.membership.unassigned.members - taken - {bookie})
        starved = next((name for needed, name in needs if needed > left), None)
        if starved is not None:
            return QuarantineReason.WOULD_BE_INFEASIBLE, starved
    return None, ""


def limit_quarantined(count: int, settings: IsolationSettings) -> Comparison:
    """Return the comparison that must hold before one more bookie is quarantined."""
    return Comparison(count, Relation.LESS, settings.max_quarantined)
