"""The reading of the quota actuator: the quotas that it has set, the clients that escape them, and its rivals."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from policies.observations import Detail, Reading
from policies.units import MAX_INT64

MOST_NAMED = 20
"""A reading names at most this many entities of each kind, and counts the others."""

_LONGEST_TEXT = 1000


def _cut(text: Any) -> Any:
    return text[:_LONGEST_TEXT] if isinstance(text, str) else text


EntityText = Annotated[str, Field(max_length=_LONGEST_TEXT), BeforeValidator(_cut)]


class NamedQuota(BaseModel):
    """One quota on the watched cluster."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    entity: EntityText = Field(description="Such as `user=alice,client-id=<default>`.")
    bytes_per_second: int | None = Field(
        default=None, ge=0, le=MAX_INT64, description="Its `producer_byte_rate`; null: it has none."
    )
    period_seconds: float | None = Field(
        default=None, ge=0.0, description="The time between two times at which somebody else put it back."
    )


class QuotaState(Reading):
    """The quotas of one cluster as the actuator found them, published when that changes and at least each minute."""

    event_type: ClassVar[str] = "headgate.quota-state.v1"

    factor: float | None = Field(
        default=None, ge=0.0, le=1.0, description="The factor that is carried out; null: none is."
    )
    set_count: int = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Entities that are slowed down: by a quota of Headgate's, or by a tighter one of their own.",
    )
    is_settled: bool = Field(
        default=False, description="Every broker that answers shows all of them, and none goes down in steps."
    )
    brokers: int = Field(default=0, ge=0, le=MAX_INT64, description="Brokers in service.")
    let_through_bytes_per_second: int = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="All quotas of Headgate's together, times the brokers: what one client of each entity may write.",
    )
    window_seconds: float = Field(default=11.0, gt=0.0, description="The longest window of a broker's quotas.")
    escaping: tuple[NamedQuota, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Quotas that decide for clients in place of an entity."
    )
    escaping_count: int = Field(default=0, ge=0, le=MAX_INT64, description="All of them.")
    clients_without_id_escape: bool = Field(
        default=False, description="Clients without a client id are not slowed down: no quota of a client id is theirs."
    )
    not_set: Detail | None = Field(
        default=None, description="Why nobody is slowed down although `factor` is below 1.0; null: somebody is."
    )
    contested: tuple[NamedQuota, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Quotas that somebody else puts back, each to this value."
    )
    unknown: tuple[NamedQuota, ...] = Field(
        default=(),
        max_length=MOST_NAMED,
        description="Quotas that Headgate may have set, of which no record tells the original.",
    )
    callback_brokers: tuple[int, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Brokers that ignore quotas, because they have a callback."
    )
    excluded_users: tuple[EntityText, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Users whose quotas are never changed."
    )
