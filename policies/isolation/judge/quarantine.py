"""Judges which unassigned bookies must be quarantined, and which quarantine orders end.

Three guards prevent mass mistakes. The cluster must have groups; `max_quarantined` bounds the bookies in quarantine; no
bookie is taken that a namespace needs to reach its ensemble. A need counts while it is unmet, too: a namespace that has
lost one more bookie for the time of a restart needs the rest more than before. Bookies are judged one after the other,
each as if the orders on the earlier ones were carried out already.

Headgate never takes a quarantine back, so an order rests on facts that have held for `settle` without a gap. The needs
grow when bookies leave and shrink when they come back, so it suffices that a greater need still counts for `settle`
after its end, and that a bookie joined that long ago before others may be taken in its favour. A need that only one
reading lacks (a group's new member, a missing namespace) has not ended before a second reading agrees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from policies.comparison import Comparison, Relation
from policies.isolation.decisions import QuarantineReason, QuarantineVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.settings import IsolationSettings, Quarantine
from policies.isolation.state import (
    NEVER,
    BookieState,
    Presence,
    QuarantineNeed,
    QuarantineNeeds,
    QuarantineOrder,
)
from policies.units import millis_of

_LAST = 2**63
_EVERY_BOOKIE = _LAST


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
    standing: Mapping[str, QuarantineOrder],
    facts: IsolationFacts,
    needed: Sequence[QuarantineNeed],
    needs: QuarantineNeeds,
) -> Iterator[QuarantineJudgement]:
    """Judge every writable bookie that has been unassigned for the grace; none while a reading is stale.

    They are judged in the order of registration. Bookies with an order to quarantine them come first, so that a
    newcomer does not take their place, and only a need of this moment takes such an order back.

    Args:
        standing: the orders that remain in force, by bookie.
        needed: the present needs, as from `collect_needs`.
        needs: the needs of the last `settle`.
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
    guard = _Guard(facts, needed, needs.greatest, _find_settled(facts, needs), frozenset(ordered))
    is_waiting = bool(facts.disputed) or any(_find_absent(facts))
    for bookie in sorted(due, key=lambda b: (b.bookie not in ordered, *_registration_order(b))):
        name = bookie.bookie
        if name in facts.quarantined:
            if name in ordered:
                yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)
            continue
        forbidden, starved = guard.check(name, taken)
        if forbidden is not None:
            yield QuarantineJudgement(bookie, QuarantineVerdict.WITHHOLD, forbidden, starved)
        elif not (is_waiting or name in doubtful):
            taken |= {name}
            yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)


@dataclass(frozen=True, slots=True)
class _Guard:
    """Forbids the quarantine of bookies that must stay, and of more than the settings allow."""

    facts: IsolationFacts
    needed: Sequence[QuarantineNeed]
    greatest: QuarantineNeed
    settled: frozenset[str]
    ordered: frozenset[str]

    def check(self, bookie: str, taken: frozenset[str]) -> tuple[QuarantineReason | None, str]:
        """Return the reason to withhold a quarantine, or None; and the namespaces that it would starve.

        Args:
            taken: the bookies that are in quarantine or on their way there.
        """
        starved = find_starved(self.needed, len(self.facts.membership.unassigned.members - taken - {bookie}))
        if (
            starved is None
            and bookie not in self.ordered
            and self.greatest.count > len(self.settled - taken - {bookie})
        ):
            starved = self.greatest.starved
        if starved == "":
            return QuarantineReason.NO_GROUPS, ""
        if bookie in self.facts.portless:
            return QuarantineReason.RACK_ENTRY, ""
        if not limit_quarantined(len(taken), self.facts.settings).holds:
            return QuarantineReason.MAX_QUARANTINED, ""
        return (QuarantineReason.WOULD_BE_INFEASIBLE, starved) if starved else (None, "")


def _registration_order(bookie: BookieState) -> tuple[int, int, str]:
    return (_LAST if bookie.czxid is None else bookie.czxid, bookie.registered_ms or bookie.since_ms, bookie.bookie)


