"""The whole application's settings: one YAML file, and the environment, which overrides it.

In the environment, ``HEADGATE_`` and the path with ``__`` between its parts names a setting:
``HEADGATE_KAFKA__SASL__PASSWORD``. So the file need not contain secrets.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.http.access import HttpAccess
from connectors.kafka.connection import KafkaConnection, WatchedKafka
from connectors.kafka.topics import PartitionSettings, TopicSettings
from connectors.registration import ClusterSources, connectors_of, find_needs
from deploy.settings.schema import suggest
from policies.policy import LOOP
from policies.registry import POLICIES
from policies.settings import PolicySettings, merge_errors
from policies.units import ClosedEnum, UserError
from streaming.settings import CheckpointPlace, StreamSettings, is_loopback, is_on_this_machine

if TYPE_CHECKING:
    from streaming.host import PolicyHost


# The default folders of Headgate's files.


def user_folder(variable: str, in_home: str) -> Path:
    """Return `headgate` in the folder that a variable of XDG names, or in a folder of the user's home.

    Raises UserError if the variable is not set, and the user has no home, as is usual in a container.
    """
    try:
        return Path(os.environ.get(variable) or Path.home() / in_home) / "headgate"
    except RuntimeError:
        raise UserError(f"this user has no home folder: set HOME, {variable}, or data_dir and jars_dir") from None


def default_cache_dir() -> Path:
    """Return the default folder for jars: `headgate/jars` in `$XDG_CACHE_HOME` or in `~/.cache`."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "jars"


# The base of the settings' blocks.


class SettingsBlock(BaseModel):
    """A block of the settings; unknown names are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


# The settings of the HTTP listeners.

_PAGE_URL = re.compile(r"https?://[^\s?#@]+")


def _check_host(host: str) -> str:
    if not host.strip():  # servers take an empty host as every address
        raise ValueError("is empty: name the address to listen on: 127.0.0.1, or 0.0.0.0 for all addresses")
    return host


class HttpSettings(SettingsBlock):
    """The address of /metrics, /-/healthy and /-/ready, and of the exporter's status page."""

    host: Annotated[str, AfterValidator(_check_host)] = Field(
        default="127.0.0.1", description="Address to listen on; `0.0.0.0` for a Prometheus on another machine."
    )
    port: int = Field(default=9408, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    probes_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of a second listener with /-/healthy and /-/ready alone, which no client of the page fills.",
    )
    host_names: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        default_factory=list,
        max_length=100,
        description="Public names of this server. A request by another one gets status 421, because a web page "
        "elsewhere may have sent it (DNS rebinding). Addresses, the machine's name and names without a public domain "
        "need no entry.",
    )
    access: HttpAccess | None = Field(
        default=None,
        description="Tokens and TLS. Off: open to every client, unencrypted. /-/healthy and /-/ready are always open.",
    )

    public_url: str | None = Field(
        default=None,
        description="The status page's address for people, such as `https://headgate.example.org`: notifications of "
        "Alertmanager link to its pages of clusters and runbooks.",
    )

    @field_validator("public_url")
    @classmethod
    def _complete_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        url = url.rstrip("/") if "://" in url else f"https://{url.rstrip('/')}"
        if not _PAGE_URL.fullmatch(url):
            raise ValueError("is no address such as https://headgate.example.org, without user, query and fragment")
        return url

    @field_validator("access")
    @classmethod
    def _refuse_open_access(cls, access: HttpAccess | None) -> HttpAccess | None:
        """Refuse an empty block, because its author wants restricted access and would get none."""
        if access == HttpAccess():
            raise ValueError("names no token and no certificate, so every client has access: set one, or leave it out")
        return access

    def url(self, port: int) -> str:
        """Return the URL, given the port in use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.access and self.access.cert_file else 'http'}://{host}:{port}"


# The settings of the log.


class LogLevel(ClosedEnum):
    """The least severe lines that a part logs while it runs."""

    DEBUG = "debug", "Details, too, as with `-v`."
    INFO = "info", "What a part does."
    WARNING = "warning", "What may need a person."
    ERROR = "error", "What failed."


class LogFormat(ClosedEnum):
    """How each line of the log is written."""

    AUTO = "auto", "As text on a terminal, as JSON elsewhere."
    TEXT = "text", "As text."
    JSON = "json", "As JSON."


class LogSettings(SettingsBlock):
    """The log of the parts that run. Commands with an answer log problems only."""

    level: LogLevel = Field(default=LogLevel.INFO, description="The least severe lines; `-v` is `debug`.")
    format: LogFormat = Field(
        default=LogFormat.AUTO, description="One event a line: `text`, `json`, or `auto`: JSON, on a terminal text."
    )


# The settings of one watched cluster: its connections, and the settings that each policy adds.


class WatchedClusterBase(ClusterSources):
    """One watched cluster: how to read it, and how to carry its decisions out."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_together(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Report missing settings that a block needs together with the mistakes within the blocks."""
        later = {"kafka"} if isinstance(value, _OwnCluster) else set()
        try:
            cluster = handler(value)
        except ValidationError as error:
            given = value if isinstance(value, Mapping) else {}
            raise merge_errors(cls.__name__, _missing_settings(given.get, later), error) from None
        mistakes = (mistake for kind in POLICIES.values() for mistake in connectors_of(kind).mistakes(cluster))
        found = [
            *_missing_settings(lambda name: getattr(cluster, name), later),
            *((path, what) for path, _, what in (mistake.partition(": ") for mistake in mistakes)),
        ]
        if found:
            raise merge_errors(cls.__name__, found)
        return cluster


