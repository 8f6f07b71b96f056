"""How well each namespace is isolated: what the cluster does, held against what was promised."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from policies.closed_enum import ClosedEnum
from policies.isolation.decisions import PlacementReason, PlacementVerdict
from policies.isolation.membership import AffinityGroups, BookieMembership
from policies.isolation.placement import Placed, place
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import Cohort

_UNCONSTRAINED = frozenset({PlacementReason.NO_GROUPS, PlacementReason.NO_AFFINITY, PlacementReason.ANY_GROUP})
"""The reasons for which brokers exclude nothing."""


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

    @cached_property
    def leak(self) -> frozenset[str]:
        """Candidates that the promise forbids."""
        return self.placed.candidates - self.promised.candidates

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """All bookies the cluster's rules allow, sorted."""
        return tuple(sorted(self.placed.candidates))

    @cached_property
    def promised_candidates(self) -> tuple[str, ...]:
        """Those that the promise allows, sorted."""
        return tuple(sorted(self.promised.candidates))

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when anything changes that is published of these namespaces."""
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
        lists = "\n".join((*self.candidates, "", *self.promised_candidates))
        text = f"({', '.join(values)}) {placed.feasible} {self.promised.feasible} {placed.headroom}\n{lists}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def judge_placements(
    cohorts: Iterable[Cohort], membership: BookieMembership, settings: IsolationSettings
) -> tuple[PlacementJudgement, ...]:
    """Every cohort's verdict, in the order given."""
    return tuple(
        judge_placement(c.namespaces, c.affinity, c.ensemble_size, c.strict, membership, settings) for c in cohorts
    )


def judge_placement(
    namespaces: tuple[str, ...],
    affinity: AffinityGroups,
    ensemble_size: int | None,
    strict: bool | None,
    membership: BookieMembership,
    settings: IsolationSettings,
) -> PlacementJudgement:
    """The verdict on namespaces of one affinity; what they do not set comes from the settings."""
    size, rules = ensemble_size or settings.ensemble_size, _rules_of(strict, settings)
    placed = place(rules, membership, affinity, size, settings.unaffine)
    promised = place(settings.promise, membership, affinity, size, settings.unaffine)
    verdict, reason = _verdict(placed, promised)
    return PlacementJudgement(
        namespaces, affinity, size, rules, settings.promise, len(membership.writable), placed, promised, verdict, reason
    )


def _rules_of(strict: bool | None, settings: IsolationSettings) -> RuleSet:
    """What brokers do for a namespace: its own flag wins over the cluster's rules."""
    if strict is None:
        return settings.rules
    if strict:
        return RuleSet.STRICT
    return RuleSet.CURRENT if settings.rules is RuleSet.STRICT else settings.rules


def _verdict(placed: Placed, promised: Placed) -> tuple[PlacementVerdict, PlacementReason]:
    if placed.reason in _UNCONSTRAINED:
        return PlacementVerdict.UNCONSTRAINED, placed.reason
    if not placed.feasible:
        return PlacementVerdict.INFEASIBLE, placed.reason
    if placed.candidates - promised.candidates:
        return PlacementVerdict.LEAKS, PlacementReason.UNASSIGNED_ELIGIBLE
    if placed.reason is PlacementReason.PRIMARY_SHORT:
        return PlacementVerdict.SPILLS_TO_SECONDARY, placed.reason
    return PlacementVerdict.ISOLATED, placed.reason


def _kept(kind: str, member: ClosedEnum) -> str:
    return f"<{kind}.{member.name}: {member.value!r}>"
