"""The whole application's settings: one YAML file, and the environment, which overrides it.

In the environment, ``HEADGATE_`` and the path with ``__`` between its parts names a setting:
``HEADGATE_KAFKA__SASL__PASSWORD``. So the file need not contain secrets.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from connectors.alertmanager.settings import AlertmanagerSettings
from connectors.canary.settings import with_canary
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import TopicSettings
from connectors.partitions.settings import PartitionSettings
from connectors.registration import connectors_of
from deploy.checking.environment import with_names_of_clusters
from deploy.checking.suggestions import suggest
from deploy.java.jars import default_cache_dir
from deploy.settings.blocks import SettingsBlock
from deploy.settings.folders import user_folder
from deploy.settings.http import HttpSettings
from deploy.settings.watched_cluster import WatchedCluster
from policies.canary import CANARY
from policies.errors import UserError
from policies.host_alerts import LOOP
from policies.registry import POLICIES
from policies.settings import PolicySettings
from streaming.checkpoint import CheckpointPlace
from streaming.host import PolicyHost
from streaming.settings import StreamSettings, is_loopback, is_on_this_machine


def _check_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_CLUSTER_NAME:
        raise ValueError(f"a cluster's name has 1 to {MAX_CLUSTER_NAME} characters")
    if name in (CANARY, LOOP):
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


def default_data_dir() -> Path:
    """Return ``$XDG_DATA_HOME/headgate``, by default in the user's home."""
    return user_folder("XDG_DATA_HOME", ".local/share")


def _policies_block() -> Any:
    """Make one field for each registered policy; a policy that is left out runs with its defaults."""
    fields: dict[str, Any] = {
        name: (kind.settings, Field(default_factory=kind.settings)) for name, kind in POLICIES.items()
    }
    return create_model("PoliciesSettings", __base__=SettingsBlock, __doc__="Each policy's settings.", **fields)


PoliciesSettings: Any = _policies_block()


def _restrict_access(folder: Path) -> None:
    """Close our own folder to other users; a folder with other files (such as `/tmp`) stays as it is."""
    found = folder.stat()
    names = {each.name for each in folder.iterdir()}
    if found.st_uid == os.geteuid() and found.st_mode & 0o077 and (not names or names & _OUR_NAMES):
        folder.chmod(0o700)


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix="HEADGATE_", env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    data_dir: Path = Field(
        default_factory=default_data_dir,
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
    alertmanager: AlertmanagerSettings | None = Field(
        default=None, description="The process with the exporter sends alerts to Alertmanager."
    )
    canary: bool = Field(
        default=True,
        description="Every 30 s the exporter publishes a reading of the pseudo-cluster `headgate-canary`, and "
        "measures how long its decision takes: `headgate_loop_latency_seconds`. The query's process must have the same "
        "value.",
    )
    embedded: EmbeddedSettings = Field(default_factory=EmbeddedSettings)

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
    def _check_reachable_kafka(self) -> Self:
        elsewhere = not is_on_this_machine(self.stream.master)
        if elsewhere and self.kafka is not None and is_loopback(self.kafka.bootstrap_servers):
            raise ValueError(
                f"kafka.bootstrap_servers: {self.kafka.bootstrap_servers} cannot be reached by executors of "
                f"{self.stream.master}: name addresses that they can reach"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment overrides the file, whose content is passed to the constructor."""
        environment = with_names_of_clusters(env_settings(), init_settings())
        return (InitSettingsSource(settings_cls, environment), init_settings)

    def policy_settings(self) -> Mapping[str, PolicySettings]:
        """Return each policy's block by its name, completed from the watched clusters' settings."""
        return {
            name: connectors_of(kind).informed(getattr(self.policies, name), self.clusters)
            for name, kind in POLICIES.items()
        }

    def watched(self, cluster: str, option: str = "--cluster") -> WatchedCluster:
        """Return the settings of a cluster that an option names.

        Raises:
            UserError: they do not name it; the message has the names that are similar or there.
        """
        if cluster not in self.clusters:
            others = suggest(cluster, self.clusters) if self.clusters else "; they name none: pass the file (-s)"
            raise UserError(f"{option}: the settings name no cluster '{cluster}'{others}")
        return self.clusters[cluster]

    def watched_clusters(self) -> frozenset[str] | None:
        """Return the watched clusters; None without any (a file with only `policies:`): then all are accepted."""
        return frozenset(self.clusters) if self.clusters else None

    def decided_clusters(self) -> frozenset[str] | None:
        """Return the clusters that are decided on: the watched ones, and the canary."""
        watched = self.watched_clusters()
        return watched | {CANARY} if self.canary and watched is not None else watched

    def policy_host(self) -> PolicyHost:
        """Return the host of the policies with these settings."""
        settings = self.policy_settings()
        return PolicyHost(with_canary(settings) if self.canary else settings, self.decided_clusters())

    def loop_kafka(self) -> KafkaConnection:
        """Return the settings of the loop's own Kafka.

        Raises:
            UserError: they are missing.
        """
        if self.kafka is None:
            raise UserError(
                "kafka.bootstrap_servers is not set: name the loop's own Kafka there (or in "
                "HEADGATE_KAFKA__BOOTSTRAP_SERVERS), or use `headgate up`, which starts one. Other commands find that "
                f"one by its data_dir (or HEADGATE_DATA_DIR), here {self.data_dir}."
            )
        return self.kafka

    def create_data_dir(self) -> Path:
        """Return the data folder; create it if necessary.

        Raises:
            UserError: it cannot be created, or not be written to.
        """
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            _restrict_access(self.data_dir)
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
        """Return the checkpoint's folder on this machine.

        Raises:
            UserError: the checkpoint is remote.
        """
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
