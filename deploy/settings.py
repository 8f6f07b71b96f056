"""The whole application's settings: one YAML file, and the environment over it.

``HEADGATE_`` and the path with ``__`` between its parts names a setting in the environment, so a secret need not be in
the file: ``HEADGATE_KAFKA__SASL__PASSWORD``.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.topics import TopicSettings
from connectors.pulsar.bookies import WatchedPulsarBookies
from connectors.pulsar.connection import PulsarAdmin
from connectors.pulsar.health import WatchedHealth
from connectors.switching.settings import SwitchExecution
from connectors.unload import UnloadSettings
from connectors.zookeeper.bookies import WatchedBookies
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.ownership import WatchedOwnership
from connectors.zookeeper.sessions import WatchedSessions
from deploy.jars import default_cache_dir
from policies.errors import UserError
from policies.registry import POLICIES
from policies.settings import PolicySettings
from policies.throttle.quota_settings import QuotaSettings
from streaming.settings import StreamSettings


class Block(BaseModel):
    """A part of the settings; unknown names are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class WatchedCluster(Block):
    """One watched cluster: what to read it by, and how its decisions are carried out."""

    kafka: WatchedKafka | None = Field(default=None, description="A Kafka cluster whose log dirs are read.")
    zookeeper: ZooKeeperConnection | None = Field(
        default=None, description="The ZooKeeper with a cluster's BookKeeper metadata and Pulsar's policies."
    )
    pulsar: PulsarAdmin | None = Field(default=None, description="The admin REST of a Pulsar cluster's brokers.")
    bookies: WatchedBookies | None = Field(
        default=None,
        description="Present: its bookies, their groups and the namespaces' affinity are read through `zookeeper`, and "
        "`policies.isolation.quarantine` acts on its `/bookies`.",
    )
    pulsar_bookies: WatchedPulsarBookies | None = Field(
        default=None,
        description="The same through `pulsar`, for a cluster whose ZooKeeper is out of reach: with less certainty.",
    )
    bookkeeper: BookKeeperClusters | None = Field(
        default=None,
        description="The BookKeeper clusters that its brokers may write to, for `headgate switch`; the schemas and "
        "cursors that name ledgers there are read through `zookeeper`.",
    )
    quotas: QuotaSettings | None = Field(
        default=None,
        description="Present: its throttle factor is carried out with Kafka's own client quotas, by `headgate run` or "
        "`headgate act`. Its user then needs DescribeConfigs and AlterConfigs on the cluster, too.",
    )

    sessions: WatchedSessions | None = Field(
        default=None, description="Present: the ZooKeeper sessions of its brokers, or of other members, are watched."
    )
    ownership: WatchedOwnership | None = Field(
        default=None, description="Present: which broker owns which bundle is read through `zookeeper`."
    )
    health: WatchedHealth | None = Field(
        default=None, description="Present: each broker is asked for its health; zombies are found by this."
    )
    unload: UnloadSettings | None = Field(
        default=None,
        description="Present: decisions about bundles are carried out through `pulsar`, by `headgate run` or "
        "`headgate act`.",
    )

    switching: SwitchExecution | None = Field(
        default=None,
        description="Present: what `headgate switch` starts is carried out between the clusters of `bookkeeper`, by "
        "`headgate run` or `headgate act`. ZooKeeper must let it write to `/admin/bookie-clusters`, `/schemas` and "
        "`/managed-ledgers`.",
    )

    @model_validator(mode="after")
    def _everything_has_its_source(self) -> Self:
        for source, needed, wanting in (
            ("zookeeper", "zookeeper.servers", ("bookies", "bookkeeper", "sessions", "ownership")),
            ("pulsar", "pulsar.admin_url", ("pulsar_bookies", "health", "unload")),
            ("bookkeeper", "bookkeeper.clusters", ("switching",)),
        ):
            lacking = [name for name in wanting if getattr(self, name) is not None and getattr(self, source) is None]
            if lacking:
                raise ValueError(f"{lacking[0]}: needs {needed}, too")
        if self.switching is not None and self.switching.owner_url is not None and self.pulsar is None:
            raise ValueError("switching.owner_url: needs pulsar.admin_url, too, for how brokers are asked")
        if self.bookies is not None and self.pulsar_bookies is not None:
            raise ValueError("pulsar_bookies: give either bookies or pulsar_bookies, not both")
        return self


