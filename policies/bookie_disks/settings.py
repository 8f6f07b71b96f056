"""Settings of the bookie-disks policy: ``policies.bookie_disks``, per cluster by name or glob."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import BaseModel, ByteSize, ConfigDict, Field

from policies.bookie_readings import MAX_ENSEMBLE
from policies.free_space.limits import FreeSpaceSettings, Limit
from policies.units import PositiveDuration, Size, parse_duration


class BookieDisksSettings(FreeSpaceSettings):
    """One factor for each placement group of bookies whose disks fill up.

    A bookie stops major compaction when 90 % of a disk are used, by default. After that it cannot free the space of
    deleted ledgers, so both limits lie below.
    """

    ranks_by_share: ClassVar[bool] = True

    soft: Limit | None = Field(
        default=Limit(available_ratio_below=0.20),
        description="From this limit on publishing should slow down; above `hard`.",
    )
    hard: Limit | None = Field(
        default=Limit(available_ratio_below=0.12),
        description="At this limit publishing should stop (factor 0.0). Keep it above the bookies' thresholds for "
        "compaction: beyond them a bookie may free no space.",
    )
    ensemble: int = Field(
        default=2,
        ge=1,
        le=MAX_ENSEMBLE,
        description="The bookies of a ledger, where no namespace's persistence policy names more. Set it to the "
        "brokers' managedLedgerDefaultEnsembleSize.",
    )


# How the factor of a placement group is carried out: ``clusters.<name>.publish``. Off unless set.


class PublishBy(StrEnum):
    """The limit of Pulsar by which publishing is slowed down."""

    BROKER = "broker"
    """One dynamic setting of all brokers, by the least factor of all groups."""
    NAMESPACE = "namespace"
    """The publish rate of the namespaces of a group, for each of their topics."""


class PublishSettings(BaseModel):
    """Decisions are carried out by Pulsar's own publish limits, without a plugin in the brokers."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    by: PublishBy = Field(
        description="`broker`: the dynamic setting brokerPublisherThrottlingMaxByteRate, for all topics of a broker "
        "together. `namespace`: the publish rate of each topic of a group's namespaces."
    )
    base: Annotated[Size, Field(gt=0, le=2**53)] | None = Field(
        default=None,
        description="Bytes per second at factor 1.0: of a broker or of a topic, by `by`. Without it, an "
        "existing limit is the base; where there is none, nothing is slowed down.",
    )
    floor_bytes_per_second: Annotated[Size, Field(gt=0)] = Field(
        default=ByteSize(64 * 1024), description="The lowest limit. For Pulsar, a limit of 0 is none."
    )
    verify_interval: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="How often the limits are read and compared with what they should be.",
    )
