"""Settings of the Pulsar actuator: ``clusters.<name>.unload``."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from policies.units import Duration, PositiveDuration, parse_duration

_URL = re.compile(r"https?://(?:\{member\}|\{host\}:[0-9]{1,5})")


def _member_url(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ValueError("is neither http(s)://{member} nor http(s)://{host}:port, such as https://{host}:8443")
    return url


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
    member_url: Annotated[str, AfterValidator(_member_url)] = Field(
        default="http://{member}",
        description="A broker's own address; `{member}` is `host:port` as it registers itself, `{host}` the host.",
    )

    def url_of(self, member: str) -> str:
        """Where a broker itself is asked."""
        return self.member_url.replace("{member}", member).replace("{host}", member.rpartition(":")[0])
