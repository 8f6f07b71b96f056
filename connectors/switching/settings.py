"""Settings of the executor of switches: ``clusters.<name>.switching``."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from connectors.bookkeeper.copy_clusters import Replication
from connectors.http.access import LOOPBACK, HttpAccess
from connectors.pulsar.connection import MemberUrl
from connectors.redaction import RedactedBlock, secret, unreadable_files
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


class SwitchAdminApi(HttpAccess):
    """The REST verbs of PIP-477, below `/admin/v2/bookie-clusters`, served by the executor of the switch."""

    place: ClassVar[str] = "switching.admin_api"

    host: str = Field(default="127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(default=8089, ge=0, le=65_535, description="The port; 0 for any that is free.")
    timeout: PositiveDuration = Field(
        default=parse_duration("1m"), description="Time limit for the loop's answer to a command."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield mistakes, see `RedactedBlock`."""
        if (self.token is None) == (self.token_file is None):
            yield "token", "give either token or token_file: its holder may move brokers"
        if self.cert_file is None and self.host not in LOOPBACK:
            yield "cert_file", "beyond this machine the token must be encrypted: give cert_file and key_file"
        yield from ((field, why) for field, why in super().problems() if field != "token")


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
    ledger_password_file: Path | None = Field(default=None, description="File with the password.")
    owner_url: MemberUrl | None = Field(
        default=None,
        description="Address of a broker's agent, which rolls over the cursors of loaded topics; `{member}` is "
        "`host:port` as the broker registers, `{host}` the host. Default: such cursors wait until they are unloaded.",
    )

    admin_api: SwitchAdminApi | None = Field(
        default=None, description="If present, commands are also accepted over HTTP, by the verbs of PIP-477."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield mistakes, see `RedactedBlock`."""
        if self.ledger_password is not None and self.ledger_password_file is not None:
            yield "ledger_password", "give either ledger_password or ledger_password_file, not both"
        yield from unreadable_files({"ledger_password_file": self.ledger_password_file})

    def password(self) -> bytes:
        """Return the password of the ledgers; empty if none is set.

        Raises:
            UserError: its file cannot be read.
        """
        return (secret(self.ledger_password, self.ledger_password_file, "ledger_password_file") or "").encode()
