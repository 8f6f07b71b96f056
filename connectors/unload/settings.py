"""Settings of the Pulsar actuator: ``clusters.<name>.unload``."""

from pydantic import BaseModel, ConfigDict, Field

from connectors.pulsar.connection import MemberUrl
from policies.units import Duration, PositiveDuration, parse_duration


class UnloadSettings(BaseModel):
    """Decisions about bundles are carried out through the brokers' admin REST; the block's presence switches it on."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    per_broker_interval: PositiveDuration = Field(
        default=parse_duration("10s"),
        description="At most one bundle of a broker is unloaded or looked up in this time; the others wait.",
    )
    grace: Duration = Field(
        default=parse_duration("5s"),
        description="How long after a decision the broker may do by itself what was decided, before it is made to.",
    )
    member_url: MemberUrl = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )
