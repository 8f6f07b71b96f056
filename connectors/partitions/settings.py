"""Settings of how identical processes share their work."""

from pydantic import BaseModel, ConfigDict, Field

from policies.units import PositiveDuration, parse_duration


class PartitionSettings(BaseModel):
    """How processes alike (`collect`, `act`, `decide`, `run`) share what is to be done."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    session_timeout: PositiveDuration = Field(
        default=parse_duration("6s"),
        description="A process that Kafka has not heard of for so long is taken for dead, and another does its work. "
        "Not less than the brokers' `group.min.session.timeout.ms`.",
    )
    instance: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="A name of this process that lasts, such as a pod's of a StatefulSet: one that is started again "
        "within `session_timeout` has the same share, and nobody else was disturbed. Each process needs another one.",
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="Actuators with the same one share the clusters; give another to those that are given other "
        "`clusters`.",
    )
