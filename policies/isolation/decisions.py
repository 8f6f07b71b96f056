"""Decisions of the isolation policy: where a namespace's data may lie, and which bookies go into quarantine."""

from typing import ClassVar

from pydantic import Field

from policies.closed_enum import ClosedEnum
from policies.decisions import Decision
from policies.isolation.rules import RuleSet
from policies.units import Instant

QUARANTINE_GROUP = "headgate-quarantine"
QUARANTINE_RACK = f"/{QUARANTINE_GROUP}"


class Tier(ClosedEnum):
    """How far a namespace must reach to find enough bookies."""

    PRIMARY = "primary", "Its primary groups suffice."
    SECONDARY = "secondary", "It needs its secondary groups, too."
    UNASSIGNED = "unassigned", "It needs bookies without a group."
    NONE = "none", "Not even all it may use suffice."


class PlacementVerdict(ClosedEnum):
    """How well a namespace is isolated now."""

    ISOLATED = "isolated", "It keeps to its primary groups (or, without affinity, to bookies without a group)."
    SPILLS_TO_SECONDARY = (
        "spills_to_secondary",
        "Its primary groups do not suffice: others that it was promised serve, too.",
    )
    LEAKS = "leaks", "It may use bookies that the promise forbids."
    INFEASIBLE = "infeasible", "It may use fewer bookies than a ledger needs."
    UNCONSTRAINED = "unconstrained", "Brokers exclude no bookie for it."
    ASKED_FOR = (
        "asked_for",
        "It keeps to its primary groups for now, and its `strict` asks for more: no released Pulsar reads that.",
    )


class PlacementReason(ClosedEnum):
    """Why a namespace's verdict is what it is."""

    PRIMARY_SUFFICES = "primary_suffices", "Its primary groups have enough writable bookies."
    PRIMARY_SHORT = "primary_short", "Its primary groups have too few writable bookies."
    UNASSIGNED_ELIGIBLE = (
        "unassigned_eligible",
        "The cluster's rules let it use bookies without a group, which the promise forbids.",
    )
    TOO_FEW_BOOKIES = "too_few_bookies", "All it may use are fewer than a ledger needs."
    NO_AFFINITY = "no_affinity", "It names no primary group."
    ANY_GROUP = "any_group", "Its primary group is `*`."
    NO_GROUPS = "no_groups", "The cluster has no groups."
    UNGROUPED_ONLY = (
        "ungrouped_only",
        "It has no affinity, and `unaffine` is `ungrouped`: bookies without a group, and no others.",
    )


class Placement(Decision):
    """Which bookies a namespace may use now, by the cluster's rules and by the promise."""

    event_type: ClassVar[str] = "headgate.placement.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "candidates", "promised_candidates", "headroom")

    verdict: PlacementVerdict
    reason: PlacementReason
    namespace: str = Field(description="`tenant/namespace`.")
    rules: RuleSet = Field(description="What the cluster does.")
    promise: RuleSet = Field(description="What was promised.")
    ensemble_size: int = Field(description="How many bookies a ledger needs.")
    tier: Tier = Field(description="How far it must reach to find enough.")
    feasible: bool = Field(description="Whether the cluster's rules leave it enough bookies.")
    candidates: tuple[str, ...] = Field(
        description="The bookies the cluster's rules allow now, sorted: all, or the first 1,000."
    )
    promised_candidates: tuple[str, ...] = Field(description="Those that the promise allows, likewise.")
    promised_feasible: bool = Field(description="Whether the promise leaves it enough bookies.")
    leak: tuple[str, ...] = Field(description="Candidates that the promise forbids, likewise.")
    headroom: int = Field(ge=0, description="How many more losses until the next tier; 0 when there is none left.")
    candidate_count: int | None = Field(default=None, ge=0, description="How many candidates there are in all.")
    promised_candidate_count: int | None = Field(default=None, ge=0, description="Likewise of those promised.")
    leak_count: int | None = Field(default=None, ge=0, description="Likewise of those that leak.")
    valid_until: Instant | None = Field(
        default=None, description="Repeated well before; without a newer one by then, nobody knows what is the case."
    )


class PlacementSummary(Decision):
    """How many namespaces stand how, said when more than ten change at once.

    Those whose verdict changed are said singly as well, the others when they are due to be repeated.
    """

    event_type: ClassVar[str] = "headgate.placement-summary.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "namespaces_by_verdict", "changed_count")

    verdict: PlacementVerdict = Field(description="The worst there is.")
    reason: PlacementReason = Field(description="Of the first of the namespaces that have it.")
    namespaces_by_verdict: dict[str, int] = Field(description="How many namespaces have each verdict.")
    changed_count: int = Field(ge=0, description="How many namespaces changed; 0 when all is only repeated.")
    changed: tuple[str, ...] = Field(description="The first ten of them, by name.")
    writable_count: int = Field(ge=0, description="How many bookies are writable.")
    valid_until: Instant = Field(description="Without a newer one by then, nobody knows what is the case.")


class QuarantineVerdict(ClosedEnum):
    """What is to become of a bookie that joined without rack info."""

    QUARANTINE = "quarantine", "To be put into the quarantine group, if it is still in none."
    WITHHOLD = "withhold", "It should be, and a guard forbids it: for a person to decide."
    LIFT = "lift", "Nothing is to be done about it any more; nobody takes it out of a group."


class QuarantineReason(ClosedEnum):
    """Why."""

    UNASSIGNED = "unassigned", "It has been in no group for `grace`."
    FEWER = "fewer", "The decision was about many bookies; those that are left have decisions of their own."
    MAX_QUARANTINED = "max_quarantined", "As many as `max_quarantined` allows are in quarantine, or on their way there."
    WOULD_BE_INFEASIBLE = "would_be_infeasible", "A namespace could not place its data without it."
    NO_GROUPS = "no_groups", "The cluster has no groups, and the first would constrain every namespace."
    ASSIGNED = "assigned", "Somebody put it into a group."
    GONE = "gone", "It is no longer registered."
    SWITCHED_OFF = "switched_off", "Quarantine was switched off."


class BookieQuarantine(Decision):
    """Whether an actuator is to put a bookie into quarantine."""

    event_type: ClassVar[str] = "headgate.bookie-quarantine.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "session", "czxid")
    is_kept_up: ClassVar[bool] = False

    verdict: QuarantineVerdict
    reason: QuarantineReason
    bookie: str = Field(description="Its id as registered; of many, the first.")
    count: int = Field(default=1, ge=1, description="How many bookies it is about: more than one only to `withhold`.")
    bookies: tuple[str, ...] = Field(default=(), description="The first ten of them, where it is about many.")
    group: str = Field(description="The group to put it into.")
    rack: str = Field(description="The rack to give it.")
    session: str | None = Field(description="Of the registration this is about, where known.")
    czxid: int | None = Field(description="Of the registration this is about, where known.")
    registered_at: Instant = Field(
        description="When it registered, by ZooKeeper's clock where known, else when it was first seen."
    )
    valid_until: Instant = Field(description="An actuator does not begin after this.")
