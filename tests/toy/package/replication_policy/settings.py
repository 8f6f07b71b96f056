"""Settings of the replication policy: ``policies.replication``."""

from pydantic import Field

from policies.settings import PolicySettings
from policies.units import Duration, PositiveDuration, parse_duration


class ReplicationSettings(PolicySettings):
    """When a cluster counts as degraded."""

    degraded_above: int = Field(default=0, ge=0, description="More under-replicated partitions are too many.")
    hold: Duration = Field(
        default=parse_duration("2m"), description="How long all must be well until it is `ok` again."
    )
    validity: PositiveDuration = Field(default=parse_duration("5m"), description="How long a reading counts.")
    heartbeat: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="The decision is repeated this often; it is valid three times as long.",
    )
