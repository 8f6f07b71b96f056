"""Settings of the block ``shares``: how identical processes divide their work."""

from pydantic import BaseModel, ConfigDict, Field

from policies.units import PositiveDuration, parse_duration


class PartitionSettings(BaseModel):
    """How identical processes (`collect`, `act`, `decide`, `run`) divide their work."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    session_timeout: PositiveDuration = Field(
        default=parse_duration("6s"),
        description="When Kafka has not heard from a process for this time, another process takes over its work. "
        "Not less than the brokers' `group.min.session.timeout.ms`.",
    )
    instance: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="A lasting name of this process, such as its pod's in a StatefulSet. A process that restarts "
        "within `session_timeout` keeps its work, and no other process is disturbed. Each process needs its own name.",
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Actuators with the same name divide the clusters among them; actuators with other `clusters` "
        "in their settings need another name.",
    )