def _find_settled(facts: IsolationFacts, needs: QuarantineNeeds) -> frozenset[str]:
    """Return the writable bookies in no group that have been so for `settle`, or since the needs are known."""
    oldest_ms = max(needs.since_ms, facts.now_ms - millis_of(facts.settings.settle))
    return frozenset(
        b.bookie for b in facts.notable if b.assigned is False and b.takes_data and b.since_ms <= oldest_ms
    )


def _find_absent(facts: IsolationFacts) -> Iterator[BookieState]:
    """Yield the members of groups that may come back: their cookie exists, and they left within the last `settle`."""
    oldest_ms = facts.now_ms - millis_of(facts.settings.settle)
    for bookie in facts.notable:
        left_ms = bookie.since_ms if bookie.presence is Presence.OFFLINE else bookie.missing_ms
        if bookie.assigned and bookie.has_cookie and left_ms is not None and left_ms > oldest_ms:
            yield bookie


def collect_needs(placements: Sequence[PlacementJudgement], *, has_groups: bool) -> Sequence[QuarantineNeed]:
    """List the needs of bookies in no group, each greater than those before it.

    A quarantine takes away one bookie in no group. No rule distinguishes these bookies, so their number suffices. The
    first group of a cluster would constrain every namespace, so without any group every bookie is needed.
    """
    if not has_groups:
        return [QuarantineNeed(_EVERY_BOOKIE)]
    needs: list[QuarantineNeed] = []
    for judged in placements:
        count = judged.placed.needed_unassigned(judged.ensemble_size)
        # The first namespace that a quarantine starves needs more than all before it, so only those are listed.
        if count > (needs[-1].count if needs else 0):
            name = judged.namespaces[0] if judged.namespaces else "namespaces without affinity"
            needs.append(QuarantineNeed(count, name))
    return needs


def find_starved(needs: Sequence[QuarantineNeed], left: int) -> str | None:
    """Return the namespace that needs more than `left` bookies in no group; None if there is none."""
    return next((need.starved for need in needs if need.count > left), None)


def update_needs(before: QuarantineNeeds, needed: Sequence[QuarantineNeed], facts: IsolationFacts) -> QuarantineNeeds:
    """Return the needs after this step: a greater one counts until `settle` after its end.

    It also counts until a second reading has confirmed everything that showed its end.
    """
    if facts.settings.quarantine is Quarantine.OFF:
        return QuarantineNeeds()
    if not facts.is_fresh:
        return before
    present = needed[-1] if needed else QuarantineNeed()
    past = before.past
    if before.present.count > present.count:
        past = (*past, replace(before.present, ended_ms=facts.now_ms))
    unconfirmed_ms = (ms for _, each in facts.known.disputes() for _, ms in (*each.missing, *each.new))
    from_ms = min((facts.now_ms - millis_of(facts.settings.settle) + 1, *unconfirmed_ms))
    past = tuple(need for need in past if need.count > present.count and need.ended_ms >= from_ms)
    after = QuarantineNeeds(facts.now_ms if before.since_ms == NEVER else before.since_ms, present, past)
    return before if after == before else after


def quarantine_due_ms(facts: IsolationFacts, needs: QuarantineNeeds) -> Iterator[int]:
    """When (milliseconds since the epoch) an order may become right without a reading; some may be past."""
    if facts.settings.quarantine is Quarantine.OFF:
        return
    settle_ms = millis_of(facts.settings.settle)
    yield from (need.ended_ms + settle_ms for need in needs.past)
    yield from ((b.missing_ms or b.since_ms) + settle_ms for b in _find_absent(facts))
    if needs.greatest.count:
        yield from (b.since_ms + settle_ms for b in facts.notable if b.assigned is False and b.takes_data)


def limit_quarantined(count: int, settings: IsolationSettings) -> Comparison:
    """Return the comparison that must hold before one more bookie is quarantined."""
    return Comparison(count, Relation.LESS, settings.max_quarantined)
