"""How well each namespace is isolated: what the cluster does, held against what was promised."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from policies.isolation.decision import PlacementReason, PlacementVerdict, Tier
from policies.isolation.knowledge import Cohort
from policies.isolation.placement import ANY_GROUP, Affinity, Membership, Placed, place
from policies.isolation.settings import IsolationSettings, Rules
from policies.isolation.words import bookies_named, groups_named
from policies.units import counted

UNCONSTRAINED = frozenset({PlacementReason.NO_GROUPS, PlacementReason.NO_AFFINITY, PlacementReason.ANY_GROUP})
"""The reasons for which brokers exclude nothing."""


@dataclass(frozen=True)
class Judged:
    """Namespaces of one affinity, and where their data may lie now."""

    namespaces: tuple[str, ...]
    affinity: Affinity
    ensemble_size: int
    rules: Rules
    promise: Rules
    writable: int
    placed: Placed
    promised: Placed
    verdict: PlacementVerdict
    reason: PlacementReason

    @property
    def is_isolated(self) -> bool:
        """Whether they are meant to keep to some bookies: they have an affinity, and it is not `*`."""
        return bool(self.affinity.primary) and ANY_GROUP not in self.affinity.primary

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
        placed, promised = self.placed, self.promised
        lists = "\n".join((*self.candidates, "", *self.promised_candidates))
        values = (self.verdict, self.reason, self.rules, self.promise, self.ensemble_size, placed.tier)
        text = f"{values} {placed.feasible} {promised.feasible} {placed.headroom}\n{lists}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def what(self) -> str:
        """The rest of a sentence that begins with a namespace, without its full stop."""
        match self.verdict:
            case PlacementVerdict.UNCONSTRAINED:
                return _unconstrained(self)
            case PlacementVerdict.INFEASIBLE:
                return f"cannot place its data: {_may_use(self)}"
            case PlacementVerdict.LEAKS:
                return _leaks(self)
            case PlacementVerdict.SPILLS_TO_SECONDARY:
                return f"reaches beyond its primary groups to {_beyond(self)}: {_primary(self)}"
            case PlacementVerdict.ISOLATED:
                return _isolated(self)


def judge(cohorts: Iterable[Cohort], membership: Membership, settings: IsolationSettings) -> tuple[Judged, ...]:
    """Every cohort's verdict, in the order given."""
    return tuple(judge_one(c.namespaces, c.affinity, c.ensemble_size, c.strict, membership, settings) for c in cohorts)


def judge_one(
    namespaces: tuple[str, ...],
    affinity: Affinity,
    ensemble_size: int | None,
    strict: bool | None,
    membership: Membership,
    settings: IsolationSettings,
) -> Judged:
    """The verdict on namespaces of one affinity; what they do not set comes from the settings."""
    size, rules = ensemble_size or settings.ensemble_size, rules_of(strict, settings)
    placed = place(rules, membership, affinity, size, settings.unaffine)
    promised = place(settings.promise, membership, affinity, size, settings.unaffine)
    verdict, reason = _verdict(placed, promised)
    return Judged(
        namespaces, affinity, size, rules, settings.promise, len(membership.writable), placed, promised, verdict, reason
    )


def rules_of(strict: bool | None, settings: IsolationSettings) -> Rules:
    """What brokers do for a namespace: its own flag wins over the cluster's rules."""
    if strict is None:
        return settings.rules
    if strict:
        return Rules.STRICT
    return Rules.CURRENT if settings.rules is Rules.STRICT else settings.rules


def _verdict(placed: Placed, promised: Placed) -> tuple[PlacementVerdict, PlacementReason]:
    if placed.reason in UNCONSTRAINED:
        return PlacementVerdict.UNCONSTRAINED, placed.reason
    if not placed.feasible:
        return PlacementVerdict.INFEASIBLE, placed.reason
    if placed.candidates - promised.candidates:
        return PlacementVerdict.LEAKS, PlacementReason.UNASSIGNED_ELIGIBLE
    if placed.reason is PlacementReason.PRIMARY_SHORT:
        return PlacementVerdict.SPILLS_TO_SECONDARY, placed.reason
    return PlacementVerdict.ISOLATED, placed.reason


def _unconstrained(judged: Judged) -> str:
    whys = {
        PlacementReason.NO_GROUPS: "the cluster has no groups",
        PlacementReason.NO_AFFINITY: "it has no affinity",
        PlacementReason.ANY_GROUP: "its primary group is *",
    }
    short = "" if judged.placed.feasible else f", too few for the {judged.ensemble_size} a ledger needs"
    return f"may use all of {counted(judged.writable, 'writable bookie')}{short}: {whys[judged.reason]}"


def _may_use(judged: Judged) -> str:
    size, count = judged.ensemble_size, len(judged.placed.candidates)
    if judged.reason is PlacementReason.UNGROUPED_ONLY:
        return f"without affinity it may use {counted(count, 'bookie')} without a group, of {size} needed"
    return f"it may use {counted(count, 'bookie')} of {size} needed, and {_primary(judged)}{_secondary(judged)}"


def _leaks(judged: Judged) -> str:
    where = f"can place data on {counted(len(judged.leak), 'bookie')} without a group ({bookies_named(judged.leak)})"
    if judged.rules is Rules.LEGACY and judged.placed.tier is not Tier.UNASSIGNED:
        where += ", which the legacy rules never exclude"
    return f"{where}: {_primary(judged)}{_secondary(judged)}"


def _beyond(judged: Judged) -> str:
    if judged.placed.tier is Tier.SECONDARY:
        return f"{counted(len(judged.placed.secondary), 'bookie')} of its {groups_named('secondary', judged.affinity)}"
    return f"{counted(len(judged.placed.unassigned), 'bookie')} without a group, as promised"


def _isolated(judged: Judged) -> str:
    size = judged.ensemble_size
    if judged.reason is PlacementReason.UNGROUPED_ONLY:
        count = counted(len(judged.placed.candidates), "bookie")
        return f"has no affinity and keeps to the {count} without a group, of {size} needed"
    return f"keeps to its groups: {_primary(judged)}"


def _primary(judged: Judged) -> str:
    writable = counted(judged.ensemble_size, "needed bookie")
    return f"its {groups_named('primary', judged.affinity)} has {len(judged.placed.primary)} of {writable} writable"


def _secondary(judged: Judged) -> str:
    if not judged.affinity.secondary:
        return ""
    return f", its {groups_named('secondary', judged.affinity)} {len(judged.placed.secondary)} more"
