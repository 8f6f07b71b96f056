"""Publishes verdicts that differ from the last publication: changed placements, and quarantine orders new or due."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, compress

from msgspec import Struct
from msgspec.structs import replace

from policies.decisions import Decision, Issuer, Publication, RepeatSchedule
from policies.isolation.decisions import (
    QUARANTINE_GROUP,
    QUARANTINE_RACK,
    BookieQuarantine,
    Placement,
    PlacementSummary,
    PlacementVerdict,
    QuarantineReason,
    QuarantineVerdict,
)
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import CORE_LENGTH, IsolationJudgement, PlacementJudgement, QuarantineJudgement
from policies.isolation.messages import MOST_SINGLY, WORST_FIRST, explain_placement, explain_quarantine, explain_summary
from policies.isolation.settings import IsolationSettings, Quarantine
from policies.isolation.state import IsolationState, PublishedPlacements, QuarantineOrder
from policies.units import from_millis

# Publishes placements that changed or are due to be repeated.
#
# A mass change is published as one summary; only the namespaces whose verdict changed get a decision each as well.

MOST_STEP_BYTES = 16_000_000
"""A step publishes placements of about this size, and the others follow in later steps: the names of bookies multiply
by the namespaces that may use them."""
_PLACEMENT_BYTES, _NAME_BYTES = 4000, 60
"""The size of a placement and its audit entry without its bookies, and what each of those adds."""


class _Compared(Struct, frozen=True, gc=False):
    """A namespace's verdict, beside its last published placement."""

    namespace: str
    judged: PlacementJudgement
    mark: str
    """The fingerprint and mode to publish; empty for a namespace that left."""
    last: PublishedPlacements | None
    due_ms: int
    """When the last one is due to be repeated."""

    @property
    def changed(self) -> bool:
        return self.last is None or self.last.fingerprint != self.mark

    @property
    def core_changed(self) -> bool:
        """Whether more changed than the bookies' names and the headroom; it has come or left."""
        if self.last is None or not self.mark:
            return True
        (core, _, mode), (last_core, _, last_mode) = (m.partition("-") for m in (self.mark, self.last.fingerprint))
        return (core[:CORE_LENGTH], mode) != (last_core[:CORE_LENGTH], last_mode)

    @property
    def size_bytes(self) -> int:
        """About the size of its decision and its audit entry."""
        names = len(self.judged.candidates) + len(self.judged.promised_candidates) + len(self.judged.leak)
        return _PLACEMENT_BYTES + _NAME_BYTES * names


_Placements = tuple[tuple[Decision, ...], tuple[PublishedPlacements, ...], bool]
"""The decisions of a step, the placements in force after it, and whether more wait for the next step."""


def _emit_placements(
    judgement: IsolationJudgement,
    facts: IsolationFacts,
    published: tuple[PublishedPlacements, ...],
    issuer: Issuer,
    publication: Publication,
) -> _Placements:
    """Return the decisions to publish, and the placements published after them; no decision if a reading is stale."""
    if not facts.is_fresh:
        return (), published, False
    mode, now_ms, schedule = facts.settings.mode, facts.now_ms, placement_schedule(facts.settings)
    marks = {name: f"{judged.fingerprint}-{mode}" for judged in judgement.placements for name in judged.namespaces}
    in_force = {name: last.fingerprint for last in published for name in last.namespaces}
    is_due = any(now_ms >= schedule.due_ms(last.published_ms, last.repeat_at_ms) for last in published)
    if marks == in_force and not is_due:
        return (), published, False
    compared = list(_compare(judgement, marks, published, schedule))
    changed = [each.namespace for each in compared if each.changed]
    is_mass = len(changed) > MOST_SINGLY
    is_chosen = (now_ms >= each.due_ms or (each.changed and (not is_mass or each.core_changed)) for each in compared)
    chosen = list(compress(compared, is_chosen))
    sizes = accumulate(each.size_bytes for each in chosen)
    room = max(1, sum(1 for size_bytes in sizes if size_bytes <= MOST_STEP_BYTES))  # at least one goes out in a step
    chosen, later = chosen[:room], chosen[room:]
    decisions: list[Decision] = []
    if is_mass or len(chosen) > MOST_SINGLY:
        decisions.append(_make_summary(judgement, changed, facts, issuer, publication))
    explained = {id(judged): explain_placement(judged) for judged in {id(c.judged): c.judged for c in chosen}.values()}
    decisions += (_make_placement(c, explained[id(c.judged)], facts, issuer, publication) for c in chosen)
    names, late = ({each.namespace for each in part} for part in (chosen, later))
    return tuple(decisions), _remember(compared, names, late, facts), bool(later)


def placement_schedule(settings: IsolationSettings) -> RepeatSchedule:
    """Return when placements are repeated: two repeats may be late before they expire."""
    return RepeatSchedule(settings.validity, valid_for=3)


def _compare(
    judgement: IsolationJudgement,
    marks: Mapping[str, str],
    published: Iterable[PublishedPlacements],
    schedule: RepeatSchedule,
) -> Iterator[_Compared]:
    """Compare every namespace; one that left is published a last time, as a namespace without affinity."""
    due = ((last, schedule.due_ms(last.published_ms, last.repeat_at_ms)) for last in published)
    known = {name: (last, due_ms) for last, due_ms in due for name in last.namespaces}
    for judged in judgement.placements:
        for name in judged.namespaces:
            yield _Compared(name, judged, marks[name], *known.pop(name, (None, 0)))
    for name, (last, due_ms) in sorted(known.items()):
        yield _Compared(name, judgement.without_affinity, "", last, due_ms)


