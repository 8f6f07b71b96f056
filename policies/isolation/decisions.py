"""Decisions of the isolation policy: the bookies that a namespace may use, and the bookies to quarantine."""

from typing import ClassVar

from pydantic import Field

from policies.decisions import Decision
from policies.isolation.settings import RuleSet
from policies.units import ClosedEnum, Instant

QUARANTINE_GROUP = "headgate-quarantine"
QUARANTINE_RACK = f"/{QUARANTINE_GROUP}"


class Tier(ClosedEnum):
    """How far a namespace must reach to find enough bookies."""

    PRIMARY = "primary", "Its primary groups have enough bookies."
    SECONDARY = "secondary", "It needs bookies of its secondary groups, too."
    UNASSIGNED = "unassigned", "It needs bookies without a group."
    NONE = "none", "All bookies it may use are fewer than a ledger needs."


class PlacementVerdict(ClosedEnum):
    """How well a namespace is isolated now."""

    ISOLATED = "isolated", "It uses only its primary groups; without affinity, only bookies without a group."
    SPILLS_TO_SECONDARY = (
        "spills_to_secondary",
        "Its primary groups have too few bookies, so it also uses others that the promise allows.",
    )
    LEAKS = "leaks", "It may use bookies that the promise forbids."
    INFEASIBLE = "infeasible", "It may use fewer bookies than a ledger needs."
    UNCONSTRAINED = "unconstrained", "Brokers exclude no bookie for it."
    ASKED_FOR = (
        "asked_for",
        "It uses only its primary groups now. Its policies ask for `strict`, which no released Pulsar reads.",
    )


class PlacementReason(ClosedEnum):
    """The reason for a placement verdict."""

    PRIMARY_SUFFICES = "primary_suffices", "Its primary groups have enough writable bookies."
    PRIMARY_SHORT = "primary_short", "Its primary groups have too few writable bookies."
    UNASSIGNED_ELIGIBLE = (
        "unassigned_eligible",
        "The cluster's rules let it use bookies without a group, which the promise forbids.",
    )
    TOO_FEW_BOOKIES = "too_few_bookies", "All bookies it may use are fewer than a ledger needs."
    NO_AFFINITY = "no_affinity", "It names no primary group."
    ANY_GROUP = "any_group", "Its primary group is `*`."
    NO_GROUPS = "no_groups", "The cluster has no groups."
    UNGROUPED_ONLY = (
        "ungrouped_only",
        "It has no affinity, and `unaffine` is `ungrouped`: it uses only bookies without a group.",
    )


class Placement(Decision):
    """The bookies a namespace may use now, by the cluster's rules and by the promise."""

    event_type: ClassVar[str] = "headgate.placement.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "candidates", "promised_candidates", "headroom")

    verdict: PlacementVerdict
    reason: PlacementReason
    namespace: str = Field(description="`tenant/namespace`.")
    rules: RuleSet = Field(description="The rules that the cluster's brokers follow.")
    promise: RuleSet = Field(description="The promised rules.")
    ensemble_size: int = Field(description="The bookies a ledger needs.")
    tier: Tier = Field(description="The tier it needs to find enough bookies.")
    feasible: bool = Field(description="Whether the cluster's rules leave it enough bookies.")
    candidates: tuple[str, ...] = Field(
        description="The bookies that the cluster's rules allow now, sorted; at most the first 1,000."
    )
    promised_candidates: tuple[str, ...] = Field(description="The bookies that the promise allows, likewise.")
    promised_feasible: bool = Field(description="Whether the promise leaves it enough bookies.")
    leak: tuple[str, ...] = Field(description="The candidates that the promise forbids, likewise.")
    headroom: int = Field(
        ge=0, description="The losses of bookies until it needs the next tier; 0 if it has too few already."
    )
    candidate_count: int | None = Field(default=None, ge=0, description="The number of candidates.")
    promised_candidate_count: int | None = Field(
        default=None, ge=0, description="The number of bookies that the promise allows."
    )
    leak_count: int | None = Field(default=None, ge=0, description="The number of candidates that the promise forbids.")
    valid_until: Instant | None = Field(
        default=None,
        description="The decision is repeated well before. Without a newer one by then, the placement is unknown.",
    )


class PlacementSummary(Decision):
    """The number of namespaces with each verdict, published when more than ten change at once.

    Namespaces whose verdict changed get a decision each as well; the others when theirs is due to be repeated.
    """

    event_type: ClassVar[str] = "headgate.placement-summary.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "namespaces_by_verdict", "changed_count")

    verdict: PlacementVerdict = Field(description="The worst verdict of any namespace.")
    reason: PlacementReason = Field(description="The reason of the first namespace with that verdict.")
    namespaces_by_verdict: dict[str, int] = Field(description="The number of namespaces with each verdict.")
    changed_count: int = Field(ge=0, description="The number of namespaces that changed; 0 if all are repetitions.")
    changed: tuple[str, ...] = Field(description="The first ten namespaces that changed, by name.")
    writable_count: int = Field(ge=0, description="The number of writable bookies.")
    valid_until: Instant = Field(description="Without a newer summary by then, the placements are unknown.")


class QuarantineVerdict(ClosedEnum):
    """What to do with a bookie that joined without rack info."""

    QUARANTINE = "quarantine", "Put it into the quarantine group, if it is still in no group."
    WITHHOLD = "withhold", "It should be in quarantine, but a guard forbids that: an operator must decide."
    LIFT = "lift", "There is nothing left to do. Headgate never takes a bookie out of a group."


class QuarantineReason(ClosedEnum):
    """The reason for a quarantine verdict."""

    UNASSIGNED = "unassigned", "It has been in no group for `grace`."
    FEWER = "fewer", "The decision covered many bookies; the remaining ones get a decision each."
    MAX_QUARANTINED = "max_quarantined", "`max_quarantined` bookies are in quarantine already, or have an order to be."
    WOULD_BE_INFEASIBLE = "would_be_infeasible", "A namespace could not place its data without it."
    NO_GROUPS = "no_groups", "The cluster has no groups, and the first one would constrain every namespace."
    RACK_ENTRY = "rack_entry", "A group lists its host without the port, so it is probably meant to be in that group."
    ASSIGNED = "assigned", "An operator put it into a group."
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
    bookie: str = Field(description="Its id as registered; the first one if there are many.")
    count: int = Field(
        default=1, ge=1, description="The number of bookies it covers; more than one only to `withhold`."
    )
    bookies: tuple[str, ...] = Field(default=(), description="The first ten bookies, if it covers many.")
    group: str = Field(description="The group to put it into.")
    rack: str = Field(description="The rack to give it.")
    session: str | None = Field(description="The session of the registration it covers, if known.")
    czxid: int | None = Field(description="The transaction of the registration it covers, if known.")
    registered_at: Instant = Field(
        description="When it registered, by ZooKeeper's clock if known, else when a reading first listed it."
    )
    valid_until: Instant = Field(description="No actuator begins to carry it out after this.")

    def wanted(self) -> str | None:
        """Return the group that the bookie should be in."""
        if self.verdict is not QuarantineVerdict.QUARANTINE:
            return None
        return f"bookie {self.bookie} in group {self.group}"
