"""Readings of bookies, their groups and the namespaces' affinity, which several policies use.

Topic ``observed.bookies``, keyed by cluster.
"""

from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from policies.observations import Observed, Reading
from policies.units import MAX_INT64, Instant

MAX_ENSEMBLE = 10_000
MAX_BOOKIES = 10_000
"""More than any cluster has."""
MAX_GROUPS = 10_000
MAX_NAMESPACES = 50_000
_MAX_GROUPS_NAMED = 1_000

BookieName = Annotated[str, Field(min_length=1, max_length=255)]
"""A bookie's id as registered: `host:port`, or any custom id."""
GroupName = Annotated[str, Field(max_length=255)]
"""The name of a group, or of a member of one, as the znode has it."""
Pattern = Annotated[str, Field(max_length=4096)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=512)]


class BookieRegistration(BaseModel):
    """A bookie's ephemeral node. If its (session, czxid) changes, the bookie has joined again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    bookie: BookieName = Field(description="Its id as registered: `host:port`, or any custom id.")
    session: str | None = Field(
        default=None, max_length=64, description="The ZooKeeper session that owns the node, as `0x…`."
    )
    czxid: int | None = Field(default=None, ge=0, le=MAX_INT64, description="The transaction that created the node.")
    registered_at: Instant | None = Field(
        default=None,
        description="When ZooKeeper created the node, by its own clock; null if the source does not have it.",
    )


class Bookies(Reading):
    """A complete reading of the registration tree."""

    event_type: ClassVar[str] = "headgate.bookies.v1"

    writable: tuple[BookieRegistration, ...] = Field(
        default=(), max_length=MAX_BOOKIES, description="Bookies that are registered and take new data."
    )
    read_only: tuple[BookieRegistration, ...] = Field(
        default=(), max_length=MAX_BOOKIES, description="Bookies that are registered and take no new data."
    )
    known: tuple[BookieName, ...] = Field(
        default=(), max_length=2 * MAX_BOOKIES, description="Every bookie that ever joined, by its cookie."
    )


class RackInfo(BaseModel):
    """The rack and host of a bookie."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rack: str | None = Field(default=None, max_length=4096, description="Its rack; an empty one or `/` is no rack.")
    hostname: str | None = Field(default=None, max_length=4096, description="Its host.")


class BookieRacks(Reading):
    """The groups of bookies in the znode ``/bookies``."""

    event_type: ClassVar[str] = "headgate.bookie-racks.v1"

    groups: (
        Annotated[
            dict[
                GroupName,
                Annotated[
                    dict[GroupName, Annotated[RackInfo, BeforeValidator(lambda value: {} if value is None else value)]],
                    Field(max_length=MAX_BOOKIES),
                ],
            ],
            Field(max_length=MAX_GROUPS),
        ]
        | None
    ) = Field(default=None, description="Members by group; null when there is no znode `/bookies`.")


class NamespaceAffinity(Observed):
    """The groups a namespace may place its data on, and its persistence if its policies set it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    primary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Groups used first; `*` means every bookie."
    )
    secondary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Groups used when the primary ones do not suffice."
    )
    strict: bool | None = Field(
        default=None,
        description="Whether the policies ask that it never uses bookies without a group; null: not set. No released "
        "Pulsar reads it.",
    )
    ensemble_size: int | None = Field(
        default=None, ge=1, le=MAX_ENSEMBLE, description="The bookies a ledger spreads over."
    )
    has_policies: bool = Field(
        default=True, description="Whether its policies were found; without them, its ensemble is not known."
    )
    write_quorum: int | None = Field(default=None, ge=1, le=MAX_ENSEMBLE, description="The copies of each entry.")
    ack_quorum: int | None = Field(default=None, ge=0, le=MAX_ENSEMBLE, description="The copies a producer waits for.")


class BrokerIsolation(BaseModel):
    """A namespace isolation policy of Pulsar: the brokers that serve some namespaces. It is shown, not decided on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pulsar_cluster: GroupName = Field(description="Pulsar's name of the cluster of these brokers.")
    name: GroupName = Field(description="The name of the policy.")
    namespaces: tuple[Pattern, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Regular expressions of `tenant/namespace`."
    )
    primary: tuple[Pattern, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Regular expressions of the brokers that serve them."
    )
    secondary: tuple[Pattern, ...] = Field(
        default=(),
        max_length=_MAX_GROUPS_NAMED,
        description="Regular expressions of the brokers that serve them when too few primary ones are available.",
    )
    min_available: int | None = Field(
        default=None, ge=-MAX_INT64, le=MAX_INT64, description="The fewest available primary brokers that suffice."
    )


class BrokerGroups(BaseModel):
    """The groups that brokers use for every namespace without an affinity of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    primary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="`bookkeeperClientIsolationGroups`."
    )
    secondary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="`bookkeeperClientSecondaryIsolationGroups`."
    )

    def __bool__(self) -> bool:
        """Whether it names any group."""
        return bool(self.primary or self.secondary)


class BookieAffinity(Reading):
    """A complete reading of the namespaces and their affinity."""

    event_type: ClassVar[str] = "headgate.bookie-affinity.v1"

    namespaces: dict[NamespaceName, NamespaceAffinity] = Field(
        default_factory=dict,
        max_length=MAX_NAMESPACES,
        description="By `tenant/namespace`; those without affinity may be left out.",
    )
    broker_groups: BrokerGroups | None = Field(
        default=None,
        description="The groups for namespaces without an affinity, by a broker's configuration; null: not read. If it "
        "names any, `namespaces` lists all namespaces.",
    )
    broker_policies: tuple[BrokerIsolation, ...] | None = Field(
        default=None, max_length=10_000, description="The policies that assign brokers to namespaces; null: not read."
    )
