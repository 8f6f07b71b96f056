"""Settings of the query: the block ``stream``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from policies.units import Duration, PositiveDuration, parse_duration
from streaming.checkpoint_place import CheckpointPlace
from streaming.conf import NAMED_ELSEWHERE, RESTS_ON
from streaming.master import checked_master, is_local, is_loopback, is_on_this_machine

_SECRET = re.compile(r"(?i)(secret|password|token|secret\.key)$")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_DRIVER_HOST = "spark.driver.host"


class StreamSettings(BaseModel):
    """How the query runs. What is marked so can't be changed for a checkpoint that exists."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    master: str = Field(
        default="local[2]",
        description="The Spark master: `local[2]`, `spark://host:7077`, `yarn` or `k8s://https://host:6443` "
        "(docs/spark-cluster.md). In one process the query needs no more than two cores.",
    )
    spark: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark properties, by name: where executors find Python, how many there are.",
    )
    checkpoint_is_shared: bool = Field(
        default=False,
        description="With a master elsewhere: `checkpoint_dir` is one folder, at the same path, on every machine.",
    )
    checkpoint_dir: str | None = Field(
        default=None,
        min_length=1,
        description="Where the query keeps its state and position: a local or shared file system, HDFS "
        "(`hdfs://host:8020/path`) or an object store (`s3a://bucket/path`). Default: `checkpoint` in `data_dir`.",
    )
    trigger_interval: Duration = Field(
        default=parse_duration("20ms"),
        description="How often the query looks for new records, and starts a micro-batch when there are some; below "
        "60 ms a batch follows another at once.",
    )
    shuffle_partitions: int = Field(
        default=1, ge=1, le=1000, description="State partitions; fixed for the life of a checkpoint."
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

    @field_validator("master")
    @classmethod
    def _is_a_master(cls, master: str) -> str:
        return checked_master(master)

    @field_validator("spark", mode="before")
    @classmethod
    def _as_text(cls, properties: Any) -> Any:
        if not isinstance(properties, Mapping):
            return properties
        return {name: _text(value) for name, value in properties.items()}

    @field_validator("spark")
    @classmethod
    def _may_be_set(cls, properties: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, value in properties.items():
            if (mistake := _mistake(name, value, info.data.get("master", "local"))) is not None:
                # `password:secret`, without the space, is a name, too.
                raise ValueError(f"{name}: {mistake}" if _NAME.fullmatch(name) else mistake)
        return properties

    @field_validator("checkpoint_dir", mode="before")
    @classmethod
    def _as_path(cls, given: Any) -> Any:
        return str(given) if isinstance(given, Path) else given

    @field_validator("checkpoint_dir")
    @classmethod
    def _executors_reach_it(cls, given: str | None, info: ValidationInfo) -> str | None:
        place = None if given is None else CheckpointPlace.of(given)
        folder = place.folder if place is not None else None
        master = info.data.get("master", "local")
        if (place is None or folder is not None) and not is_on_this_machine(master):
            if not info.data.get("checkpoint_is_shared"):
                raise ValueError(
                    f"executors of {master} have no folder of this machine: name one on HDFS (hdfs://…) or an object "
                    "store (s3a://…), or say checkpoint_is_shared: true where the same folder is mounted on all"
                )
            if place is None:
                raise ValueError(f"is needed with {master}: the folder that all machines share")
        if place is None:
            return None
        return place.uri if folder is None else str(folder)

    @property
    def checkpoint(self) -> CheckpointPlace | None:
        """Where the checkpoint is to be; None: wherever our own data is."""
        return None if self.checkpoint_dir is None else CheckpointPlace.of(self.checkpoint_dir)


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _mistake(name: str, value: str, master: str) -> str | None:
    if not name.startswith("spark."):
        return "is no Spark property: their names begin with `spark.`"
    if name in NAMED_ELSEWHERE:
        return f"is set by {NAMED_ELSEWHERE[name]}"
    if name in RESTS_ON:
        return "is not to be set: what is decided, and when, rests on it"
    if _SECRET.search(name):
        return "is a secret: put it into spark-defaults.conf in SPARK_CONF_DIR, readable by this user alone"
    if name == _DRIVER_HOST and is_loopback(value) and not is_local(master) and not is_on_this_machine(master):
        return f"executors of {master} cannot reach this machine by {value}: name an address that they can"
    return None
