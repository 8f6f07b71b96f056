"""The reading of the publish actuator: what its limits let through."""

from typing import ClassVar

from pydantic import Field

from policies.observations import Reading
from policies.units import MAX_INT64


class PublishState(Reading):
    """The publish limits of one cluster as the actuator found them, published when that changes and each minute."""

    event_type: ClassVar[str] = "headgate.publish-state.v1"

    let_through_bytes_per_second: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INT64,
        description="What producers may publish to the whole cluster: the limits of a broker together, times the "
        "brokers. Null: something is not limited, or limits are those of topics, whose number is not known.",
    )
