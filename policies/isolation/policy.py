"""The isolation policy: the bookies that each namespace may use, and the bookies without a group.

It decides nothing while a reading that it needs is stale. Rules: docs/design/isolation.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import accumulate
from typing import Any

from msgspec import Struct

from policies.alerts import MOST_SINGLY, Sender
from policies.book import Step
from policies.decisions import Decision, Issuer, Publication, RepeatSchedule
from policies.isolation import NAME
from policies.isolation.alerts import IsolationAlerts
from policies.isolation.decisions import Placement, PlacementSummary, PlacementVerdict
from policies.isolation.fold import fold_within_bound
from policies.isolation.judge import IsolationFacts, PlacementJudgement, join_facts, judge_placements
from policies.isolation.messages import WORST_FIRST, explain_placement
from policies.isolation.quarantine import make_quarantine, order_schedule, quarantine_due_ms, update_orders
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import IsolationState, PublishedPlacements
from policies.observations import Observation
from policies.units import name_some, to_millis

_NEXT_PLACEMENTS_MS = 1000
"""When placements for which a step had no room are published."""


class IsolationPolicy:
    """Decides for the namespaces and bookies of one cluster, by the settings in force for it."""

    name = NAME

    def __init__(self, cluster: str, settings: IsolationSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._issuer = Sender.build(NAME, cluster, settings).issuer

    def step(
        self, state: IsolationState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[IsolationState]:
        """Fold, join facts, judge, publish and find alert conditions, each once."""
        before = state or IsolationState(to_millis(now))
        known, refused = fold_within_bound(before.cluster, observations, self._settings)
        facts = join_facts(now, self._cluster, known, self._settings)
        judged = judge_placements(facts.membership, known.cohorts, known.promises, self._settings)
        publication = Publication(facts.now_ms, before.sequence)
        placements, published, has_more = _publish_placements(
            judged, facts, before.published, self._issuer, publication
        )
        orders, changed = update_orders(before.orders, facts, judged)
        had_order = {order.bookie for order in before.orders}
        quarantines = [
            make_quarantine(order, facts, self._issuer, publication.next(is_first=order.bookie not in had_order))
            for order in changed
        ]
        alerts = IsolationAlerts(facts, judged[1:], orders, before.started_ms)
        return Step(
            IsolationState(before.started_ms, known, published, orders, publication.sequence),
            conditions=alerts.find(),
            due_ms=_due_ms(alerts, published, has_more=has_more),
            refused=refused,
            decisions=(*placements, *quarantines),
            stay=alerts.keep_unknown,
        )


def _due_ms(alerts: IsolationAlerts, published: Sequence[PublishedPlacements], *, has_more: bool) -> Iterator[int]:
    """When (milliseconds since the epoch) a verdict may change without an observation."""
    facts = alerts.facts
    yield from alerts.due_ms()
    yield from quarantine_due_ms(facts)
    pending = (order for order in alerts.orders if order.is_pending(facts.quarantined))
    schedule = order_schedule(facts.settings)
    yield from (schedule.due_ms(order.published_ms, order.repeat_at_ms) for order in pending)
    if has_more:
        yield facts.now_ms + _NEXT_PLACEMENTS_MS
    yield from (each.repeat_at_ms for each in published)


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
    """The mark of its placement, as `PublishedPlacements` has it; empty for a namespace that left."""
    last: PublishedPlacements | None

    @property
    def repeat_at_ms(self) -> int:
        return 0 if self.last is None else self.last.repeat_at_ms

    @property
    def is_changed(self) -> bool:
        return self.last is None or self.last.mark != self.mark

    @property
    def is_core_changed(self) -> bool:
        """Whether more changed than the bookies' names and the headroom; it has come or left."""
        return self.last is None or self.last.mark.partition("|")[0] != self.mark.partition("|")[0]

    @property
    def size_bytes(self) -> int:
        """About the size of its decision and its audit entry."""
        names = len(self.judged.placed.first) + len(self.judged.promised.first) + len(self.judged.leak)
        return _PLACEMENT_BYTES + _NAME_BYTES * names


