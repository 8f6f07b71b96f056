"""Settings of the bookie-disks policy: ``policies.bookie_disks``, per cluster by name or glob."""

from pydantic import Field

from policies.bookie_readings import MAX_ENSEMBLE
from policies.free_space.limits import Limit
from policies.free_space.settings import FreeSpaceSettings
from policies.units import Duration, parse_duration


class BookieDisksSettings(FreeSpaceSettings):
    """One factor for each placement group of bookies whose disks fill up.

    A bookie stops major compaction when 90 % of a disk are used, by default. After that it cannot free the space of
    deleted ledgers, so both limits lie below.
    """

    soft: Limit | None = Field(
        default=Limit(available_ratio_below=0.20),
        description="From this limit on publishing should slow down; above `hard`.",
    )
    hard: Limit | None = Field(
        default=Limit(available_ratio_below=0.12),
        description="At this limit publishing should stop (factor 0.0). Keep it above the bookies' thresholds for "
        "compaction: beyond them a bookie may free no space.",
    )
    departed_hold: Duration = Field(
        default=parse_duration("1h"),
        description="A dir that its bookie no longer reports counts this much longer, if it limited the bookie.",
    )
    ensemble: int = Field(
        default=2,
        ge=1,
        le=MAX_ENSEMBLE,
        description="The bookies of a ledger, where no namespace's persistence policy names more. Set it to the "
        "brokers' managedLedgerDefaultEnsembleSize.",
    )
    has_actuator: bool | None = Field(
        default=None,
        description="Whether an actuator carries the factor out, for the sentence of a decision. Default: whether "
        "`clusters.<name>.publish` is set. Set it to true if a consumer of your own does.",
    )
