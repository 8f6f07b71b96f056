"""What the isolation policy decides: where a namespace's data may lie, and which bookies go into quarantine."""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from policies.decisions import Decision
from policies.isolation.settings import Rules
from policies.units import Instant

QUARANTINE_GROUP = "headgate-quarantine"
QUARANTINE_RACK = f"/{QUARANTINE_GROUP}"


class Tier(StrEnum):
    """How far a namespace must reach to find enough bookies."""

    PRIMARY = "primary"
    SECONDARY = "secondary"
    UNASSIGNED = "unassigned"
    NONE = "none"
    """Not even all it may use suffice."""


class PlacementVerdict(StrEnum):
    """How well a namespace is isolated now."""

    ISOLATED = "isolated"
    SPILLS_TO_SECONDARY = "spills_to_secondary"
    LEAKS = "leaks"
    INFEASIBLE = "infeasible"
    UNCONSTRAINED = "unconstrained"


class PlacementReason(StrEnum):
    """Why a namespace's verdict is what it is."""

    PRIMARY_SUFFICES = "primary_suffices"
    PRIMARY_SHORT = "primary_short"
    """Too few writable bookies in its primary groups: its secondary ones serve."""
    UNASSIGNED_ELIGIBLE = "unassigned_eligible"
    """The cluster's rules let it use bookies without a group, which the promise forbids."""
    TOO_FEW_BOOKIES = "too_few_bookies"
    NO_AFFINITY = "no_affinity"
    ANY_GROUP = "any_group"
    """Its primary group is `*`."""
    NO_GROUPS = "no_groups"
    """The cluster has no groups, so its brokers exclude nothing."""
    UNGROUPED_ONLY = "ungrouped_only"
    """Without affinity, and `unaffine` is `ungrouped`: bookies without a group, and no others."""


class Placement(Decision):
    """Which bookies a namespace may use now, by the cluster's rules and by the promise."""

    event_type: ClassVar[str] = "headgate.placement.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "candidates", "promised_candidates", "headroom")

    verdict: PlacementVerdict
    reason: PlacementReason
    namespace: str = Field(description="`tenant/namespace`.")
    rules: Rules = Field(description="What the cluster does.")
    promise: Rules = Field(description="What was promised.")
    ensemble_size: int = Field(description="How many bookies a ledger needs.")
    tier: Tier = Field(description="How far it must reach to find enough.")
    feasible: bool = Field(description="Whether the cluster's rules leave it enough bookies.")
    candidates: tuple[str, ...] = Field(description="All bookies the cluster's rules allow now, sorted.")
    promised_candidates: tuple[str, ...] = Field(description="Those that the promise allows, sorted.")
    promised_feasible: bool = Field(description="Whether the promise leaves it enough bookies.")
    leak: tuple[str, ...] = Field(description="Candidates that the promise forbids, sorted.")
    headroom: int = Field(ge=0, description="How many more losses until the next tier; 0 when there is none left.")


class QuarantineVerdict(StrEnum):
    """What is to become of a bookie that joined without rack info."""

    QUARANTINE = "quarantine"
    """Put it into the quarantine group, if it is still in none."""
    WITHHOLD = "withhold"
    """It should be, and a guard forbids it: for a person to decide."""
    LIFT = "lift"
    """Nothing is to be done about it any more. Nobody takes it out of a group."""


class QuarantineReason(StrEnum):
    """Why."""

    UNASSIGNED = "unassigned"
    MAX_QUARANTINED = "max_quarantined"
    WOULD_BE_INFEASIBLE = "would_be_infeasible"
    """A namespace could not place its data without this bookie."""
    NO_GROUPS = "no_groups"
    """The cluster has no groups, so its brokers exclude nothing; the first group would change that for all."""
    ASSIGNED = "assigned"
    """It is in a group, by whoever's hand."""
    GONE = "gone"
    SWITCHED_OFF = "switched_off"


class BookieQuarantine(Decision):
    """Whether an actuator is to put a bookie into quarantine."""

    event_type: ClassVar[str] = "headgate.bookie-quarantine.v1"
    topic: ClassVar[str] = "decided.isolation"
    in_force: ClassVar[tuple[str, ...]] = ("verdict", "reason", "session", "czxid")

    verdict: QuarantineVerdict
    reason: QuarantineReason
    bookie: str = Field(description="Its id as registered.")
    group: str = Field(description="The group to put it into.")
    rack: str = Field(description="The rack to give it.")
    session: str | None = Field(description="Of the registration this is about, where known.")
    czxid: int | None = Field(description="Of the registration this is about, where known.")
    registered_at: Instant = Field(
        description="When it registered, by ZooKeeper's clock where known, else when it was first seen."
    )
    valid_until: Instant = Field(description="An actuator does not begin after this.")
