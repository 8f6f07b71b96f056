"""Settings of the sessions policy: ``policies.sessions``, per cluster by name or glob."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from policies.settings import PolicySettings
from policies.units import ClosedEnum, Duration, PositiveDuration, millis_of, parse_duration

DEFAULT_TIMEOUT_MS = 30_000
"""T of a session whose negotiated timeout is not known: the default of ZooKeeper and Pulsar."""
SHORTEST_DELAY_MS = 5_000
SHORTEST_INTERVAL_MS = 1_000
"""The shortest interval of readings assumed; two readings of one moment do not show how often there is one."""
IN_A_ROW_MS = 120_000
"""Two readings further apart are not in a row, because nobody looked in between, as while Headgate was away."""


class OnSessionLost(StrEnum):
    """What a member does when its session is lost (PIP-57's `zookeeperSessionExpiredPolicy`)."""

    RECONNECT = "reconnect"
    SHUTDOWN = "shutdown"


class OwnershipRules(ClosedEnum):
    """What a member does with a bundle whose node still belongs to its own old session."""

    PIP57 = "pip57", "Wait until ZooKeeper deletes the old node; if it does not, unload."
    CURRENT = "current", "Pulsar from 2.9 on: delete the node with the observed version, and create it again."


class RecoveryStep(ClosedEnum):
    """One step of a recovery after a session is re-established."""

    RE_OWN = "re-own", "Own the bundles again."
    REPUBLISH_LOAD_DATA = "republish-load-data", "Publish load data and registration."
    INVALIDATE_CACHES = "invalidate-caches", "Drop caches that were filled before the loss."


class SessionsSettings(PolicySettings):
    """What a member does when its ZooKeeper session is lost, and what becomes of its bundles."""

    on_session_lost: OnSessionLost = Field(
        default=OnSessionLost.RECONNECT, description="What a member does when its session is lost."
    )
    fleet_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.3,
        description="While this share of the members of a role, and at least 2, are without a session or cut off, "
        "the fault is ZooKeeper's, and none of them is shut down.",
    )
    fleet_window: PositiveDuration = Field(
        default=parse_duration("30s"),
        description="How long after a fleet-wide loss none of its members is judged a zombie, and how long each has at "
        "least to reconnect once ZooKeeper can be read and others are back.",
    )
    shutdown_delay: Duration | None = Field(
        default=None,
        description="How long after the loss a shutdown is decided, so that the losses of other members show first; "
        "null: one interval of the readings, plus the time in which sessions cut off together expire (T/3; with "
        "several T, the largest less 2/3 of the member's), at least 5s. Then the others must have been read again.",
    )
    shutdown_budget: int = Field(
        default=1,
        ge=0,
        le=10_000,
        description="How many members may be down by decisions at any time, until each is back or gone for good; "
        "also how many shutdowns and restarts may be decided per `shutdown_window`.",
    )
    shutdown_window: PositiveDuration = Field(
        default=parse_duration("10m"),
        description="How long a decided shutdown or restart counts, even if the member is back earlier.",
    )
    reconnect_limit: int = Field(
        default=10, ge=1, le=1_000_000, description="The failed attempts to reconnect after which a member is given up."
    )
    reconnect_deadline: PositiveDuration = Field(
        default=parse_duration("5m"), description="A member that has not reconnected by then is given up."
    )
    settle: Duration = Field(
        default=parse_duration("180s"),
        description="More than 3 losses within this time are flapping. Nothing of a flapping member is cleaned up "
        "until it has been stable for as long. Pulsar calls this the jittery period.",
    )
    recovery_order: tuple[RecoveryStep, ...] = Field(
        default=(RecoveryStep.RE_OWN, RecoveryStep.REPUBLISH_LOAD_DATA, RecoveryStep.INVALIDATE_CACHES),
        description="The steps of a recovery after a session is re-established, in order.",
    )
    wait_for_deletion: PositiveDuration | None = Field(
        default=None,
        description="How long a bundle waits for ZooKeeper to delete the node of its old session; null: T.",
    )
    ownership_rules: OwnershipRules = Field(
        default=OwnershipRules.CURRENT,
        description="`current` (Pulsar from 2.9 on): replace the node of the old session; `pip57`: wait for it to go.",
    )
    orphan_after: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="A bundle without an owner for longer than this is an orphan, once its last owner is settled.",
    )
    load_data_after: PositiveDuration = Field(
        default=parse_duration("30s"),
        description="How long after its recovery a member may take to publish its load data.",
    )
    zombie_after: PositiveDuration = Field(
        default=parse_duration("5m"),
        description="How long a healthy process may be unregistered, or missing from the cluster's list, before it is "
        "judged a zombie. The default is more than twice as long as any broker of Pulsar 4.2.4 took to come back.",
    )
    validity: PositiveDuration = Field(default=parse_duration("5m"), description="How long a reading counts.")

    @field_validator("recovery_order")
    @classmethod
    def _each_step_once(cls, order: tuple[RecoveryStep, ...]) -> tuple[RecoveryStep, ...]:
        if not order or len(set(order)) != len(order):
            raise ValueError(f"must name steps of {', '.join(RecoveryStep)}, none twice and at least one")
        return order

    def wait_for_deletion_ms(self, timeout_ms: int) -> int:
        """How long a bundle waits for the deletion of its old node, if the member's T is `timeout_ms`."""
        return timeout_ms if self.wait_for_deletion is None else millis_of(self.wait_for_deletion)

    @property
    def validity_ms(self) -> int:
        """How long a reading counts."""
        return millis_of(self.validity)

    @property
    def settle_ms(self) -> int:
        """How long a flapping member must be stable, and a doubt lasts."""
        return millis_of(self.settle)


def expiry_spread_ms(timeout_ms: int, other_ms: int) -> int:
    """The longest time from the expiry of one session to that of another, with T of each, if both were cut off at once.

    A client sends a heartbeat every T/3. So a session expires at the earliest 2T/3, at the latest T after the cut.
    """
    return max(0, other_ms - timeout_ms + timeout_ms // 3)


def monitor_ms(timeout_ms: int) -> int:
    """The time (milliseconds) after which a disconnected session counts as lost: 5T/6, as in Pulsar's watcher."""
    return timeout_ms * 5 // 6
