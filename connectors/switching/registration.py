"""The settings of the switching policy in a watched cluster, and its registration."""

from pathlib import Path

from pydantic import Field, SecretStr

from connectors.bookkeeper.settings import BookKeeperClusters, CopyReplication
from connectors.redaction import RedactedBlock, secret
from connectors.registration import ClusterSetting, PolicyConnectors
from policies.units import PositiveDuration, parse_duration


class SwitchExecution(RedactedBlock):
    """Settings of the executor of switches. If the block is present, orders are carried out."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("2s"),
        description="Interval of reading registry, live brokers and id generators, and of renewing the lease.",
    )
    inventory_interval: PositiveDuration = Field(
        default=parse_duration("10m"),
        description="Interval of listing all schema locators and cursors without a request.",
    )
    copy_timeout: PositiveDuration = Field(
        default=parse_duration("30s"), description="Time limit of one request of the BookKeeper client."
    )
    replication: CopyReplication | None = Field(
        default=None, description="Replication of the copies. Default: as in the source."
    )
    heap_mebibytes: int = Field(default=256, ge=64, description="Java heap of the BookKeeper client.")
    ledger_password: SecretStr | None = Field(
        default=None,
        description="Password of the ledgers: the brokers' `managedLedgerPassword`. Default: none, as theirs.",
    )
    ledger_password_file: Path | None = Field(
        default=None, description="File with the password; read again when it changes."
    )

    def password(self) -> bytes:
        """Return the password of the ledgers; empty if none is set. Raises UserError if its file cannot be read."""
        return (secret(self.ledger_password, self.ledger_password_file, "ledger_password_file") or "").encode()


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "bookkeeper": ClusterSetting(
            BookKeeperClusters,
            "The BookKeeper clusters that its brokers may write to, for `headgate switch`. The schemas and cursors "
            "that name their ledgers are read through `zookeeper`.",
            needs=("zookeeper.servers",),
        ),
        "switching": ClusterSetting(
            SwitchExecution,
            "If present, `headgate run` or `headgate act` carries out switches between the clusters of `bookkeeper`. "
            "ZooKeeper must allow it to write to `/admin/bookie-clusters`, `/schemas` and `/managed-ledgers`.",
            needs=("bookkeeper.clusters",),
        ),
    },
    commands="deploy.switch.cli:switch_app",
    jars=("bookkeeper",),
    acts_with=("switching",),
    actuators="connectors.switching.io:make_actuators",
    probes="connectors.switching.io:list_probes",
    view="connectors.switching.view:SwitchingView",
)