def _remember(
    compared: Iterable[_Compared], chosen: Set[str], later: Set[str], facts: IsolationFacts
) -> tuple[PublishedPlacements, ...]:
    """Return the published placements after this step.

    A namespace that only a summary covered keeps the time of its last own decision, so that decision is repeated when
    it is due. One that is published later keeps its last decision, which shows that it is still to be published.
    """
    repeat_at_ms = placement_schedule(facts.settings).due_ms(facts.now_ms)
    alike: dict[tuple[str, int, int], list[str]] = {}
    for each in compared:
        mark, when = each.mark, (facts.now_ms, repeat_at_ms)
        if each.last is not None and each.namespace not in chosen:
            when = (each.last.published_ms, each.due_ms)
        if each.namespace in later:
            mark = each.last.fingerprint if each.last is not None else ""
        if mark:
            alike.setdefault((mark, *when), []).append(each.namespace)
    return tuple(
        PublishedPlacements(mark, tuple(sorted(alike[mark, at_ms, repeat_at_ms])), at_ms, repeat_at_ms)
        for mark, at_ms, repeat_at_ms in sorted(alike)
    )


def _make_placement(
    compared: _Compared, explained: str, facts: IsolationFacts, issuer: Issuer, publication: Publication
) -> Placement:
    namespace, judged, placed = compared.namespace, compared.judged, compared.judged.placed
    subject, sequence = f"{facts.cluster}/{namespace}", publication.next(is_first=compared.last is None)
    return Placement(
        **issuer.header(subject, sequence, facts.now, about=("placement", subject)),
        verdict=judged.verdict,
        reason=judged.reason,
        explanation=f"{namespace} {explained}.",
        evidence=facts.evidence,
        numbers={
            "writable": judged.writable,
            "primary": len(placed.primary),
            "secondary": len(placed.secondary),
            "unassigned": len(placed.unassigned),
            "promised_tier": judged.promised.tier.value,
            "promised_headroom": judged.promised.headroom,
        },
        namespace=namespace,
        rules=judged.rules,
        promise=judged.promise,
        ensemble_size=judged.ensemble_size,
        tier=placed.tier,
        feasible=placed.feasible,
        candidates=judged.candidates,
        promised_candidates=judged.promised_candidates,
        promised_feasible=judged.promised.feasible,
        leak=judged.leak,
        headroom=placed.headroom,
        candidate_count=placed.count,
        promised_candidate_count=judged.promised.count,
        leak_count=judged.leak_count,
        valid_until=placement_schedule(facts.settings).ends_at(facts.now),
    )


def _make_summary(
    judgement: IsolationJudgement,
    changed: Sequence[str],
    facts: IsolationFacts,
    issuer: Issuer,
    publication: Publication,
) -> PlacementSummary:
    counts: Counter[PlacementVerdict] = Counter()
    for judged in judgement.placements:
        counts[judged.verdict] += len(judged.namespaces)
    worst = min(judgement.placements, key=lambda j: WORST_FIRST.index(j.verdict), default=judgement.without_affinity)
    first = tuple(sorted(changed)[:MOST_SINGLY])
    by_verdict = {verdict.value: counts[verdict] for verdict in WORST_FIRST if counts[verdict]}
    sequence = publication.next(is_first=True)
    return PlacementSummary(
        **issuer.header(facts.cluster, sequence, facts.now, about=("placement-summary", facts.cluster)),
        verdict=worst.verdict,
        reason=worst.reason,
        explanation=explain_summary(facts.cluster, by_verdict, first, len(changed)),
        evidence=facts.evidence,
        namespaces_by_verdict=by_verdict,
        changed_count=len(changed),
        changed=first,
        writable_count=len(facts.membership.writable),
        valid_until=placement_schedule(facts.settings).ends_at(facts.now),
    )


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
    placements, published, has_more = _emit_placements(judgement, facts, before.published, issuer, publication)
    orders, changed = _update_orders(judgement, facts)
    known = {order.bookie for order in before.orders}
    quarantines = [
        _make_quarantine(order, facts, issuer, publication.next(is_first=order.bookie not in known))
        for order in changed
    ]
    return EmittedIsolation((*placements, *quarantines), published, orders, publication.sequence, has_more)


def _update_orders(
    judgement: IsolationJudgement, facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, ...], tuple[QuarantineOrder, ...]]:
    """Return the quarantine orders in force after this step, by bookie, and those to publish: lifted ones first."""
    before = judgement.remaining
    lifted = [_lift(order, reason, facts) for order, reason in judgement.ended]
    singly, many = _split(judgement)
    decided = [_update_order(before.get(judged.bookie.bookie), judged, facts) for judged in singly]
    after = before | {order.bookie: order for order in decided}
    last_on_many = before.get("")
    if many:
        after[""] = _update_order_on_many(last_on_many, many, facts)
    elif last_on_many is not None and (facts.settings.quarantine is Quarantine.OFF or facts.is_settled):
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
    others = [j for j in withheld if j.bookie.bookie not in judgement.remaining]
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


def _make_quarantine(order: QuarantineOrder, facts: IsolationFacts, issuer: Issuer, sequence: int) -> BookieQuarantine:
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
