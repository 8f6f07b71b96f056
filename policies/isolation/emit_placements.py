"""Publishes placements that changed or are due to be repeated.

A mass change is published as one summary; only the namespaces whose verdict changed get a decision each as well.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from policies.decisions import Decision, Issuer
from policies.isolation.counterfactuals import derive_placement_counterfactuals
from policies.isolation.decisions import Placement, PlacementSummary, PlacementVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.judge.placements import CORE_LENGTH, PlacementJudgement
from policies.isolation.messages import MOST_SINGLY, WORST_FIRST, explain_placement, explain_summary
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import PublishedPlacements
from policies.publication import Publication, RepeatSchedule

MOST_STEP_BYTES = 16_000_000
"""A step publishes placements of about this size, and the others follow in later steps: the names of bookies multiply
by the namespaces that may use them."""
_PLACEMENT_BYTES, _NAME_BYTES = 4000, 60
"""The size of a placement and its audit entry without its bookies, and what each of those adds."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """A namespace's verdict, compared with its last published placement."""

    namespace: str
    judged: PlacementJudgement
    mark: str
    """The fingerprint and mode to publish; empty for a namespace that left."""
    last: PublishedPlacements | None
    changed: bool
    core_changed: bool
    """Whether more changed than the bookies' names and the headroom, or it is published for the first or last time."""
    due: bool
    """Whether it must be repeated even if it did not change."""

    @property
    def size_bytes(self) -> int:
        """About the size of its decision and its audit entry."""
        names = len(self.judged.candidates) + len(self.judged.promised_candidates) + len(self.judged.leak)
        return _PLACEMENT_BYTES + _NAME_BYTES * names


@dataclass(frozen=True, slots=True)
class EmittedPlacements:
    """The placements that one step publishes."""

    decisions: tuple[Decision, ...]
    published: tuple[PublishedPlacements, ...]
    """The placements in force after the step."""
    has_more: bool = False
    """Whether more placements wait for the next step."""


def emit_placements(
    judgement: IsolationJudgement,
    facts: IsolationFacts,
    published: tuple[PublishedPlacements, ...],
    issuer: Issuer,
    publication: Publication,
) -> EmittedPlacements:
    """Return the decisions to publish, and the placements published after them; no decision if a reading is stale."""
    if not facts.is_fresh:
        return EmittedPlacements((), published)
    marks: dict[str, str] = {}
    for judged in judgement.placements:
        marks |= dict.fromkeys(judged.namespaces, _mark(judged, facts))
    schedule = placement_schedule(facts.settings)
    is_due = any(facts.now_ms >= schedule.due_ms(last.published_ms, last.repeat_at_ms) for last in published)
    if not is_due and marks == {name: last.fingerprint for last in published for name in last.namespaces}:
        return EmittedPlacements((), published)
    compared = list(_compare(judgement, facts, published))
    changed = [each.namespace for each in compared if each.changed]
    is_mass = len(changed) > MOST_SINGLY
    chosen = [each for each in compared if each.due or each.core_changed or (each.changed and not is_mass)]
    chosen, later = _split(chosen)
    decisions: list[Decision] = []
    if is_mass or len(chosen) > MOST_SINGLY:
        decisions.append(_make_summary(judgement, changed, facts, issuer, publication))
    explained = {id(judged): explain_placement(judged) for judged in {id(c.judged): c.judged for c in chosen}.values()}
    decisions += (_make_placement(c, explained[id(c.judged)], facts, issuer, publication) for c in chosen)
    names, late = ({each.namespace for each in part} for part in (chosen, later))
    return EmittedPlacements(tuple(decisions), _remember(compared, names, late, published, facts), bool(later))


def _split(chosen: list[_Compared]) -> tuple[list[_Compared], list[_Compared]]:
    """Return those for which a step has room, at least one, and the others."""
    sizes = accumulate(each.size_bytes for each in chosen)
    count = max(1, sum(1 for size_bytes in sizes if size_bytes <= MOST_STEP_BYTES))
    return chosen[:count], chosen[count:]


def placement_schedule(settings: IsolationSettings) -> RepeatSchedule:
    """Return when placements are repeated: two repeats may be late before they expire."""
    return RepeatSchedule(settings.validity, valid_for=3)


def _compare(
    judgement: IsolationJudgement, facts: IsolationFacts, published: Iterable[PublishedPlacements]
) -> Iterator[_Compared]:
    """Compare every namespace; one that left is published a last time, as a namespace without affinity."""
    known = {name: last for last in published for name in last.namespaces}
    schedule = placement_schedule(facts.settings)
    due = {id(last): facts.now_ms >= schedule.due_ms(last.published_ms, last.repeat_at_ms) for last in published}
    for judged in judgement.placements:
        mark = _mark(judged, facts)
        for name in judged.namespaces:
            last = known.pop(name, None)
            if last is None:
                yield _Compared(name, judged, mark, None, changed=True, core_changed=True, due=True)
            else:
                changed = last.fingerprint != mark
                core_changed = changed and _core(last.fingerprint) != _core(mark)
                yield _Compared(name, judged, mark, last, changed, core_changed, due[id(last)])
    for name in sorted(known):
        yield _Compared(name, judgement.without_affinity, "", known[name], changed=True, core_changed=True, due=True)


def _mark(judged: PlacementJudgement, facts: IsolationFacts) -> str:
    """Return the mark of a placement's content: its fingerprint and mode."""
    return f"{judged.fingerprint}-{facts.settings.mode}"


def _core(mark: str) -> tuple[str, str]:
    fingerprint, _, mode = mark.partition("-")
    return fingerprint[:CORE_LENGTH], mode


def _remember(
    compared: Iterable[_Compared],
    chosen: Set[str],
    later: Set[str],
    published: Iterable[PublishedPlacements],
    facts: IsolationFacts,
) -> tuple[PublishedPlacements, ...]:
    """Return the published placements after this step.

    A namespace that only a summary covered keeps the time of its last own decision, so that decision is repeated when
    it is due. One that is published later keeps its last decision, which shows that it is still to be published.
    """
    schedule = placement_schedule(facts.settings)
    now = (facts.now_ms, schedule.due_ms(facts.now_ms))
    before = {
        id(last): (last.published_ms, schedule.due_ms(last.published_ms, last.repeat_at_ms)) for last in published
    }
    alike: dict[tuple[str, int, int], list[str]] = {}
    for each in compared:
        if each.namespace in later:
            if each.last is not None:
                alike.setdefault((each.last.fingerprint, *before[id(each.last)]), []).append(each.namespace)
        elif each.mark:
            when = now if each.last is None or each.namespace in chosen else before[id(each.last)]
            alike.setdefault((each.mark, *when), []).append(each.namespace)
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
        otherwise=derive_placement_counterfactuals(judged),
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
