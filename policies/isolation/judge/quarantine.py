"""Which bookies are to be quarantined: verdicts on unassigned bookies, and what ends a quarantine.

Guards limit mass mistakes. They are evaluated for one bookie after the other, as if each earlier order had been carried
out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.settings import Quarantine, Unaffine
from policies.isolation.state import BookieState, Presence, QuarantineOrder
from policies.units import millis_of

_LAST = 2**63


@dataclass(frozen=True, slots=True)
class QuarantineJudgement:
    """What is to become of one unassigned bookie."""

    bookie: BookieState
    verdict: QuarantineVerdict
    reason: QuarantineReason
    starved: str = ""
    """Who could not place data without it, where that is the reason."""


def judge_quarantines(
    kept: Mapping[str, QuarantineOrder], facts: IsolationFacts, placements: Sequence[PlacementJudgement]
) -> tuple[QuarantineJudgement, ...]:
    """The verdict on every bookie that ought to be in quarantine; none while that cannot be told.

    Args:
        kept: the orders that stand, by bookie.
        facts: what is the case now.
        placements: the verdicts on namespaces.
    """
    if facts.settings.quarantine is Quarantine.OFF or not facts.all_fresh:
        return ()
    return tuple(_wanted(kept, facts, placements))


def judge_ends(
    orders: Sequence[QuarantineOrder], facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, QuarantineReason], ...]:
    """The orders that no longer stand, and why."""
    known = {b.bookie: b for b in facts.known.bookies}
    # The one about many has no bookie of its own: it ends when none of them is left, which is for `emit` to see.
    ended = ((order, _ended(order, known.get(order.bookie), facts)) for order in orders if order.bookie)
    return tuple((order, reason) for order, reason in ended if reason is not None)


def _ended(order: QuarantineOrder, bookie: BookieState | None, facts: IsolationFacts) -> QuarantineReason | None:
    """Why an order is lifted now, or None while it stands."""
    if facts.settings.quarantine is Quarantine.OFF:
        return QuarantineReason.SWITCHED_OFF
    if not facts.registrations_fresh:
        return None
    is_put_there = order.verdict is QuarantineVerdict.WITHHOLD and order.bookie in facts.quarantined
    if bookie is not None and (bookie.assigned or is_put_there):
        return QuarantineReason.ASSIGNED
    return QuarantineReason.GONE if bookie is None or bookie.presence is Presence.OFFLINE else None


def _wanted(
    kept: Mapping[str, QuarantineOrder], facts: IsolationFacts, placements: Sequence[PlacementJudgement]
) -> Iterator[QuarantineJudgement]:
    """The verdict on every writable bookie that has been unassigned for the grace, as they registered.

    Those on their way into quarantine come first, so that a newcomer does not take their place.
    """
    on_the_way = {b for b, order in kept.items() if order.verdict is QuarantineVerdict.QUARANTINE}
    taken = facts.quarantined | {b.bookie for b in facts.known.bookies if b.bookie in on_the_way and not b.takes_data}
    ripe = [b for b in facts.known.bookies if _is_ripe(b, kept, facts)]
    needs = _Needs(facts, placements)
    for bookie in sorted(ripe, key=lambda b: (b.bookie not in on_the_way, *_registration_order(b))):
        if bookie.bookie in facts.quarantined:
            if bookie.bookie in on_the_way:
                yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)
            continue
        forbidden, starved = _forbidden(taken, facts, needs)
        if forbidden is None:
            taken |= {bookie.bookie}
            yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)
        else:
            yield QuarantineJudgement(bookie, QuarantineVerdict.WITHHOLD, forbidden, starved)


def _is_ripe(bookie: BookieState, kept: Mapping[str, QuarantineOrder], facts: IsolationFacts) -> bool:
    if bookie.assigned is not False or not bookie.takes_data:
        return False
    return bookie.bookie in kept or facts.now_ms >= bookie.since_ms + millis_of(facts.settings.grace)


def _registration_order(bookie: BookieState) -> tuple[int, int, str]:
    return (_LAST if bookie.czxid is None else bookie.czxid, bookie.registered_ms or bookie.since_ms, bookie.bookie)


def _forbidden(taken: frozenset[str], facts: IsolationFacts, needs: "_Needs") -> tuple[QuarantineReason | None, str]:
    """The guard that forbids one more, or None; and who could not place data, where that is the reason."""
    if not facts.membership.groups:
        return QuarantineReason.NO_GROUPS, ""
    if len(taken) >= facts.settings.max_quarantined:
        return QuarantineReason.MAX_QUARANTINED, ""
    starved = needs.starved(taken)
    return (None, "") if starved is None else (QuarantineReason.WOULD_BE_INFEASIBLE, starved)


class _Needs:
    """Who can place data now and needs bookies in no group for it, and how many.

    What a quarantine takes away is one bookie in no group, whichever it is: no rule asks more of it.
    """

    def __init__(self, facts: IsolationFacts, placements: Sequence[PlacementJudgement]) -> None:
        self._unassigned = facts.membership.unassigned.members
        self._needs: list[tuple[int, str]] = []
        settings = facts.settings
        if settings.unaffine is Unaffine.UNGROUPED and settings.ensemble_size <= len(self._unassigned):
            self._needs.append((settings.ensemble_size, "namespaces without affinity"))
        for judged in placements:
            if judged.placed.feasible and (needed := judged.placed.needed_unassigned(judged.ensemble_size)):
                self._needs.append((needed, judged.namespaces[0]))
        self._most = max((needed for needed, _ in self._needs), default=0)

    def starved(self, taken: frozenset[str]) -> str | None:
        """The first who could not, with these in quarantine and one more."""
        left = len(self._unassigned) - len(self._unassigned & taken) - 1
        if left >= self._most:
            return None
        return next(name for needed, name in self._needs if needed > left)
