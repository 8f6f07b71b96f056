"""Publishes placements that changed or are due to be repeated.

A mass change is published as one summary; the namespaces whose verdict changed are published individually.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from policies.decisions import Decision, Issuer
from policies.isolation.decisions import Placement, PlacementSummary, PlacementVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.judge import IsolationJudgement
from policies.isolation.judge.placements import CORE_LENGTH, PlacementJudgement
from policies.isolation.messages import MOST_SINGLY, WORST_FIRST, explain_placement, explain_summary
from policies.isolation.otherwise import placed_otherwise
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import PublishedPlacements
from policies.succession import ends_at, repeated_after, repeated_by
from policies.units import millis_of

_VALID_REPEATS = 3
"""Placements are valid for so many: two may be late."""


class NextNumber(Protocol):
    """Hands out sequence numbers within a step."""

    def __call__(self, *, is_first: bool) -> int:
        """The next one of the cluster; `is_first` of its subject."""
        ...


@dataclass(frozen=True, slots=True)
class _Compared:
    """How a namespace stands, held against what was published of it."""

    namespace: str
    judged: PlacementJudgement
    mark: str
    """What is published of it, in short; empty for one that left."""
    last: PublishedPlacements | None
    changed: bool
    core_changed: bool
    """Changed in more than which bookies they are, or first or last said."""
    due: bool
    """To be repeated, changed or not."""


def emit_placements(
    judgement: IsolationJudgement,
    facts: IsolationFacts,
    published: tuple[PublishedPlacements, ...],
    issuer: Issuer,
    number: NextNumber,
) -> tuple[tuple[Decision, ...], tuple[PublishedPlacements, ...]]:
    """The decisions to publish, and what is published after them; nothing new while a reading is not fresh."""
    if not facts.all_fresh:
        return (), published
    compared = list(_compared(judgement, facts, published))
    changed = [each.namespace for each in compared if each.changed]
    is_mass = len(changed) > MOST_SINGLY
    said = [s for s in compared if s.due or s.core_changed or (s.changed and not is_mass)]
    if not changed and not said:
        return (), published
    decisions: list[Decision] = []
    if is_mass or len(said) > MOST_SINGLY:
        decisions.append(_summary(judgement, changed, facts, issuer, number(is_first=True)))
    why = {id(judged): explain_placement(judged) for judged in {id(s.judged): s.judged for s in said}.values()}
    decisions += (
        _placement(s.namespace, s.judged, why[id(s.judged)], facts, issuer, number(is_first=s.last is None))
        for s in said
    )
    return tuple(decisions), _published(compared, {s.namespace for s in said}, published, facts)


def renewal_ms(published: PublishedPlacements, settings: IsolationSettings) -> int:
    """When placements are repeated: well before they run out."""
    return repeated_by(published.published_ms + _repeated_after_ms(settings), published.repeat_at_ms)


def _repeated_after_ms(settings: IsolationSettings) -> int:
    return millis_of(repeated_after(settings.validity, valid_for=_VALID_REPEATS))


def _compared(
    judgement: IsolationJudgement, facts: IsolationFacts, published: Iterable[PublishedPlacements]
) -> Iterator[_Compared]:
    """Every namespace; one that left is named a last time, as one without affinity."""
    known = {name: last for last in published for name in last.namespaces}
    due = {id(last): facts.now_ms >= renewal_ms(last, facts.settings) for last in published}
    for judged in judgement.placements:
        mark = _mark(judged, facts.settings)
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


def _mark(judged: PlacementJudgement, settings: IsolationSettings) -> str:
    return f"{judged.fingerprint}-{settings.mode}"


def _core(mark: str) -> tuple[str, str]:
    fingerprint, _, mode = mark.partition("-")
    return fingerprint[:CORE_LENGTH], mode


def _published(
    compared: Iterable[_Compared], said: Set[str], published: Iterable[PublishedPlacements], facts: IsolationFacts
) -> tuple[PublishedPlacements, ...]:
    """What a summary alone told of is published as of its own last time: so it is repeated when that is due."""
    now = (facts.now_ms, facts.now_ms + _repeated_after_ms(facts.settings))
    before = {id(last): (last.published_ms, renewal_ms(last, facts.settings)) for last in published}
    alike: dict[tuple[str, int, int], list[str]] = {}
    for s in compared:
        if s.mark:
            when = now if s.last is None or s.namespace in said else before[id(s.last)]
            alike.setdefault((s.mark, *when), []).append(s.namespace)
    return tuple(
        PublishedPlacements(mark, tuple(sorted(alike[mark, at_ms, repeat_at_ms])), at_ms, repeat_at_ms)
        for mark, at_ms, repeat_at_ms in sorted(alike)
    )


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
        leak=judged.leak,
        headroom=judged.placed.headroom,
        candidate_count=judged.placed.count,
        promised_candidate_count=judged.promised.count,
        leak_count=judged.leak_count,
        valid_until=_ends_at(facts),
        otherwise=placed_otherwise(judged),
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


def _summary(
    judgement: IsolationJudgement, changed: Sequence[str], facts: IsolationFacts, issuer: Issuer, sequence: int
) -> PlacementSummary:
    counts: Counter[PlacementVerdict] = Counter()
    for judged in judgement.placements:
        counts[judged.verdict] += len(judged.namespaces)
    worst = min(judgement.placements, key=lambda j: WORST_FIRST.index(j.verdict), default=judgement.without_affinity)
    first = tuple(islice(sorted(changed), MOST_SINGLY))
    by_verdict = {verdict.value: counts[verdict] for verdict in WORST_FIRST if counts[verdict]}
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
        valid_until=_ends_at(facts),
    )


def _ends_at(facts: IsolationFacts) -> datetime:
    return ends_at(facts.now, _VALID_REPEATS * facts.settings.validity)