def _publish_placements(
    judged: Sequence[PlacementJudgement],
    facts: IsolationFacts,
    published: tuple[PublishedPlacements, ...],
    issuer: Issuer,
    publication: Publication,
) -> tuple[tuple[Decision, ...], tuple[PublishedPlacements, ...], bool]:
    """Return the decisions to publish, the placements in force after this step, and whether more wait for the next.

    There is no decision if a reading is stale.

    Args:
        judged: first the verdict on namespaces without affinity.
        published: the placements in force before.
    """
    if not facts.is_fresh:
        return (), published, False
    marks = [f"{facts.settings.mode}/{each.core}|{each.names_digest}" for each in judged]
    wanted = {name: mark for each, mark in zip(judged, marks, strict=True) for name in each.namespaces}
    known = {name: last for last in published for name in last.namespaces}
    is_due = any(facts.now_ms >= last.repeat_at_ms for last in published)
    if not is_due and wanted == {name: last.mark for name, last in known.items()}:
        return (), published, False
    compared = [
        _Compared(name, each, wanted[name], known.pop(name, None)) for each in judged for name in each.namespaces
    ]
    # A namespace that left is published a last time, as one without affinity.
    compared += (_Compared(name, judged[0], "", last) for name, last in sorted(known.items()))
    changed = [each.namespace for each in compared if each.is_changed]
    is_mass = len(changed) > MOST_SINGLY
    chosen = [
        each
        for each in compared
        if (each.is_core_changed if is_mass else each.is_changed) or facts.now_ms >= each.repeat_at_ms
    ]
    sizes = accumulate(each.size_bytes for each in chosen)
    room = max(1, sum(1 for size_bytes in sizes if size_bytes <= MOST_STEP_BYTES))  # at least one goes out in a step
    chosen, later = chosen[:room], chosen[room:]
    decisions: list[Decision] = []
    if is_mass or len(chosen) > MOST_SINGLY:
        decisions.append(_make_summary(judged, changed, facts, issuer, publication))
    described = {key: describe_placement(each) for key, each in {id(c.judged): c.judged for c in chosen}.items()}
    decisions += (_make_placement(c, described[id(c.judged)], facts, issuer, publication) for c in chosen)
    names, late = ({each.namespace for each in part} for part in (chosen, later))
    return tuple(decisions), _remember(compared, names, late, facts), bool(later)


def placement_schedule(settings: IsolationSettings) -> RepeatSchedule:
    """Return when placements are repeated: two repeats may be late before they expire."""
    return RepeatSchedule(settings.validity, valid_for=3)


def _remember(
    compared: Iterable[_Compared], chosen: Set[str], later: Set[str], facts: IsolationFacts
) -> tuple[PublishedPlacements, ...]:
    """Return the published placements after this step.

    A namespace that only a summary covered keeps the time of its last own decision, so that decision is repeated when
    it is due. One that is published later keeps its last decision, which shows that it is still to be published.
    """
    repeat_at_ms = placement_schedule(facts.settings).due_ms(facts.now_ms)
    alike: dict[tuple[str, int], list[str]] = {}
    for each in compared:
        last_mark = "" if each.last is None else each.last.mark
        if mark := last_mark if each.namespace in later else each.mark:
            when = repeat_at_ms if each.namespace in chosen else each.repeat_at_ms
            alike.setdefault((mark, when), []).append(each.namespace)
    return tuple(PublishedPlacements(mark, tuple(sorted(names)), when) for (mark, when), names in sorted(alike.items()))


def describe_placement(judged: PlacementJudgement) -> dict[str, Any]:
    """Return the fields of `Placement` that all namespaces of a judgement share; the explanation lacks its subject."""
    placed, promised = judged.placed, judged.promised
    return {
        "verdict": judged.verdict,
        "reason": judged.reason,
        "explanation": explain_placement(judged),
        "rules": judged.rules,
        "promise": judged.promise,
        "ensemble_size": judged.ensemble_size,
        "tier": placed.tier,
        "feasible": placed.feasible,
        "candidates": placed.first,
        "promised_candidates": promised.first,
        "promised_feasible": promised.feasible,
        "leak": judged.leak,
        "headroom": placed.headroom,
        "candidate_count": placed.count,
        "promised_candidate_count": promised.count,
        "leak_count": judged.leak_count,
    }


def _make_placement(
    compared: _Compared, described: Mapping[str, Any], facts: IsolationFacts, issuer: Issuer, publication: Publication
) -> Placement:
    namespace, judged, placed = compared.namespace, compared.judged, compared.judged.placed
    subject, sequence = f"{facts.cluster}/{namespace}", publication.next(is_first=compared.last is None)
    return Placement(
        **issuer.header(subject, sequence, facts.now, about=("placement", subject)),
        **{**described, "explanation": f"{namespace} {described['explanation']}."},
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
        valid_until=placement_schedule(facts.settings).ends_at(facts.now),
    )


def _make_summary(
    judged: Sequence[PlacementJudgement],
    changed: Sequence[str],
    facts: IsolationFacts,
    issuer: Issuer,
    publication: Publication,
) -> PlacementSummary:
    counts: Counter[PlacementVerdict] = Counter()
    for each in judged:
        counts[each.verdict] += len(each.namespaces)
    worst = min(judged[1:], key=lambda each: WORST_FIRST.index(each.verdict), default=judged[0])
    first = tuple(sorted(changed)[:MOST_SINGLY])
    by_verdict = {verdict.value: counts[verdict] for verdict in WORST_FIRST if counts[verdict]}
    counted_verdicts = ", ".join(f"{count} {verdict}" for verdict, count in by_verdict.items())
    named = f"; {len(changed)} changed: {name_some(first, MOST_SINGLY, len(changed))}" if changed else ""
    sequence = publication.next(is_first=True)
    return PlacementSummary(
        **issuer.header(facts.cluster, sequence, facts.now, about=("placement-summary", facts.cluster)),
        verdict=worst.verdict,
        reason=worst.reason,
        explanation=f"Namespaces of {facts.cluster}: {counted_verdicts or 'none with affinity'}{named}.",
        evidence=facts.evidence,
        namespaces_by_verdict=by_verdict,
        changed_count=len(changed),
        changed=first,
        writable_count=len(facts.membership.writable),
        valid_until=placement_schedule(facts.settings).ends_at(facts.now),
    )
