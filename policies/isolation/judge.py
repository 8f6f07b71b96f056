"""Judges facts: where each namespace's data may lie, and which unassigned bookies must be quarantined.

Pure: a verdict is a function of the facts and of the quarantine orders in force. Nothing is published here.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from policies.bookie_readings import BookieAffinity
from policies.isolation.decisions import PlacementReason, PlacementVerdict, QuarantineReason, QuarantineVerdict
from policies.isolation.facts import IsolationFacts
from policies.isolation.fold import collect_alike
from policies.isolation.placement import AffinityGroups, BookieMembership, BookieSet, Placed, first_names, place
from policies.isolation.settings import IsolationSettings, Quarantine, RuleSet, Unaffine
from policies.isolation.state import (
    UNKNOWN_ENSEMBLE,
    BookieState,
    Cohort,
    GivenPromise,
    Presence,
    QuarantineOrder,
    split_broker_groups,
)
from policies.units import ClosedEnum, millis_of

# Judges how well each namespace is isolated: compares the bookies its brokers may use with the promised ones.

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
    is_ensemble_assumed: bool = False
    """Whether the ensemble is the default only because the namespaces' policies were not found."""

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
        text += " assumed" if self.is_ensemble_assumed else ""
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


# Judges which unassigned bookies must be quarantined, and which quarantine orders end.
#
# Three guards prevent mass mistakes. The cluster must have groups; `max_quarantined` bounds the bookies in
# quarantine; no bookie is taken that a namespace needs to reach its ensemble. A need counts while it is unmet, too: a
# namespace that has lost one more bookie for the time of a restart needs the rest more than before. Bookies are
# judged one after the other, each as if the orders on the earlier ones were carried out already.
#
# Headgate never takes a quarantine back, so an order rests on facts that have held for `settle` without a gap. No
# member of a group may have left within that time, and no group or affinity. A bookie that came within that time counts
# as absent: a namespace that needed another one before still does. Nothing is ordered while a reading is doubted.

_LAST = 2**63


@dataclass(frozen=True, slots=True)
class QuarantineJudgement:
    """The verdict on one unassigned bookie."""

    bookie: BookieState
    verdict: QuarantineVerdict
    reason: QuarantineReason
    starved: str = ""
    """The namespaces that could not place data without it, if that is the reason."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The bookies in no group, and how many of them namespaces need to reach their ensembles.

    A quarantine takes away one bookie in no group. No rule distinguishes these bookies, so their number suffices.
    """

    unassigned: frozenset[str]
    needed: Sequence[tuple[int, str]]
    """Each greater than those before it, with its namespace. The first namespace that a quarantine starves needs more
    than all before it, so only those are listed. The namespace is empty if the cluster has no groups: the first one
    would constrain every namespace, so every bookie is needed."""

    @classmethod
    def collect(
        cls, placements: Sequence[PlacementJudgement], membership: BookieMembership, *, has_groups: bool
    ) -> "Needs":
        """Collect the needs of all placements."""
        needed: list[tuple[int, str]] = [] if has_groups else [(_LAST, "")]
        for judged in placements:
            count = judged.placed.needed_unassigned(judged.ensemble_size)
            if count > (needed[-1][0] if needed else 0):
                needed.append((count, judged.namespaces[0] if judged.namespaces else "namespaces without affinity"))
        return cls(membership.unassigned.members, needed)

    def find_starved(self, taken: Set[str]) -> str | None:
        """Return the namespace that needs more bookies than are left without `taken`; None if there is none."""
        left = len(self.unassigned - taken)
        return next((namespace for count, namespace in self.needed if count > left), None)


def judge_ends(
    orders: Sequence[QuarantineOrder], facts: IsolationFacts
) -> tuple[tuple[QuarantineOrder, QuarantineReason], ...]:
    """Return the orders that end now, and why.

    An order on many bookies ends when none of them is left, which `emit` finds out from the verdicts.
    """
    known = {b.bookie: b for b in facts.known.bookies} if orders else {}
    ended = ((order, _judge_end(order, known.get(order.bookie), facts)) for order in orders if order.bookie)
    return tuple((order, reason) for order, reason in ended if reason is not None)


