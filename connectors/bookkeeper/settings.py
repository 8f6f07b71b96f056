"""The BookKeeper clusters that one broker cluster may write to, and how it may switch between them."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from connectors.zookeeper.connection import ZnodePath, ZooKeeperConnection
from policies.switching.precheck import Rules, TargetPolicy
from policies.switching.references import Kind, Strategy
from policies.units import PositiveDuration, parse_duration


class BookKeeperCluster(BaseModel):
    """Where one BookKeeper cluster keeps its metadata."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zookeeper: ZooKeeperConnection | None = Field(default=None, description="Default: the brokers' own ZooKeeper.")
    ledgers_root: ZnodePath = Field(default="/ledgers", description="Its metadata's path, below the chroot.")


class Strategies(BaseModel):
    """How ledgers come to a target: with the id they have (`same_id`), or with a new one (`remap`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Strategy = Field(default=Strategy.SAME_ID, alias="schema", description="Ledgers with schemas.")
    cursor: Strategy = Field(default=Strategy.SAME_ID, description="Ledgers with the positions of subscriptions.")

    def remapped(self) -> frozenset[Kind]:
        """The kinds whose ledgers get new ids."""
        chosen = {Kind.SCHEMA: self.schema_, Kind.CURSOR: self.cursor}
        return frozenset(kind for kind, strategy in chosen.items() if strategy is Strategy.REMAP)


class BookKeeperClusters(BaseModel):
    """The BookKeeper clusters of one broker cluster, by name, and what holds for a switch between them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clusters: dict[str, BookKeeperCluster] = Field(min_length=1, description="All of them, by name.")
    bootstrap: str = Field(
        description="The one that the brokers began with: it holds every ledger that says nothing else. Set once, "
        "and never changed."
    )
    active: str | None = Field(
        default=None,
        description="The one that the brokers write to now: a switch leads away from it. Default: bootstrap.",
    )
    target_policy: TargetPolicy = Field(
        default=TargetPolicy.DEDICATED,
        description="`dedicated`: a target must be empty but for headgate's own copies. `shared`: it may have other "
        "users, and only the ids to import must be free.",
    )
    strategies: Strategies = Field(
        default_factory=Strategies, description="With `remap`, the ids of a kind need not be free in the target."
    )
    precheck_validity: PositiveDuration = Field(
        default=parse_duration("10m"), description="How long a precheck counts, from its first reading on."
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
        """The one that the brokers write to now."""
        return self.active or self.bootstrap

    def rules(self) -> Rules:
        """What a precheck goes by."""
        validity_ms = int(self.precheck_validity.total_seconds() * 1000)
        return Rules(policy=self.target_policy, validity_ms=validity_ms, remapped=self.strategies.remapped())
