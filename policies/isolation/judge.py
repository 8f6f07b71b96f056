"""Joins the read models of a cluster as of now, judges where each namespace's data may lie, and explains it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from heapq import nsmallest

from msgspec.structs import replace

from policies.confirmation import Doubt, find_missing
from policies.decisions import unique_ids
from policies.isolation.decisions import PlacementReason, PlacementVerdict, Tier
from policies.isolation.placement import (
    NO_GROUPS,
    AffinityGroups,
    BookieMembership,
    BookieSet,
    Placed,
    list_first,
    place,
)
from policies.isolation.settings import IsolationSettings, RuleSet, Unaffine
from policies.isolation.state import (
    UNKNOWN_ENSEMBLE,
    BookieClusterState,
    BookieState,
    Cohort,
    GivenPromise,
    Presence,
    ReadingStatus,
    split_broker_groups,
)
from policies.units import agreeing, counted, millis_of, name_some, to_millis


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """Everything a verdict on one cluster rests on."""

    cluster: str
    now: datetime
    now_ms: int
    settings: IsolationSettings
    known: BookieClusterState
    membership: BookieMembership
    """The believed bookies and groups."""
    quarantined: frozenset[str]
    """The bookies in the quarantine group, also those in another group, too."""
    missing: Mapping[str, int]
    """The registered bookies that the last reading lacks, each with the time of the first reading without it."""
    doubted: Mapping[str, Doubt]
    """The bookies that readings of registrations disagree about, or that a single one showed."""
    is_settled: bool
    """Whether all readings are valid, nothing is doubted but new bookies, members of groups, and namespaces, and no
    member of a group and no affinity has left within `settle`."""
    notable: tuple[BookieState, ...]
    """The bookies that are not simply writable members of a group: few in a healthy cluster."""
    portless: Mapping[str, str]
    """The registered bookies whose host a group lists without the port, so that the entry fits no bookie."""
    stale: dict[str, ReadingStatus]
    """The kinds of readings without a valid good one, by name."""
    evidence: tuple[str, ...]
    """The ids of the good readings behind these facts, newest first."""

    def may_order(self, bookie: str) -> bool:
        """Whether a quarantine of this bookie rests on nothing doubted. A new one counts when it was read twice."""
        own = self.doubted.get(bookie)
        return self.is_settled and (own is None or own.may_be_acted_on(self.known.bookies_status.read_ms))

    @property
    def has_fresh_registrations(self) -> bool:
        """Whether the readings of bookies and groups are valid."""
        return "bookies" not in self.stale and "racks" not in self.stale

    @property
    def is_fresh(self) -> bool:
        """Whether all readings are valid. Without the namespaces, the effect of a quarantine is unknown."""
        return not self.stale


def join_facts(now: datetime, cluster: str, known: BookieClusterState, settings: IsolationSettings) -> IsolationFacts:
    """Join the read models of a cluster as of now."""
    now_ms, validity_ms = to_millis(now), millis_of(settings.validity)
    stale = {name: status for name, status in known.statuses.items() if now_ms - status.read_ms >= validity_ms}
    membership = known.membership()
    newest = sorted(known.statuses.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    missing = find_missing(known.bookies_status.doubts)
    notable = tuple(b for b in known.bookies if not (b.assigned and b.takes_data) or b.bookie in missing)
    return IsolationFacts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=known,
        membership=membership,
        quarantined=membership.quarantined(),
        missing=missing,
        doubted={doubt.name: doubt for doubt in known.bookies_status.doubts},
        is_settled=not stale
        and now_ms >= known.changed_ms + millis_of(settings.settle)
        and all(doubt.is_new and doubt.shown is not None for doubt in known.bookies_status.doubts)
        and all(
            doubt.is_new and not doubt.is_contradicted
            for doubt in (*known.racks_status.doubts, *known.affinity_status.doubts)
        ),
        notable=notable,
        portless=_find_portless(notable),
        stale=stale,
        evidence=unique_ids(*(status.read_id for status in newest)),
    )


def _find_portless(notable: Sequence[BookieState]) -> Mapping[str, str]:
    """Return the rack entry without port by bookie: `bk0` for `bk0:3181`, if no bookie `bk0` ever registered."""
    entries = {b.bookie for b in notable if b.assigned and b.never_joined and ":" not in b.bookie}
    hosts = {b.bookie: b.bookie.rpartition(":")[0] for b in notable if b.presence is not Presence.OFFLINE}
    return {bookie: host for bookie, host in hosts.items() if host in entries}


def explain_portless(bookie: str) -> str:
    """The mistake in the racks behind a bookie that is in no group."""
    return f"a group lists {bookie.rpartition(':')[0]} (the rack entry lacks the port)"


# Judges how well each namespace is isolated: compares the bookies its brokers may use with the promised ones.

_UNCONSTRAINED = frozenset({PlacementReason.NO_GROUPS, PlacementReason.NO_AFFINITY, PlacementReason.ANY_GROUP})
"""The reasons for which brokers exclude no bookie."""


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
    is_ensemble_assumed: bool = False
    """Whether the ensemble is the default only because the namespaces' policies were not found."""

    @cached_property
    def leak_parts(self) -> tuple[BookieSet, ...]:
        """Candidates that the promise forbids."""
        return tuple(part for part in self.placed.parts if part not in self.promised.parts)

    @property
    def leak_count(self) -> int:
        """The number of bookies that leak."""
        return sum(map(len, self.leak_parts))

    @cached_property
    def leak(self) -> tuple[str, ...]:
        """The first of them that fit into a record, sorted."""
        return list_first(self.leak_parts)

    @cached_property
    def core(self) -> str:
        """Changes when anything changes in the placements of these namespaces but bookies' names and the headroom."""
        core = (
            *(self.verdict, self.reason, self.rules, self.promise, self.ensemble_size, self.placed.tier),
            *(self.placed.feasible, self.promised.feasible, self.asked_strict, self.is_ensemble_assumed),
        )
        return "/".join(map(str, core))

    @cached_property
    def names_digest(self) -> str:
        """Changes with the headroom and the bookies' names."""
        digests = (b"".join(part.digest for part in placed.parts) for placed in (self.placed, self.promised))
        return f"{self.placed.headroom}/{'/'.join(digest.hex() for digest in digests)}"


