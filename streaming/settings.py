"""Settings of the query: the block ``stream``."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from policies.units import AS_TEXT, ClosedEnum, Duration, PositiveDuration, parse_duration

# A checkpoint's folder, on this machine or on a Hadoop file system, and the last plan of a remote one.

_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
_RENAMED_ONCE = f"{_MANAGERS}.FileContextBasedCheckpointFileManager"
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):/")

FILE_MANAGERS = MappingProxyType(
    {
        # Rename instead of create-with-checks: saves a directory listing and a checksum file per commit.
        "file": f"{_MANAGERS}.FileSystemBasedCheckpointFileManager",
        # Their rename is atomic and refuses an existing file: a second query on the same folder ends.
        **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss"), _RENAMED_ONCE),
        # Their rename is a copy that appears when it is complete; a second writer is not always refused. Spark's
        # manager that avoids the copy is in an artifact of its own, which does not exist for every version.
        **dict.fromkeys(("s3a", "s3"), _RENAMED_ONCE),
    }
)
"""By scheme, the class that makes a commit's file appear as a whole or not at all; Spark chooses for other schemes."""


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint's folder. Its URI has a scheme: without one Spark would use the cluster's own file system."""

    uri: str

    @classmethod
    def parse(cls, text: str | Path) -> "CheckpointPlace":
        """Read a path or a URI; raises ValueError if the text has a scheme, but is no URI of a folder."""
        match = _SCHEME.match(str(text))
        if match is None:
            return cls(Path(text).absolute().as_uri())
        if match["scheme"] == "file":
            parts = urlsplit(str(text))
            if parts.netloc not in ("", "localhost"):
                raise ValueError("a file:// URI names no host: write file:///path")
            return cls(Path(unquote(parts.path)).as_uri())
        if not str(text).startswith(f"{match['scheme']}://") or not urlsplit(str(text)).path.strip("/"):
            raise ValueError("is no URI of a folder: write hdfs://host:8020/path or s3a://bucket/path")
        return cls(str(text).rstrip("/"))

    @property
    def scheme(self) -> str:
        """`file`, `hdfs`, `s3a`, ..."""
        return self.uri.partition(":")[0]

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for a remote one."""
        return Path(unquote(urlsplit(self.uri).path)) if self.scheme == "file" else None

    @property
    def location(self) -> str:
        """The location for Hadoop, which decodes no percent signs: a path is written with its blanks and letters."""
        return self.uri if self.folder is None else f"file://{self.folder}"


_STATE_STORE = "spark.sql.streaming.stateStore"

FIXED_PROPERTIES = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        # State in RocksDB; a commit writes only the changes, not a snapshot.
        f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        # Fixed for the life of a checkpoint: Avro lets the state's schema evolve.
        f"{_STATE_STORE}.encodingFormat": "avro",
        # Batches without records would run at each trigger to fire timers, which takes a whole core while nothing
        # happens. Instead a tick makes a batch when a timer is due (`policies/policy.py`).
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
)
"""Spark properties that users cannot set, because checkpoints and decisions depend on them."""

PROPERTIES_WITH_SETTING = MappingProxyType(
    {
        "spark.master": "stream.master",
        "spark.driver.memory": "stream.driver_memory",
        "spark.sql.shuffle.partitions": "stream.shuffle_partitions",
        "spark.submit.deployMode": "how Headgate is started: as a process, or by spark-submit",
    }
)
"""Spark properties that have a setting of their own."""

FIXED_KAFKA_PROPERTIES = frozenset(
    """
    bootstrap.servers group.id auto.offset.reset enable.auto.commit isolation.level interceptor.classes acks
    fetch.max.wait.ms key.deserializer value.deserializer key.serializer value.serializer enable.idempotence
    transactional.id max.request.size
    """.split()  # noqa: SIM905 - fewer lines
)
"""Properties of the query's Kafka client that users cannot set: the query or Spark's connector sets them."""


def _require_passable(name: str) -> str:
    if name in FIXED_KAFKA_PROPERTIES:
        raise ValueError("is set by the query, whose decisions rest on it: leave it out")
    return name


_JavaProperty = Annotated[str, AfterValidator(_require_passable)]

_SECRET = re.compile(r"(?i)(secret|password|token|secret\.key)$")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SERVER = r"(?:\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
_MASTERS = (
    re.compile(r"local(?:\[(?:\*|[1-9][0-9]*)(?:,[1-9][0-9]*)?\])?"),
    re.compile(rf"spark://{_SERVER}(?:,{_SERVER})*"),
    re.compile(r"yarn"),
    re.compile(rf"k8s://(?:https?://)?(?:{_SERVER}|[A-Za-z0-9._-]+)(?:/\S*)?"),
)
_EACH_SERVER = re.compile(r"(?:^|,)\s*(?:[a-z]+://)*(\[[0-9A-Fa-f:]+\]|[^:,/\s]+)")
_DRIVER_HOST = "spark.driver.host"


class SparkInternals(ClosedEnum):
    """Whether the query may replace private methods of PySpark (`streaming/spark_internals`)."""

    AUTO = "auto", "With the PySpark versions with which it was tested."
    OFF = "off", "Never: the query uses Spark's public API only."


