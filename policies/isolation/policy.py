"""The isolation policy: the bookies that each namespace may use, and the bookies without a group.

It decides nothing while a reading that it needs is stale. Rules: docs/design/isolation.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

from policies.alerts import MOST_SINGLY, Sender
from policies.book import Step
from policies.decisions import Decision, Issuer, Publication, RepeatSchedule
from policies.isolation import NAME
from policies.isolation.alerts import IsolationAlerts
from policies.isolation.decisions import Placement, PlacementSummary, PlacementVerdict
from policies.isolation.fold import fold_within_bound
from policies.isolation.judge import (
    WORST_FIRST,
    IsolationFacts,
    PlacementJudgement,
    explain_placement,
    join_facts,
    judge_placements,
)
from policies.isolation.quarantine import make_quarantine, quarantine_due_ms, update_orders
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
    yield from alerts.due_ms()
    yield from quarantine_due_ms(alerts.facts, alerts.orders)
    if has_more:
        yield alerts.facts.now_ms + _NEXT_PLACEMENTS_MS
    yield from (each.repeat_at_ms for each in published)


# Publishes placements that changed or are due to be repeated.
#
# A mass change is published as one summary; only the namespaces whose verdict changed get a decision each as well.

MOST_STEP_BYTES = 16_000_000
"""A step publishes placements of about this size, and the others follow in later steps: the names of bookies multiply
by the namespaces that may use them."""
_PLACEMENT_BYTES, _NAME_BYTES = 4000, 60
"""The size of a placement and its audit entry without its bookies, and what each of those adds."""


_Wanted = dict[str, tuple[str, PlacementJudgement]]
"""By namespace the mark of its placement, as `PublishedPlacements` has it (empty if it left), and its verdict."""


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
    known = {name: last for last in published for name in last.namespaces}
    marked = [(f"{facts.settings.mode}/{each.core}|{each.names_digest}", each) for each in judged]
    wanted: _Wanted = {name: pair for pair in marked for name in pair[1].namespaces}
    # A namespace that left is published a last time, as one without affinity.
    wanted |= dict.fromkeys(sorted(known.keys() - wanted.keys()), ("", judged[0]))
    changed = [name for name, (mark, _) in wanted.items() if name not in known or known[name].mark != mark]
    due = {name for name, last in known.items() if facts.now_ms >= last.repeat_at_ms}
    if not changed and not due:
        return (), published, False
    is_mass = len(changed) > MOST_SINGLY
    due |= {name for name in changed if not is_mass or _is_core_changed(known.get(name), wanted[name][0])}
    chosen = [name for name in wanted if name in due]
    sizes = accumulate(_estimate_bytes(wanted[name][1]) for name in chosen)
    room = max(1, sum(1 for size_bytes in sizes if size_bytes <= MOST_STEP_BYTES))  # at least one goes out in a step
    chosen, later = chosen[:room], chosen[room:]
    decisions: list[Decision] = []
    if is_mass or len(chosen) > MOST_SINGLY:
        decisions.append(_make_summary(judged, changed, facts, issuer, publication))
    described: dict[int, dict[str, Any]] = {}
    for name in chosen:
        each, sequence = wanted[name][1], publication.next(is_first=name not in known)
        if id(each) not in described:
            described[id(each)] = describe_placement(each)
        decisions.append(_make_placement(name, each, described[id(each)], facts, issuer, sequence))
    repeat_at_ms = placement_schedule(facts.settings).due_ms(facts.now_ms)
    return tuple(decisions), _remember(known, wanted, chosen, later, repeat_at_ms), bool(later)


def _remember(
    known: Mapping[str, PublishedPlacements], wanted: _Wanted, chosen: list[str], later: list[str], repeat_at_ms: int
) -> tuple[PublishedPlacements, ...]:
    """Return the published placements after this step.

    A namespace that only a summary covered keeps the time of its last own decision, so that decision is repeated when
    it is due. One that is published later keeps its last decision, which shows that it is still to be published.
    """
    after = {name: (wanted[name][0], last.repeat_at_ms) for name, last in known.items()}
    after |= {name: (known[name].mark, known[name].repeat_at_ms) for name in later if name in known}
    after |= {name: (wanted[name][0], repeat_at_ms) for name in chosen}
    alike: dict[tuple[str, int], list[str]] = {}
    for name, mark_and_time in after.items():
        alike.setdefault(mark_and_time, []).append(name)
    found = (PublishedPlacements(mark, tuple(sorted(names)), when) for (mark, when), names in sorted(alike.items()))
    return tuple(each for each in found if each.mark)


def _is_core_changed(last: PublishedPlacements | None, mark: str) -> bool:
    """Whether more changed than the bookies' names and the headroom, or the namespace has come or left."""
    return last is None or last.mark.partition("|")[0] != mark.partition("|")[0]


def _estimate_bytes(judged: PlacementJudgement) -> int:
    """About the size of a decision and its audit entry."""
    return _PLACEMENT_BYTES + _NAME_BYTES * (len(judged.placed.first) + len(judged.promised.first) + len(judged.leak))


def placement_schedule(settings: IsolationSettings) -> RepeatSchedule:
    """Return when placements are repeated: two repeats may be late before they expire."""
    return RepeatSchedule(settings.validity, valid_for=3)


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
    namespace: str,
    judged: PlacementJudgement,
    described: Mapping[str, Any],
    facts: IsolationFacts,
    issuer: Issuer,
    sequence: int,
) -> Placement:
    placed, subject = judged.placed, f"{facts.cluster}/{namespace}"
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
