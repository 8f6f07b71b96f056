"""Settings of the BookKeeper clusters that a broker cluster may write to; the policy has those of the switch."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from connectors.zookeeper.settings import ZnodePath, ZooKeeperConnection
from policies.switching.ledgers import why_not_a_name

_TREES = ("/schemas/", "/managed-ledgers/", "/pulsar/")


class BookKeeperCluster(BaseModel):
    """The location of one BookKeeper cluster's metadata."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zookeeper: ZooKeeperConnection | None = Field(default=None, description="Default: the brokers' own ZooKeeper.")
    ledgers_root: ZnodePath = Field(default="/ledgers", description="The path of its metadata, below the chroot.")


def _znode_name(name: str) -> str:
    if why := why_not_a_name(name):
        raise ValueError(why)
    return name


def _below_a_tree(path: str) -> str:
    if not path.startswith(_TREES):
        raise ValueError(f"only paths below {', '.join(tree.rstrip('/') for tree in _TREES)} can be left out")
    return path


class BookKeeperClusters(BaseModel):
    """The BookKeeper clusters of one broker cluster, by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clusters: dict[Annotated[str, AfterValidator(_znode_name)], BookKeeperCluster] = Field(
        min_length=1, description="All BookKeeper clusters, by name."
    )
    bootstrap: str = Field(
        description="The first BookKeeper cluster of the brokers: it holds every ledger without an attribution. Set it "
        "once, and never change it."
    )
    active: str | None = Field(
        default=None,
        description="The BookKeeper cluster that the brokers write to now, the source of a switch. Default: bootstrap.",
    )

    leave_out: tuple[Annotated[ZnodePath, AfterValidator(_below_a_tree)], ...] = Field(
        default=(),
        description="Znodes of the brokers' ZooKeeper that an inventory leaves out, with all below them, although they "
        "may name ledgers. Those ledgers are neither moved nor counted, and every report names the znodes.",
    )

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for setting in ("bootstrap", "active"):
            name = getattr(self, setting)
            if name is not None and name not in self.clusters:
                raise ValueError(f"{setting}: clusters has no {name}; it has {', '.join(self.clusters)}")
        return self

    @property
    def source(self) -> str:
        """The BookKeeper cluster that the brokers write to now."""
        return self.active or self.bootstrap


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
