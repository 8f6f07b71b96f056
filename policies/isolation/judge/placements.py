"""Judges how well each namespace is isolated: compares the bookies its brokers may use with the promised ones."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from policies.closed_enum import ClosedEnum
from policies.isolation.decisions import PlacementReason, PlacementVerdict
from policies.isolation.membership import AffinityGroups, BookieMembership, BookieSet, first_names
from policies.isolation.placement import Placed, place
from policies.isolation.settings import IsolationSettings, RuleSet, Unaffine
from policies.isolation.state import Cohort

_UNCONSTRAINED = frozenset({PlacementReason.NO_GROUPS, PlacementReason.NO_AFFINITY, PlacementReason.ANY_GROUP})
"""The reasons for which brokers exclude no bookie."""
_SEPARATOR = BookieSet(frozenset())
NO_GROUPS = AffinityGroups(frozenset(), frozenset())
CORE_LENGTH = 16
"""The length of a fingerprint's core; its rest stands for the bookies' names and the headroom."""


@dataclass(frozen=True)
class PlacementJudgement:
    """The verdict on namespaces with one affinity and one promise."""

    namespaces: tuple[str, ...]
    affinity: AffinityGroups
    ensemble_size: int
    rules: RuleSet
    promise: RuleSet
    writable: int
    placed: Placed
    """The bookies that the cluster's rules allow."""
    promised: Placed
    """The bookies that the promise allows."""
    verdict: PlacementVerdict
    reason: PlacementReason
    asked_strict: bool = False
    """Whether the namespaces' own policies ask for strict rules, which their brokers ignore."""
    is_broker_wide: bool = False
    """Whether the groups are those of the brokers, since the namespaces have none of their own."""

    @cached_property
    def leak_parts(self) -> tuple[BookieSet, ...]:
        """Candidates that the promise forbids."""
        return tuple(part for part in self.placed.parts if part not in self.promised.parts and len(part))

    @property
    def leak_count(self) -> int:
        """The number of bookies that leak."""
        return sum(map(len, self.leak_parts))

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The bookies that the cluster's rules allow, sorted; only the first if they do not fit into a record."""
        return _first_of(self.placed.parts)

    @cached_property
    def promised_candidates(self) -> tuple[str, ...]:
        """The bookies that the promise allows, likewise."""
        return _first_of(self.promised.parts)

    @cached_property
    def leak(self) -> tuple[str, ...]:
        """The candidates that the promise forbids, likewise."""
        return _first_of(self.leak_parts)

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that change when anything changes in the placements of these namespaces.

        It begins with the core.
        """
        parts = b"/".join(part.digest for part in (*self.placed.parts, _SEPARATOR, *self.promised.parts))
        content = f"{self.core} {self.placed.headroom} ".encode()
        return self.core + hashlib.blake2b(content + parts, digest_size=8).hexdigest()

    @cached_property
    def core(self) -> str:
        """16 hexadecimal digits that do not depend on the bookies' names and the headroom."""
        placed = self.placed
        # Checkpoints hold the digest, so the names of enums are written out here. A renamed class changes nothing.
        values = (
            _write_member("PlacementVerdict", self.verdict),
            _write_member("PlacementReason", self.reason),
            _write_member("Rules", self.rules),
            _write_member("Rules", self.promise),
            str(self.ensemble_size),
            _write_member("Tier", placed.tier),
        )
        text = f"({', '.join(values)}) {placed.feasible} {self.promised.feasible} {self.asked_strict}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _first_of(parts: tuple[BookieSet, ...]) -> tuple[str, ...]:
    """The first names of all parts together that fit into a record."""
    if len(parts) == 1:
        return parts[0].first
    return first_names(sorted(name for part in parts for name in part.first))


def _write_member(kind: str, member: ClosedEnum) -> str:
    return f"<{kind}.{member.name}: {member.value!r}>"


def judge_placements(
    cohorts: Iterable[Cohort],
    membership: BookieMembership,
    settings: IsolationSettings,
    promises: Mapping[str, RuleSet] | None = None,
    broker_groups: AffinityGroups = NO_GROUPS,
) -> tuple[PlacementJudgement, ...]:
    """Return the verdict on each cohort, in the order given; several if its namespaces have different promises."""
    found: list[PlacementJudgement] = []
    for cohort in cohorts:
        if not promises or promises.keys().isdisjoint(cohort.namespaces):
            found.append(judge_placement(cohort, membership, settings, None, broker_groups))
            continue
        by_promise: dict[RuleSet | None, list[str]] = {}
        for name in cohort.namespaces:
            by_promise.setdefault(promises.get(name), []).append(name)
        for promise, names in by_promise.items():
            part = replace(cohort, namespaces=tuple(names))
            found.append(judge_placement(part, membership, settings, promise, broker_groups))
    return tuple(found)


def judge_placement(
    cohort: Cohort,
    membership: BookieMembership,
    settings: IsolationSettings,
    promise: RuleSet | None = None,
    broker_groups: AffinityGroups = NO_GROUPS,
) -> PlacementJudgement:
    """Return the verdict on namespaces of one affinity.

    Args:
        cohort: the namespaces, with their affinity; the settings fill in what it does not set.
        membership: the writable bookies and the groups.
        promise: the rules that were promised to these namespaces by command, if any.
        broker_groups: the groups of namespaces without affinity, as read from a broker; the settings come first.
    """
    size, affinity, rules = cohort.ensemble_size or settings.ensemble_size, cohort.affinity, settings.rules
    # With strictBookieAffinityEnabled, brokers do not use their own groups.
    is_broker_wide = not affinity and settings.unaffine is Unaffine.ANY
    if is_broker_wide:
        own = settings.broker_groups
        affinity = AffinityGroups(frozenset(own.primary), frozenset(own.secondary)) if own else broker_groups
    # A namespace's own flag counts only where the settings say that the cluster's brokers read it.
    if cohort.strict is False and rules is RuleSet.STRICT:
        rules = RuleSet.CURRENT
    promise = promise or (RuleSet.STRICT if cohort.strict else settings.promise)
    asked_strict = cohort.strict is True and rules is not RuleSet.STRICT
    placed = place(rules, membership, affinity, size, settings.unaffine)
    promised = placed if rules is promise else place(promise, membership, affinity, size, settings.unaffine)
    verdict, reason = _compare(placed, promised)
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
        is_broker_wide=is_broker_wide and bool(affinity),
    )


def _compare(placed: Placed, promised: Placed) -> tuple[PlacementVerdict, PlacementReason]:
    if placed.reason in _UNCONSTRAINED:
        return PlacementVerdict.UNCONSTRAINED, placed.reason
    if not placed.feasible:
        return PlacementVerdict.INFEASIBLE, placed.reason
    if any(len(part) for part in placed.parts if part not in promised.parts):
        return PlacementVerdict.LEAKS, PlacementReason.UNASSIGNED_ELIGIBLE
    if placed.reason is PlacementReason.PRIMARY_SHORT:
        return PlacementVerdict.SPILLS_TO_SECONDARY, placed.reason
    return PlacementVerdict.ISOLATED, placed.reason