def _judge_end(order: QuarantineOrder, bookie: BookieState | None, facts: IsolationFacts) -> QuarantineReason | None:
    if facts.settings.quarantine is Quarantine.OFF:
        return QuarantineReason.SWITCHED_OFF
    if not facts.has_fresh_registrations:
        return None
    is_put_there = order.verdict is QuarantineVerdict.WITHHOLD and order.bookie in facts.quarantined
    if bookie is not None and (bookie.assigned or is_put_there):
        return QuarantineReason.ASSIGNED
    return QuarantineReason.GONE if bookie is None or bookie.presence is Presence.OFFLINE else None


def judge_quarantines(
    remaining: Mapping[str, QuarantineOrder], facts: IsolationFacts, needed: Needs, settled: Needs
) -> Iterator[QuarantineJudgement]:
    """Judge every writable bookie that has been unassigned for the grace; none while a reading is stale.

    They are judged in the order of registration. Bookies with an order to quarantine them come first, so that a
    newcomer does not take their place.

    Args:
        remaining: the orders that remain in force, by bookie.
        needed: the present needs.
        settled: the needs without the bookies that came within `settle`.
    """
    if facts.settings.quarantine is Quarantine.OFF or not facts.is_fresh:
        return
    ordered = {b: order for b, order in remaining.items() if order.verdict is QuarantineVerdict.QUARANTINE}
    away = {b.bookie for b in facts.known.bookies if b.bookie in ordered and not b.takes_data}
    # An order is not repeated while its bookie is read-only, so it expires, and then keeps no place.
    valid_from_ms = facts.now_ms - millis_of(facts.settings.validity)
    taken = facts.quarantined | {b for b in away if ordered[b].published_ms > valid_from_ms}
    oldest_ms = facts.now_ms - millis_of(facts.settings.grace)
    due = [
        b
        for b in facts.notable
        if b.assigned is False
        and b.takes_data
        and (b.bookie in remaining or (b.since_ms <= oldest_ms and facts.may_order(b.bookie)))
    ]
    if not due:
        return
    guard = _Guard(facts, needed, settled, frozenset(ordered))
    is_waiting = any(_find_absent(facts))
    zxids = {b.bookie: _LAST if b.czxid is None else b.czxid for b in due}
    joined_ms = {b.bookie: b.registered_ms or b.since_ms for b in due}
    for bookie in sorted(due, key=lambda b: (b.bookie not in ordered, zxids[b.bookie], joined_ms[b.bookie], b.bookie)):
        name = bookie.bookie
        if name in facts.quarantined:
            if name in ordered:
                yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)
            continue
        forbidden, starved = guard.check(name, taken)
        if forbidden is not None:
            yield QuarantineJudgement(bookie, QuarantineVerdict.WITHHOLD, forbidden, starved)
        elif not is_waiting and facts.may_order(name):
            taken |= {name}
            yield QuarantineJudgement(bookie, QuarantineVerdict.QUARANTINE, QuarantineReason.UNASSIGNED)


@dataclass(frozen=True, slots=True)
class _Guard:
    """Forbids the quarantine of bookies that must stay, and of more than the settings allow."""

    facts: IsolationFacts
    needed: Needs
    settled: Needs
    ordered: frozenset[str]

    def check(self, bookie: str, taken: frozenset[str]) -> tuple[QuarantineReason | None, str]:
        """Return the reason to withhold a quarantine, or None; and the namespaces that it would starve.

        Args:
            taken: the bookies that are in quarantine or on their way there.
        """
        starved = self.needed.find_starved(taken | {bookie})
        if starved is None and bookie not in self.ordered:
            starved = self.settled.find_starved(taken | {bookie})
        if starved == "":
            return QuarantineReason.NO_GROUPS, ""
        if bookie in self.facts.portless:
            return QuarantineReason.RACK_ENTRY, ""
        if len(taken) >= self.facts.settings.max_quarantined:
            return QuarantineReason.MAX_QUARANTINED, ""
        return (QuarantineReason.WOULD_BE_INFEASIBLE, starved) if starved else (None, "")


