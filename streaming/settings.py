"""Settings of the query."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from policies.units import Duration, PositiveDuration, parse_duration


class StreamSettings(BaseModel):
    """How the query runs. What is marked so can't be changed for a checkpoint that exists."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    master: str = Field(default="local[2]", description="The Spark master; the query needs no more than two cores.")
    checkpoint_dir: Path | None = Field(
        default=None,
        description="Where the query keeps its state and position: a local or shared file system, not an object "
        "store. Default: `checkpoint` in `data_dir`.",
    )
    trigger_interval: Duration = Field(
        default=parse_duration("100ms"),
        description="How often the query looks for new records, and starts a micro-batch when there are some.",
    )
    shuffle_partitions: int = Field(
        default=1, ge=1, le=16, description="State partitions; fixed for the life of a checkpoint."
    )
    max_records_per_batch: int = Field(
        default=20_000, ge=1, description="A backlog is worked off in batches of at most so many records."
    )
    driver_memory: str = Field(
        default="1g", pattern=r"^\d+[mg]$", description="Heap of the JVM that runs the query: `768m`, `1g`."
    )
    stall_timeout: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="Without a finished micro-batch for so long the query counts as stalled and is started again.",
    )
    restart_limit: int = Field(
        default=5, ge=0, description="The process ends with an error after so many restarts in a row."
    )
