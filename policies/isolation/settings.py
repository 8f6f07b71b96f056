"""Settings of the isolation policy: ``policies.isolation``, per cluster by name or glob."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from policies.isolation.readings import MAX_ENSEMBLE
from policies.isolation.rules import RuleSet
from policies.settings import PolicySettings
from policies.units import Duration, PositiveDuration, parse_duration


class Unaffine(StrEnum):
    """Where a namespace without affinity places its data."""

    ANY = "any"
    """On every writable bookie: Pulsar's default."""
    UNGROUPED = "ungrouped"
    """On those without a group only: Pulsar's `strictBookieAffinityEnabled`."""


class Quarantine(StrEnum):
    """Whether bookies that joined without rack info are put into a group of their own."""

    OFF = "off"
    ON = "on"


def _on_or_off(value: Any) -> Any:
    """YAML reads a plain `on` or `off` as true or false."""
    return {True: Quarantine.ON, False: Quarantine.OFF}.get(value, value) if isinstance(value, bool) else value


class IsolationSettings(PolicySettings):
    """Which bookies may hold whose data, and what to do about those that nobody assigned."""

    rules: RuleSet = Field(default=RuleSet.CURRENT, description="What the cluster does: the rules its brokers follow.")
    promise: RuleSet = Field(
        default=RuleSet.STRICT,
        description="What was promised to tenants; where `rules` allows more, data leaks.",
    )
    unaffine: Unaffine = Field(
        default=Unaffine.ANY,
        description="Where namespaces without affinity place data: `any` bookie, or, as with Pulsar's "
        "strictBookieAffinityEnabled, `ungrouped` ones only.",
    )
    ensemble_size: int = Field(
        default=2, ge=1, le=MAX_ENSEMBLE, description="Bookies a ledger needs, where a namespace's policies set none."
    )
    grace: Duration = Field(
        default=parse_duration("10s"),
        description="A bookie must be without a group this long before it is named and quarantined; 0s for at once.",
    )
    validity: PositiveDuration = Field(default=parse_duration("5m"), description="How long a reading counts.")
    confirm_after: Duration = Field(
        default=parse_duration("10s"),
        description="A bookie, or all at once, counts as gone when a second reading says so this much later.",
    )
    member_missing_after: Duration = Field(
        default=parse_duration("60s"), description="An assigned bookie must be unregistered this long to be missed."
    )
    quarantine: Annotated[Quarantine, BeforeValidator(_on_or_off)] = Field(
        default=Quarantine.OFF,
        description="`on`: an unassigned bookie is put into the group headgate-quarantine, which no namespace uses.",
    )
    has_actuator: bool | None = Field(
        default=None,
        description="Whether something carries a quarantine out, for the sentence of a decision. Default: whether "
        "the cluster's `bookies` or `pulsar_bookies` are set; true where a consumer of your own does.",
    )
    max_quarantined: int = Field(
        default=3,
        ge=0,
        description="More are named, not quarantined; nor is one without which a namespace could not place its data.",
    )
