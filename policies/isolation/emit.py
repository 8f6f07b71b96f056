"""What differs from what was published last: placements that are news, quarantine orders that are news or due."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from policies.decisions import Decision, Issuer
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    QUARANTINE_RACK,
    BookieQuarantine,
    Placement,
    QuarantineReason,
    QuarantineVerdict,
)
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.judge.placements import PlacementJudgement
from policies.isolation.judge.quarantine import QuarantineJudgement
from policies.isolation.messages import explain_placement, explain_quarantine
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState, PublishedPlacements, QuarantineOrder
from policies.succession import ends_at, next_sequence
from policies.units import from_millis, millis_of


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
    placements = [
        _placement(name, judged, why, facts, issuer, numbers.next(is_first=is_first))
        for judged, names in _placement_news(judgement, facts, before.published)
        for why in (explain_placement(judged),)
        for name, is_first in names
    ]
    orders, news = _orders(judgement, facts)
    ordered = {order.bookie for order in before.orders}
    quarantines = [
        _quarantine(order, facts, issuer, numbers.next(is_first=order.bookie not in ordered)) for order in news
    ]
    return EmittedIsolation(
        decisions=(*placements, *quarantines),
        published=_published(judgement.placements, facts.settings) if placements else before.published,
        orders=orders,
        sequence=numbers.last,
    )


def _placement_news(
    judgement: IsolationJudgement, facts: IsolationFacts, published: Iterable[PublishedPlacements]
) -> Iterator[tuple[PlacementJudgement, list[tuple[str, bool]]]]:
    """The verdicts to publish, with the namespaces they are news of, and whether it is a namespace's first.

    A namespace that left is named a last time, as one without affinity.
    """
    if not facts.all_fresh:
        return
    known = {name: last.fingerprint for last in published for name in last.namespaces}
    for judged in judgement.placements:
        fingerprint = _fingerprint(judged, facts.settings)
        last = ((name, known.pop(name, None)) for name in judged.namespaces)
        if news := [(name, was is None) for name, was in last if was != fingerprint]:
            yield judged, news
    if known:
        yield judgement.without_affinity, [(name, False) for name in sorted(known)]


def _published(
    placements: Iterable[PlacementJudgement], settings: IsolationSettings
) -> tuple[PublishedPlacements, ...]:
    alike: dict[str, list[str]] = {}
    for judged in placements:
        alike.setdefault(_fingerprint(judged, settings), []).extend(judged.namespaces)
    return tuple(PublishedPlacements(mark, tuple(sorted(alike[mark]))) for mark in sorted(alike))


def _fingerprint(judged: PlacementJudgement, settings: IsolationSettings) -> str:
    return f"{judged.fingerprint}-{settings.mode}"


def _placement(
    namespace: str, judged: PlacementJudgement, why: str, facts: IsolationFacts, issuer: Issuer, sequence: int
) -> Placement:
    subject = f"{facts.cluster}/{namespace}"
    return Placement(
        **issuer.header(subject, sequence, facts.now, about=("placement", subject)),
        verdict=judged.verdict,
        reason=judged.reason,
        explanation=f"{namespace} {why}.",
        evidence=facts.evidence,
        numbers=_placement_numbers(judged),
        namespace=namespace,
        rules=judged.rules,
        promise=judged.promise,
        ensemble_size=judged.ensemble_size,
        tier=judged.placed.tier,
        feasible=judged.placed.feasible,
        candidates=judged.candidates,
        promised_candidates=judged.promised_candidates,
        promised_feasible=judged.promised.feasible,
        leak=tuple(sorted(judged.leak)),
        headroom=judged.placed.headroom,
    )


def _placement_numbers(judged: PlacementJudgement) -> dict[str, object]:
    """For the audit: how many bookies of each kind there were."""
    return {
        "writable": judged.writable,
        "primary": len(judged.placed.primary),
        "secondary": len(judged.placed.secondary),
        "unassigned": len(judged.placed.unassigned),
        "promised_tier": judged.promised.tier.value,
        "promised_headroom": judged.promised.headroom,
    }


def _orders(
    judgement: IsolationJudgement, facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, ...], tuple[QuarantineOrder, ...]]:
    """The quarantine orders in force after this step, by bookie, and those to publish: lifts first."""
    before = judgement.standing
    lifted = [_lifted(order, reason, facts) for order, reason in judgement.ended]
    decided = [_order(before.get(judged.bookie.bookie), judged, facts) for judged in judgement.quarantines]
    news = [o for o in decided if o.published_ms == facts.now_ms and o != before.get(o.bookie)]
    after = before | {order.bookie: order for order in decided}
    return tuple(after[bookie] for bookie in sorted(after)), (*lifted, *news)


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
    )
    if before is None or before.in_force != order.in_force or (before.carried_out and not inside):
        return order
    if inside:
        return replace(before, carried_out=True)
    if before.is_pending(facts.quarantined) and facts.now_ms >= renewal_ms(before, facts.settings):
        return replace(before, published_ms=facts.now_ms)
    return before


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
    return order.published_ms + max(1, millis_of(settings.validity) // 2)


def _quarantine(order: QuarantineOrder, facts: IsolationFacts, issuer: Issuer, sequence: int) -> BookieQuarantine:
    subject = f"{facts.cluster}/{order.bookie}"
    return BookieQuarantine(
        **issuer.header(subject, sequence, facts.now, about=("quarantine", subject)),
        verdict=order.verdict,
        reason=order.reason,
        explanation=explain_quarantine(order, facts.settings),
        evidence=facts.evidence,
        numbers={"quarantined": sorted(facts.quarantined), "max_quarantined": facts.settings.max_quarantined},
        bookie=order.bookie,
        group=QUARANTINE_GROUP,
        rack=QUARANTINE_RACK,
        session=order.session,
        czxid=order.czxid,
        registered_at=from_millis(order.registered_ms),
        valid_until=ends_at(facts.now, facts.settings.validity),
    )