def _find_recent(facts: IsolationFacts) -> frozenset[str]:
    """Return the writable bookies that came, or became writable, within `settle` and after the first readings."""
    if facts.settings.quarantine is Quarantine.OFF:
        return frozenset()
    oldest_ms = max(facts.known.complete_ms or 0, facts.now_ms - millis_of(facts.settings.settle))
    return frozenset(b.bookie for b in facts.known.bookies if b.takes_data and b.since_ms > oldest_ms)


def _find_absent(facts: IsolationFacts) -> Iterator[BookieState]:
    """Yield the members of groups that may come back: their cookie exists, and they left within the last `settle`."""
    oldest_ms = facts.now_ms - millis_of(facts.settings.settle)
    for bookie in facts.notable:
        is_away = bookie.presence is Presence.OFFLINE and bookie.has_cookie
        if bookie.assigned and is_away and bookie.since_ms > oldest_ms:
            yield bookie


def quarantine_due_ms(facts: IsolationFacts) -> Iterator[int]:
    """When (milliseconds since the epoch) an order may become right without a reading; some may be past."""
    if facts.settings.quarantine is not Quarantine.OFF:
        recent = _find_recent(facts)
        changes = (b.since_ms for b in facts.known.bookies if b.bookie in recent) if recent else ()
        absences = (b.since_ms for b in _find_absent(facts))
        settle_ms = millis_of(facts.settings.settle)
        yield from (ms + settle_ms for ms in {facts.known.changed_ms, *changes, *absences})


_WITHOUT_AFFINITY = Cohort((), (), strict=None, ensemble_size=None, namespaces=())


@dataclass(frozen=True, slots=True)
class IsolationJudgement:
    """All verdicts on one cluster."""

    placements: tuple[PlacementJudgement, ...]
    """The verdicts on namespaces with an affinity."""
    without_affinity: PlacementJudgement
    ended: tuple[tuple[QuarantineOrder, QuarantineReason], ...]
    """The quarantine orders that end now, and why."""
    remaining: dict[str, QuarantineOrder]
    """The orders that remain, by bookie; an order on many bookies has the empty name."""
    quarantines: tuple[QuarantineJudgement, ...]
    """The verdicts on unassigned bookies."""


def find_starved_now(
    bookie: str, membership: BookieMembership, affinity: BookieAffinity, settings: IsolationSettings
) -> str | None:
    """Return the namespace that could not place data with one bookie in no group less; None if there is none.

    The cluster must have a group.
    """
    placements = _judge_namespaces(membership, collect_alike(affinity, ()), (), settings)
    return Needs.collect(placements, membership, has_groups=True).find_starved({bookie})


def _judge_namespaces(
    membership: BookieMembership,
    cohorts: tuple[Cohort, ...],
    promises: Sequence[GivenPromise],
    settings: IsolationSettings,
) -> tuple[PlacementJudgement, ...]:
    broker_groups, cohorts = split_broker_groups(cohorts)
    given = {each.namespace: RuleSet(each.rules) for each in promises if each.rules}
    return judge_placements((_WITHOUT_AFFINITY, *cohorts), membership, settings, given, broker_groups)


def judge_isolation(
    facts: IsolationFacts, orders: Sequence[QuarantineOrder], settings: IsolationSettings
) -> IsolationJudgement:
    """Return the verdicts on one cluster.

    Args:
        orders: the quarantine orders in force before this step.
    """
    judged = _judge_namespaces(facts.membership, facts.known.cohorts, facts.known.promises, settings)
    ended = judge_ends(orders, facts)
    ended_bookies = {order.bookie for order, _ in ended}
    remaining = {order.bookie: order for order in orders if order.bookie not in ended_bookies}
    has_groups = facts.membership.has_groups
    needed = settled = Needs.collect(judged, facts.membership, has_groups=has_groups)
    if recent := _find_recent(facts):
        membership = BookieMembership(facts.membership.writable - recent, facts.membership.groups)
        before = _judge_namespaces(membership, facts.known.cohorts, facts.known.promises, settings)
        settled = Needs.collect(before, membership, has_groups=has_groups)
    quarantines = tuple(judge_quarantines(remaining, facts, needed, settled))
    return IsolationJudgement(judged[1:], judged[0], ended, remaining, quarantines)