_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())


def judge_placements(
    membership: BookieMembership,
    cohorts: tuple[Cohort, ...],
    promises: Sequence[GivenPromise],
    settings: IsolationSettings,
) -> tuple[PlacementJudgement, ...]:
    """Return the verdict on namespaces without affinity, then on each cohort, in order.

    There are several on one cohort if its namespaces have different promises.
    """
    broker_groups, cohorts = split_broker_groups(cohorts)
    given = {each.namespace: RuleSet(each.rules) for each in promises if each.rules}
    found: list[PlacementJudgement] = []
    for cohort in (_WITHOUT_AFFINITY, *cohorts):
        by_promise: dict[RuleSet | None, list[str]] = {} if cohort.namespaces else {None: []}
        for name in cohort.namespaces:
            by_promise.setdefault(given.get(name), []).append(name)
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
    size, rules = cohort.ensemble_size or settings.ensemble_size, settings.rules
    affinity: AffinityGroups = cohort
    # With strictBookieAffinityEnabled, brokers do not use their own groups.
    is_broker_wide = not affinity and settings.unaffine is Unaffine.ANY
    if is_broker_wide:
        own = settings.broker_groups
        affinity = AffinityGroups(own.primary, own.secondary) if own else broker_groups
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
        is_ensemble_assumed=cohort.ensemble_size == UNKNOWN_ENSEMBLE,
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


# Explains a verdict by the values that decided, with counts and short lists.

NAMED_LIMIT = 5
"""The most names of one kind in a sentence about one thing; the rest is counted."""
WORST_FIRST = (
    PlacementVerdict.INFEASIBLE,
    PlacementVerdict.LEAKS,
    PlacementVerdict.SPILLS_TO_SECONDARY,
    PlacementVerdict.ASKED_FOR,
    PlacementVerdict.UNCONSTRAINED,
    PlacementVerdict.ISOLATED,
)
_WHY_UNCONSTRAINED = {
    PlacementReason.NO_GROUPS: "the cluster has no groups",
    PlacementReason.NO_AFFINITY: "it has no affinity",
    PlacementReason.ANY_GROUP: "its primary group is *",
}