class HttpSettings(Block):
    """Where /metrics, /-/healthy and /-/ready are served."""

    host: str = Field(default="127.0.0.1", description="`0.0.0.0` to let Prometheus come from elsewhere.")
    port: int = Field(default=9408, ge=0, le=65535, description="0 takes a free one.")


class EmbeddedSettings(Block):
    """The Kafka that `headgate up` starts itself."""

    brokers: int = Field(default=1, ge=1, le=9, description="How many brokers it has.")
    ports: list[int] = Field(default_factory=list, description="Default: free ones, kept for the next start.")
    heap_mebibytes: int = Field(default=320, ge=96, description="Java heap of each broker.")


def default_data_dir() -> Path:
    """``$XDG_DATA_HOME/headgate``, by default in the user's home."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "headgate"


def _policies_block() -> Any:
    """One field for each registered policy; a policy that is left out runs with its defaults."""
    fields: dict[str, Any] = {
        name: (kind.settings, Field(default_factory=kind.settings)) for name, kind in POLICIES.items()
    }
    return create_model("PoliciesSettings", __base__=Block, __doc__="Each policy's settings.", **fields)


PoliciesSettings: Any = _policies_block()


class Settings(BaseSettings):
    """Everything there is to set."""

    model_config = SettingsConfigDict(
        env_prefix="HEADGATE_", env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=True
    )

    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Checkpoint, embedded brokers and logs are kept here. Default: `headgate` in `$XDG_DATA_HOME` or "
        "in `~/.local/share`.",
    )
    jars_dir: Path = Field(
        default_factory=default_cache_dir,
        description="Where fetched jars are kept. Default: `headgate/jars` in `$XDG_CACHE_HOME` or in `~/.cache`.",
    )
    kafka: KafkaConnection | None = Field(
        default=None, description="The loop's own Kafka. `headgate up` starts one itself."
    )
    topics: TopicSettings = Field(default_factory=TopicSettings)
    clusters: dict[str, WatchedCluster] = Field(default_factory=dict, description="What is watched, by name.")
    policies: PoliciesSettings = Field(default_factory=PoliciesSettings)
    stream: StreamSettings = Field(default_factory=StreamSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    embedded: EmbeddedSettings = Field(default_factory=EmbeddedSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all of these
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content is given to the constructor."""
        return (env_settings, init_settings)

    def policy_settings(self) -> Mapping[str, PolicySettings]:
        """Each policy's block by its name."""
        return {name: getattr(self.policies, name) for name in POLICIES}

    def loop_kafka(self) -> KafkaConnection:
        """The loop's own Kafka.

        Raises:
            UserError: none is set.
        """
        if self.kafka is None:
            raise UserError(
                "kafka.bootstrap_servers is not set: name the loop's own Kafka there (or in "
                "HEADGATE_KAFKA__BOOTSTRAP_SERVERS), or use `headgate up`, which starts one."
            )
        return self.kafka

    def made_data_dir(self) -> Path:
        """The data folder, made if need be.

        Raises:
            UserError: it can't be made, or not be written to.
        """
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"data_dir: {self.data_dir} cannot be made ({error.strerror}); name another folder"
            ) from None
        if not os.access(self.data_dir, os.W_OK):
            raise UserError(f"data_dir: {self.data_dir} cannot be written to; name another folder, or change its owner")
        return self.data_dir

    def checkpoint_dir(self) -> Path:
        """Where the query keeps its state and position."""
        return self.stream.checkpoint_dir or self.data_dir / "checkpoint"

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any setting but the secrets."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]
