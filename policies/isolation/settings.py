"""Settings of the isolation policy: ``policies.isolation``, per cluster by name or glob."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from policies.bookie_readings import MAX_ENSEMBLE, BrokerGroups
from policies.settings import PolicySettings
from policies.units import ClosedEnum, Duration, PositiveDuration, parse_duration


class RuleSet(ClosedEnum):
    """The rules by which brokers choose the bookies of a namespace."""

    LEGACY = "legacy", "Pulsar up to 2.10: bookies without a group are always eligible."
    CURRENT = "current", "Pulsar from 2.11 on: bookies without a group when the namespace's groups do not suffice."
    STRICT = "strict", "The proposal: never bookies without a group."


class Unaffine(StrEnum):
    """Where a namespace without affinity places its data."""

    ANY = "any"
    """On every writable bookie, which is Pulsar's default."""
    UNGROUPED = "ungrouped"
    """Only on bookies without a group, which is Pulsar's `strictBookieAffinityEnabled`."""


class Quarantine(StrEnum):
    """Whether bookies that joined without rack info are put into a group of their own."""

    OFF = "off"
    ON = "on"


def _parse_switch(value: Any) -> Any:
    """YAML reads a plain `on` or `off` as true or false."""
    return {True: Quarantine.ON, False: Quarantine.OFF}.get(value, value) if isinstance(value, bool) else value


class OwnBrokerGroups(BrokerGroups):
    """The same groups as a setting, in which a mistyped name is an error."""

    model_config = ConfigDict(extra="forbid")


class IsolationSettings(PolicySettings):
    """Which bookies may hold whose data, and what to do about bookies that nobody assigned."""

    rules: RuleSet = Field(default=RuleSet.CURRENT, description="The rules that the cluster's brokers follow.")
    promise: RuleSet = Field(
        default=RuleSet.STRICT,
        description="The rules promised to tenants. Where `rules` allows more bookies, data leaks.",
    )
    unaffine: Unaffine = Field(
        default=Unaffine.ANY,
        description="Where namespaces without affinity place data: on `any` bookie, or on `ungrouped` ones only, as "
        "with Pulsar's strictBookieAffinityEnabled.",
    )
    broker_groups: OwnBrokerGroups = Field(
        default=OwnBrokerGroups(),
        description="The groups that brokers use for namespaces without affinity: their bookkeeperClientIsolationGroups"
        " and bookkeeperClientSecondaryIsolationGroups. Default: as read from a broker, if `pulsar` is set.",
    )
    ensemble_size: int = Field(
        default=2, ge=1, le=MAX_ENSEMBLE, description="Bookies a ledger needs, where a namespace's policies set none."
    )
    grace: Duration = Field(
        default=parse_duration("10s"),
        description="How long a bookie must be without a group before an alert names it and it is quarantined; 0s for "
        "at once.",
    )
    validity: PositiveDuration = Field(default=parse_duration("5m"), description="How long a reading counts.")
    confirm_after: Duration = Field(
        default=parse_duration("10s"),
        description="A bookie counts as gone when it is missing from a second reading, this long after the first. The "
        "same holds when most bookies are missing at once.",
    )
    member_missing_after: Duration = Field(
        default=parse_duration("60s"),
        description="How long an assigned bookie must be unregistered before an alert reports it.",
    )
    quarantine: Annotated[Quarantine, BeforeValidator(_parse_switch)] = Field(
        default=Quarantine.OFF,
        description="`on`: an unassigned bookie is put into the group headgate-quarantine, which no namespace uses.",
    )
    settle: Duration = Field(
        default=parse_duration("2m"),
        description="How long the facts behind a quarantine must have held without a gap: no namespace needs the "
        "bookie, and no member of a group has just left or come back.",
    )
    max_quarantined: int = Field(
        default=3,
        ge=0,
        description="How many bookies may be in quarantine. Further ones are reported only, and so is a bookie without "
        "which a namespace could not place its data.",
    )

    @property
    def acts(self) -> bool:
        """Whether bookies are quarantined."""
        return self.quarantine is Quarantine.ON
