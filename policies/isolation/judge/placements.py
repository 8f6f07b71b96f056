"""How well each namespace is isolated: compares where the cluster may place its data with what was promised."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from policies.closed_enum import ClosedEnum
from policies.isolation.decisions import PlacementReason, PlacementVerdict
from policies.isolation.membership import AffinityGroups, BookieMembership, BookieSet, first_names
from policies.isolation.placement import Placed, place
from policies.isolation.rules import RuleSet
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import Cohort

_UNCONSTRAINED = frozenset({PlacementReason.NO_GROUPS, PlacementReason.NO_AFFINITY, PlacementReason.ANY_GROUP})
"""The reasons for which brokers exclude nothing."""

_BETWEEN = BookieSet(frozenset())
CORE_LENGTH = 16
"""Of a fingerprint: what comes after it are the bookies' names and the headroom."""


@dataclass(frozen=True)
class PlacementJudgement:
    """Namespaces of one affinity, and where their data may lie now."""

    namespaces: tuple[str, ...]
    affinity: AffinityGroups
    ensemble_size: int
    rules: RuleSet
    promise: RuleSet
    writable: int
    placed: Placed
    promised: Placed
    verdict: PlacementVerdict
    reason: PlacementReason
    asked_strict: bool = False
    """Whether the namespaces' own policies ask for strict rules, which their brokers do not read."""

    @cached_property
    def leak_parts(self) -> tuple[BookieSet, ...]:
        """Candidates that the promise forbids."""
        return tuple(part for part in self.placed.parts if part not in self.promised.parts and len(part))

    @property
    def leak_count(self) -> int:
        """How many those are."""
        return sum(map(len, self.leak_parts))

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The bookies the cluster's rules allow, sorted: all, or the first of very many."""
        return _first(self.placed.parts)

    @cached_property
    def promised_candidates(self) -> tuple[str, ...]:
        """Those that the promise allows, likewise."""
        return _first(self.promised.parts)

    @cached_property
    def leak(self) -> tuple[str, ...]:
        """Candidates that the promise forbids, likewise."""
        return _first(self.leak_parts)

    @cached_property
    def fingerprint(self) -> str:
        """Thirty-two hexadecimal digits that change when anything changes that is published of these namespaces."""
        parts = b"/".join(part.digest for part in (*self.placed.parts, _BETWEEN, *self.promised.parts))
        said = f"{self.core} {self.placed.headroom} ".encode()
        return self.core + hashlib.blake2b(said + parts, digest_size=8).hexdigest()

    @cached_property
    def core(self) -> str:
        """Sixteen of them, which leave out the bookies' names and the headroom."""
        placed = self.placed
        # Spelled out, because checkpoints hold it: after a change of names alone nothing is published again.
        values = (
            _kept("PlacementVerdict", self.verdict),
            _kept("PlacementReason", self.reason),
            _kept("Rules", self.rules),
            _kept("Rules", self.promise),
            str(self.ensemble_size),
            _kept("Tier", placed.tier),
        )
        text = f"({', '.join(values)}) {placed.feasible} {self.promised.feasible} {self.asked_strict}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def judge_placements(
    cohorts: Iterable[Cohort],
    membership: BookieMembership,
    settings: IsolationSettings,
    promises: Mapping[str, RuleSet] | None = None,
) -> tuple[PlacementJudgement, ...]:
    """Every cohort's verdict, in the order given; several where its namespaces were promised different things."""
    return tuple(
        judge_placement(c.with_namespaces(names), membership, settings, promise)
        for c in cohorts
        for promise, names in _by_promise(c.namespaces, promises or {})
    )


def _by_promise(
    namespaces: tuple[str, ...], promises: Mapping[str, RuleSet]
) -> Iterable[tuple[RuleSet | None, tuple[str, ...]]]:
    if promises.keys().isdisjoint(namespaces):
        return ((None, namespaces),)
    alike: dict[RuleSet | None, list[str]] = {}
    for name in namespaces:
        alike.setdefault(promises.get(name), []).append(name)
    return ((promise, tuple(names)) for promise, names in alike.items())


def judge_placement(
    cohort: Cohort, membership: BookieMembership, settings: IsolationSettings, promise: RuleSet | None = None
) -> PlacementJudgement:
    """The verdict on namespaces of one affinity; what they do not set comes from the settings.

    Args:
        cohort: the namespaces, and what they say.
        membership: who takes new data and who is in which group.
        settings: those in force for the cluster.
        promise: what was promised to these namespaces by command, if anything.
    """
    size, affinity = cohort.ensemble_size or settings.ensemble_size, cohort.affinity
    rules = _rules_of(cohort.strict, settings)
    promise = promise or (RuleSet.STRICT if cohort.strict else settings.promise)
    asked_strict = cohort.strict is True and rules is not RuleSet.STRICT
    placed = place(rules, membership, affinity, size, settings.unaffine)
    promised = placed if rules is promise else place(promise, membership, affinity, size, settings.unaffine)
    verdict, reason = _verdict(placed, promised)
    if verdict is PlacementVerdict.ISOLATED and asked_strict:
        verdict = PlacementVerdict.ASKED_FOR
    return PlacementJudgement(
        namespaces=cohort.namespaces,
        affinity=affinity,
        ensemble_size=size,
        rules=rules,
        promise=promise,
        writable=len(membership.writable),
        placed=placed,
        promised=promised,
        verdict=verdict,
        reason=reason,
        asked_strict=asked_strict,
    )


def _rules_of(strict: bool | None, settings: IsolationSettings) -> RuleSet:
    """What brokers do for a namespace: its own flag counts only where the cluster's brokers are said to read it."""
    if strict is False and settings.rules is RuleSet.STRICT:
        return RuleSet.CURRENT
    return settings.rules


def _verdict(placed: Placed, promised: Placed) -> tuple[PlacementVerdict, PlacementReason]:
    if placed.reason in _UNCONSTRAINED:
        return PlacementVerdict.UNCONSTRAINED, placed.reason
    if not placed.feasible:
        return PlacementVerdict.INFEASIBLE, placed.reason
    if any(len(part) for part in placed.parts if part not in promised.parts):
        return PlacementVerdict.LEAKS, PlacementReason.UNASSIGNED_ELIGIBLE
    if placed.reason is PlacementReason.PRIMARY_SHORT:
        return PlacementVerdict.SPILLS_TO_SECONDARY, placed.reason
    return PlacementVerdict.ISOLATED, placed.reason


def _first(parts: tuple[BookieSet, ...]) -> tuple[str, ...]:
    """The first names of all parts together, few enough for a record."""
    if len(parts) == 1:
        return parts[0].first
    return first_names(sorted(name for part in parts for name in part.first))


def _kept(kind: str, member: ClosedEnum) -> str:
    return f"<{kind}.{member.name}: {member.value!r}>"