class StreamSettings(BaseModel):
    """How the query runs. Settings that are marked so are fixed for the life of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    master: str = Field(
        default="local[2]",
        description="The Spark master: `local[2]`, `spark://host:7077`, `yarn` or `k8s://https://host:6443` "
        "(docs/spark-cluster.md). In one process the query needs no more than two cores.",
    )
    spark: dict[str, Annotated[str, AS_TEXT]] = Field(
        default_factory=dict,
        description="Further Spark properties by name, such as the executors' Python and their number.",
    )
    kafka: dict[_JavaProperty, Annotated[SecretStr, AS_TEXT]] = Field(
        default_factory=dict,
        description="Further properties of the query's Kafka client, by the Java client's names; they override what "
        "`kafka` gives it (docs/managed-kafka.md).",
    )
    checkpoint_is_shared: bool = Field(
        default=False,
        description="With a master on other machines: `checkpoint_dir` is one folder, mounted at the same path on all.",
    )
    checkpoint_dir: str | None = Field(
        default=None,
        min_length=1,
        description="Where the query keeps its state and position: a local or shared file system, HDFS "
        "(`hdfs://host:8020/path`) or an object store (`s3a://bucket/path`). Default: `checkpoint` in `data_dir`.",
    )
    trigger_interval: Duration = Field(
        default=parse_duration("100ms"),
        description="How often the query looks for new records and starts a micro-batch if there are any. Below 150 ms "
        "the next batch follows at once.",
    )
    shuffle_partitions: int = Field(
        default=1, ge=1, le=1000, description="State partitions; fixed for the life of a checkpoint."
    )
    max_records_per_batch: int = Field(
        default=20_000, ge=1, description="The most records of one batch; a backlog takes several batches."
    )
    driver_memory: str = Field(
        default="1g", pattern=r"^\d+[mg]$", description="Heap of the JVM that runs the query: `768m`, `1g`."
    )
    stall_timeout: PositiveDuration = Field(
        default=parse_duration("60s"),
        description="If no micro-batch finishes for this long, the query counts as stalled and is restarted.",
    )
    restart_limit: int = Field(
        default=5, ge=0, description="After this many failures of the query in a row the process exits with an error."
    )
    spark_internals: SparkInternals = Field(
        default=SparkInternals.AUTO,
        description="Whether the query may replace private methods of PySpark, which makes batches of a fleet faster: "
        "`auto` does so with the versions that were tested (docs/performance.md), `off` never does.",
    )

    @field_validator("master")
    @classmethod
    def _require_master(cls, master: str) -> str:
        if not any(pattern.fullmatch(master) for pattern in _MASTERS):
            raise ValueError(
                "is no Spark master: write local[2], spark://host:7077, yarn or k8s://https://host:6443; "
                "several of a standalone cluster as spark://host1:7077,host2:7077"
            )
        return master

    @field_validator("spark")
    @classmethod
    def _require_settable(cls, properties: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, value in properties.items():
            if (mistake := _find_mistake(name, value, info.data.get("master", "local"))) is not None:
                # `password:secret`, without the space, is a name, too.
                raise ValueError(f"{name}: {mistake}" if _NAME.fullmatch(name) else mistake)
        return properties

    @field_validator("checkpoint_dir", mode="before")
    @classmethod
    def _accept_path(cls, given: Any) -> Any:
        return str(given) if isinstance(given, Path) else given

    @field_validator("checkpoint_dir")
    @classmethod
    def _require_reachable(cls, given: str | None, info: ValidationInfo) -> str | None:
        place = None if given is None else CheckpointPlace.parse(given)
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
        """The checkpoint's place; None: in `data_dir`."""
        return None if self.checkpoint_dir is None else CheckpointPlace.parse(self.checkpoint_dir)


def is_local(master: str) -> bool:
    """Whether all of Spark runs in one process on this machine."""
    return master.startswith("local")


def is_on_this_machine(master: str) -> bool:
    """Whether all executors run on this machine: no other machine can reach a standalone master on loopback."""
    return is_local(master) or (master.startswith("spark://") and is_loopback(master.removeprefix("spark://")))


def is_loopback(servers: str) -> bool:
    """Whether each of `host:port`, separated by commas, is a loopback address."""
    return all(_is_loopback_host(host.strip("[]")) for host in _EACH_SERVER.findall(servers))


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _find_mistake(name: str, value: str, master: str) -> str | None:
    if not name.startswith("spark."):
        return "is no Spark property: their names begin with `spark.`"
    if name in PROPERTIES_WITH_SETTING:
        return f"is set by {PROPERTIES_WITH_SETTING[name]}"
    if name in FIXED_PROPERTIES:
        return "cannot be set: decisions depend on it"
    if _SECRET.search(name):
        return "is a secret: put it into spark-defaults.conf in SPARK_CONF_DIR, readable by this user alone"
    if name == _DRIVER_HOST and is_loopback(value) and not is_on_this_machine(master):
        return f"executors of {master} cannot reach this machine by {value}: name an address that they can"
    return None
