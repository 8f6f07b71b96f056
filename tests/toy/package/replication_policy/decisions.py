"""The verdict on a cluster's replication: topic ``decided.replication``, keyed by cluster."""

from typing import ClassVar

from pydantic import Field

from policies.decisions import Decision
from policies.units import ClosedEnum, Instant


class ReplicationVerdict(ClosedEnum):
    """How the cluster is replicated."""

    OK = "ok", "As it should be."
    DEGRADED = "degraded", "Not as it should be, or not known to be."


class ReplicationReason(ClosedEnum):
    """Why."""

    REPLICATED = "replicated", "At most `degraded_above` partitions are under-replicated."
    UNDER_REPLICATED = "under_replicated", "More partitions are under-replicated than `degraded_above`."
    HOLD = "hold", "It is well again, but not for `hold` yet."
    UNREAD = "unread", "There is no reading younger than `validity`."


class ReplicationDecision(Decision):
    """Whether the partitions of a cluster are replicated."""

    event_type: ClassVar[str] = "headgate.replication.v1"
    topic: ClassVar[str] = "decided.replication"

    verdict: ReplicationVerdict
    reason: ReplicationReason
    under_replicated: int | None = Field(description="By the last good reading; null when there was none.")
    valid_until: Instant = Field(description="Without a newer decision by then, nothing is known.")