class _OwnCluster(dict[str, Any]):
    """The given settings of the cluster that `headgate up` starts: its `kafka` is known once it runs."""


def _missing_settings(given: Callable[[str], Any], later: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a cluster that need others which are missing, with a sentence each.

    `later` are settings that are not given, and will be there.
    """
    for kind in POLICIES.values():
        for name, setting in connectors_of(kind).cluster_settings.items():
            needed = [(path, path.partition(".")[0]) for path in setting.needs]
            lacking = [path for path, block in needed if given(block) is None and block not in later]
            if given(name) is not None and lacking:
                yield name, f"needs {lacking[0]}, too"


def _watched_cluster() -> Any:
    """Make the model of a cluster with the settings that each registered policy adds."""
    fields: dict[str, Any] = {
        name: (setting.model | None, Field(default=None, description=setting.description))
        for kind in POLICIES.values()
        for name, setting in connectors_of(kind).cluster_settings.items()
    }
    return create_model(
        "WatchedCluster", __base__=WatchedClusterBase, __doc__=WatchedClusterBase.__doc__, __module__=__name__, **fields
    )


WatchedCluster: Any = _watched_cluster()


def _check_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_CLUSTER_NAME:
        raise ValueError(f"a cluster's name has 1 to {MAX_CLUSTER_NAME} characters")
    if name == LOOP:
        raise ValueError(f"'{name}' is a name of Headgate's own: give the cluster another one")
    return name


ClusterName = Annotated[str, AfterValidator(_check_name)]
MAX_CLUSTER_NAME = 249
"""The limit that readings have."""


class EmbeddedSettings(SettingsBlock):
    """The Kafka that `headgate up` starts itself."""

    brokers: int = Field(default=1, ge=1, le=9, description="Number of brokers.")
    ports: list[int] = Field(
        default_factory=list, description="Ports of the brokers; by default free ones, kept for the next start."
    )
    heap_mebibytes: int = Field(default=320, ge=96, description="Java heap of each broker.")


_OUR_NAMES = {"spark.log", "spark-tmp", "checkpoint", "kafka"}
"""A data folder that was used before contains at least one of these."""
EMBEDDED_CLUSTER = "embedded"
"""The cluster that `headgate up` starts and watches."""


def _policies_block() -> Any:
    """Make one field for each registered policy; a policy that is left out runs with its defaults."""
    fields: dict[str, Any] = {
        name: (kind.settings, Field(default_factory=kind.settings)) for name, kind in POLICIES.items()
    }
    return create_model("PoliciesSettings", __base__=SettingsBlock, __doc__="Each policy's settings.", **fields)


PoliciesSettings: Any = _policies_block()


class Settings(SettingsBlock):
    """All settings."""

    data_dir: Path = Field(
        default_factory=lambda: user_folder("XDG_DATA_HOME", ".local/share"),
        description="Folder of checkpoint, embedded brokers and logs. Default: `headgate` in `$XDG_DATA_HOME` or "
        "in `~/.local/share`.",
    )
    jars_dir: Path = Field(
        default_factory=default_cache_dir,
        description="Folder of fetched jars. Default: `headgate/jars` in `$XDG_CACHE_HOME` or in `~/.cache`.",
    )
    kafka: KafkaConnection | None = Field(
        default=None, description="The loop's own Kafka. `headgate up` starts one itself."
    )
    topics: TopicSettings = Field(default_factory=TopicSettings)
    clusters: dict[ClusterName, WatchedCluster] = Field(
        default_factory=dict, description="The watched clusters, by name."
    )
    policies: PoliciesSettings = Field(default_factory=PoliciesSettings)
    stream: StreamSettings = Field(default_factory=StreamSettings)
    shares: PartitionSettings = Field(default_factory=PartitionSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    alertmanager: AlertmanagerSettings | None = Field(
        default=None, description="The process with the exporter sends alerts to Alertmanager."
    )
    embedded: EmbeddedSettings = Field(default_factory=EmbeddedSettings)

    @model_validator(mode="before")
    @classmethod
    def _mark_own_cluster(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Mark the cluster that `headgate up` starts, in settings without a Kafka for the loop."""
        clusters = given.get("clusters")
        if given.get("kafka") is None and isinstance(clusters, Mapping):
            own = clusters.get(EMBEDDED_CLUSTER)
            marked = {EMBEDDED_CLUSTER: _OwnCluster(own)} if isinstance(own, dict) else {}
            return {**given, "clusters": {**clusters, **marked}}
        return given

    @field_validator("data_dir", "jars_dir", mode="before")
    @classmethod
    def _parse_folder(cls, value: Any) -> Any:
        """Refuse an empty variable, which would mean the process's working directory."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("is empty: name a folder, or leave it out")
        if not isinstance(value, str):
            return value
        try:
            return Path(value).expanduser()
        except RuntimeError:
            raise ValueError("begins with the home of a user that does not exist") from None

    @model_validator(mode="after")
    def _check_kafka_of_query(self) -> Self:
        """Executors must reach it; their Java client gets its login from `stream.kafka` if `kafka` does not suffice."""
        if self.kafka is None:
            return self
        if not is_on_this_machine(self.stream.master) and is_loopback(self.kafka.bootstrap_servers):
            raise ValueError(
                f"kafka.bootstrap_servers: {self.kafka.bootstrap_servers} cannot be reached by executors of "
                f"{self.stream.master}: name addresses that they can reach"
            )
        if self.kafka.needs_java_login and "sasl.jaas.config" not in self.stream.kafka:
            raise ValueError(
                "stream.kafka: the query's Java client cannot derive its login from `kafka`: set sasl.jaas.config, "
                "and sasl.login.callback.handler.class for tokens (docs/managed-kafka.md)"
            )
        return self

    def policy_settings(self) -> Mapping[str, PolicySettings]:
        """Return each policy's block by its name, completed from the watched clusters' settings."""
        return {
            name: connectors_of(kind).informed(getattr(self.policies, name), self.clusters)
            for name, kind in POLICIES.items()
        }

    def actuator_needs(self) -> dict[tuple[str, str], str]:
        """Return the setting that would make an actuator, by policy and cluster, where there is none."""
        return find_needs(self.policy_settings(), self.clusters)

    def watched(self, cluster: str, option: str = "--cluster") -> WatchedCluster:
        """Return the settings of a cluster that an option names; raise UserError with similar names without any."""
        if cluster not in self.clusters:
            others = suggest(cluster, self.clusters) if self.clusters else "; they name none: pass the file (-s)"
            raise UserError(f"{option}: the settings name no cluster '{cluster}'{others}")
        return self.clusters[cluster]

    def watched_clusters(self) -> frozenset[str] | None:
        """Return the watched clusters; None without any (a file with only `policies:`): then all are accepted."""
        return frozenset(self.clusters) if self.clusters else None

    def policy_host(self) -> "PolicyHost":
        """Return the host of the policies with these settings."""
        from streaming.host import PolicyHost

        return PolicyHost(self.policy_settings(), self.watched_clusters())

    def loop_kafka(self) -> KafkaConnection:
        """Return the settings of the loop's own Kafka; raise UserError if they are missing."""
        if self.kafka is None:
            raise UserError(
                "kafka.bootstrap_servers is not set: name the loop's own Kafka there (or in "
                "HEADGATE_KAFKA__BOOTSTRAP_SERVERS), or use `headgate up`, which starts one. Other commands find that "
                f"one by its data_dir (or HEADGATE_DATA_DIR), here {self.data_dir}."
            )
        return self.kafka

    def create_data_dir(self) -> Path:
        """Return the data folder; create it if necessary, or raise UserError if it cannot be written to."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Close our own folder to other users; a folder with other files (such as `/tmp`) stays as it is.
            found, names = self.data_dir.stat(), {each.name for each in self.data_dir.iterdir()}
            if found.st_uid == os.geteuid() and found.st_mode & 0o077 and (not names or names & _OUR_NAMES):
                self.data_dir.chmod(0o700)
        except OSError as error:
            raise UserError(
                f"data_dir: {self.data_dir} cannot be made ({error.strerror}); name another folder"
            ) from None
        if not os.access(self.data_dir, os.W_OK):
            raise UserError(f"data_dir: {self.data_dir} cannot be written to; name another folder, or change its owner")
        return self.data_dir

    def checkpoint(self) -> CheckpointPlace:
        """Return the location of the query's checkpoint."""
        return self.stream.checkpoint or CheckpointPlace.parse(self.data_dir / "checkpoint")

    def checkpoint_dir(self) -> Path:
        """Return the checkpoint's folder on this machine; raise UserError if the checkpoint is remote."""
        place = self.checkpoint()
        if place.folder is None:
            raise UserError(
                f"stream.checkpoint_dir: {place.uri} is no folder of this machine: inspect or move it with that "
                "storage's own tools while no query runs"
            )
        return place.folder

    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits that change with any setting except secrets."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


# The settings of the loop that `headgate up` runs on a Kafka of its own.

_LIMITS = {"hard": {"available_ratio_below": 0.05}, "soft": {"available_ratio_below": 0.15}}
"""The limits of the embedded cluster, where the settings name none."""


def with_embedded(settings: Settings, bootstrap_servers: str) -> Settings:
    """Return the settings with the embedded cluster as the loop's own Kafka and as a watched cluster."""
    given = settings.clusters.get(EMBEDDED_CLUSTER) or WatchedCluster()
    watched = {} if given.kafka is None else given.kafka.model_dump(exclude={"bootstrap_servers"})
    kafka = WatchedKafka(**{**watched, "bootstrap_servers": bootstrap_servers})
    embedded = given.model_copy(update={"kafka": kafka})
    throttle = settings.policies.throttle
    if not throttle.for_cluster(EMBEDDED_CLUSTER).limited:  # so that any nearly full disk has decisions
        throttle = throttle.with_defaults({EMBEDDED_CLUSTER: _LIMITS})
    return settings.model_copy(
        update={
            "kafka": KafkaConnection(bootstrap_servers=bootstrap_servers),
            "clusters": {**settings.clusters, EMBEDDED_CLUSTER: embedded},
            "policies": settings.policies.model_copy(update={"throttle": throttle}),
        }
    )


def with_running_up(settings: Settings) -> Settings:
    """Return the settings, completed from a `headgate up` that runs on their data folder if they name no Kafka."""
    servers = None if settings.kafka is not None else embedded_servers(settings.data_dir / "kafka")
    return settings if servers is None else with_embedded(settings, servers)


def embedded_servers(folder: Path) -> str | None:
    """Return the bootstrap servers of an embedded cluster; None if none runs on this folder."""
    try:
        holder = int((folder / "lock").read_text().split()[0])
        ports = [int(port) for port in json.loads((folder / "cluster.json").read_text())["broker_ports"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    # Taking the lock, even for a moment, could make the start of another `up` fail.
    try:
        os.kill(holder, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # the process runs as another user
    return ",".join(f"127.0.0.1:{port}" for port in ports) or None
