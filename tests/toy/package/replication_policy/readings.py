"""What the replication policy observes: topic ``observed.replication``, keyed by cluster."""

from typing import ClassVar

from pydantic import Field

from policies.observations import Reading


class UnderReplicated(Reading):
    """How many partitions of a cluster have fewer in-sync replicas than replicas."""

    event_type: ClassVar[str] = "headgate.under-replicated.v1"

    under_replicated: int = Field(default=0, ge=0, description="0 unless the outcome is `ok`.")
    partitions: int = Field(default=0, ge=0, description="Of how many; 0 unless the outcome is `ok`.")