def explain_placement(judged: PlacementJudgement) -> str:
    """The rest of a sentence that begins with a namespace, without its full stop."""
    size, placed, bookies = judged.ensemble_size, judged.placed, counted(judged.placed.count, "bookie")
    match judged.verdict:
        case PlacementVerdict.UNCONSTRAINED:
            short = "" if placed.feasible else f", too few for the {size} a ledger needs"
            writable = counted(judged.writable, "writable bookie")
            explained = f"may use all of {writable}{short}: {_WHY_UNCONSTRAINED[judged.reason]}"
        case PlacementVerdict.INFEASIBLE if judged.reason is PlacementReason.UNGROUPED_ONLY:
            explained = (
                f"cannot place its data: without affinity it may use {bookies} without a group, of {size} needed"
            )
        case PlacementVerdict.INFEASIBLE:
            explained = f"cannot place its data: it may use {bookies} of {size} needed, and {_explain_groups(judged)}"
        case PlacementVerdict.LEAKS:
            named = name_some(judged.leak, NAMED_LIMIT, judged.leak_count)
            always = ", which the legacy rules never exclude" if judged.rules is RuleSet.LEGACY else ""
            why = f"{always}: {_explain_groups(judged)}"
            explained = f"can place data on {counted(judged.leak_count, 'bookie')} without a group ({named}){why}"
        case PlacementVerdict.SPILLS_TO_SECONDARY:
            explained = _explain_spill(judged)
        case _ if judged.reason is PlacementReason.UNGROUPED_ONLY:
            explained = f"has no affinity and keeps to the {bookies} without a group, of {size} needed"
        case _:
            explained = f"keeps to {_name_owner(judged)} groups: {_explain_primary(judged)}"
    if judged.asked_strict:
        explained += "; strict is asked for, and no released Pulsar reads that"
    if judged.is_ensemble_assumed:
        explained += f"; its policies were not found, so its ensemble is not known, and {size} is assumed"
    return explained


def _explain_spill(judged: PlacementJudgement) -> str:
    placed, affinity, owner = judged.placed, judged.affinity, _name_owner(judged)
    reaches = f"reaches beyond {owner} primary groups to" if affinity.primary else "keeps to"
    beyond = f"{counted(len(placed.unassigned), 'bookie')} without a group, as the promise allows"
    if placed.tier is Tier.SECONDARY:
        groups = name_groups(affinity.secondary, "secondary ")
        beyond = f"{counted(len(placed.secondary), 'bookie')} of {owner} {groups}"
    return f"{reaches} {beyond}: {_explain_primary(judged)}"


def _explain_groups(judged: PlacementJudgement) -> str:
    groups, explained = judged.affinity.secondary, _explain_primary(judged)
    if groups:
        count, more = len(judged.placed.secondary), " more" if judged.affinity.primary else ""
        verb = agreeing(len(groups), "has", "have")
        explained += f", and {_name_owner(judged)} {name_groups(groups, 'secondary ')} {verb} {count}{more}"
    return explained


def _explain_primary(judged: PlacementJudgement) -> str:
    needed, groups, count = judged.ensemble_size, judged.affinity.primary, len(judged.placed.primary)
    if not groups:
        names = "it has no affinity, its brokers name" if judged.is_broker_wide else "it names"
        return f"{names} no primary group, and it needs {counted(needed, 'bookie')}"
    why = "it has no affinity, and " if judged.is_broker_wide else ""
    has = f"{why}{_name_owner(judged)} {name_groups(groups, 'primary ')} {agreeing(len(groups), 'has', 'have')}"
    if count < needed:
        return f"{has} {count} of {counted(needed, 'needed bookie')} writable"
    return f"{has} {counted(count, 'writable bookie')}, and {needed} {agreeing(needed, 'is', 'are')} needed"


def _name_owner(judged: PlacementJudgement) -> str:
    return "its brokers'" if judged.is_broker_wide else "its"


def name_groups(groups: Collection[str], kind: str = "") -> str:
    """``group default``; with the kind ``secondary ``: ``secondary groups a, b``."""
    named = name_some(nsmallest(NAMED_LIMIT, groups), NAMED_LIMIT, len(groups))
    return f"{kind}group{'s' if len(groups) > 1 else ''} {named}"
