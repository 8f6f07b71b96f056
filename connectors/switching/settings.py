"""Settings of the executor of switches: ``clusters.<name>.switching``."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.bookkeeper.copy_clusters import Replication
from connectors.redaction import RedactedBlock, secret
from connectors.zookeeper.connection import ZnodePath
from policies.units import PositiveDuration, parse_duration


class CopyReplication(BaseModel):
    """Replication of the copies in the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ensemble_size: int = Field(ge=1, le=1000, description="Bookies of a copy.")
    write_quorum: int = Field(ge=1, le=1000, description="Bookies that store each entry.")
    ack_quorum: int = Field(ge=1, le=1000, description="Bookies that must acknowledge each entry.")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum:
            raise ValueError("ensemble_size must be at least write_quorum, and that at least ack_quorum")
        return self

    def sizes(self) -> Replication:
        """Return them for the copier."""
        return Replication(self.ensemble_size, self.write_quorum, self.ack_quorum)


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
    brokers_path: ZnodePath = Field(
        default="/loadbalance/brokers", description="The znode in which live brokers register, one child each."
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
        """Return the password of the ledgers; empty if none is set.

        Raises:
            UserError: its file cannot be read.
        """
        return (secret(self.ledger_password, self.ledger_password_file, "ledger_password_file") or "").encode()
