"""Readings of the isolation policy: topic ``observed.bookies``, keyed by cluster."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from policies.isolation.rules import RuleSet
from policies.observations import Observed, Outcome, Reading
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
"""Of a group, or of a member of one: whatever stands in the znode."""
Pattern = Annotated[str, Field(max_length=4096)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=512)]


class BookieRegistration(BaseModel):
    """A bookie's ephemeral node: the same bookie with another (session, czxid) has joined again."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    bookie: BookieName = Field(description="Its id as registered: `host:port`, or any custom id.")
    session: str | None = Field(
        default=None, max_length=64, description="The ZooKeeper session that owns the node, as `0x…`."
    )
    czxid: int | None = Field(default=None, ge=0, le=MAX_INT64, description="The transaction that made the node.")
    registered_at: Instant | None = Field(
        default=None, description="When ZooKeeper made the node, by its own clock; null where the source cannot tell."
    )


class Bookies(Reading):
    """One whole reading of the registration tree."""

    event_type: ClassVar[str] = "headgate.bookies.v1"

    writable: tuple[BookieRegistration, ...] = Field(
        default=(), max_length=MAX_BOOKIES, description="Registered and taking new data."
    )
    read_only: tuple[BookieRegistration, ...] = Field(
        default=(), max_length=MAX_BOOKIES, description="Registered, and taking none."
    )
    known: tuple[BookieName, ...] = Field(
        default=(), max_length=2 * MAX_BOOKIES, description="Every bookie that ever joined (the cookies)."
    )


class RackInfo(BaseModel):
    """What is known of where a bookie stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rack: str | None = Field(default=None, max_length=4096, description="Its rack; an empty one or `/` is no rack.")
    hostname: str | None = Field(default=None, max_length=4096, description="Its host.")


def _no_info(value: object) -> object:
    return {} if value is None else value


class BookieRacks(Reading):
    """The groups of bookies, as the znode ``/bookies`` has them."""

    event_type: ClassVar[str] = "headgate.bookie-racks.v1"

    groups: (
        Annotated[
            dict[
                GroupName,
                Annotated[
                    dict[GroupName, Annotated[RackInfo, BeforeValidator(_no_info)]],
                    Field(max_length=MAX_BOOKIES),
                ],
            ],
            Field(max_length=MAX_GROUPS),
        ]
        | None
    ) = Field(default=None, description="Members by group; null when there is no znode `/bookies`.")


class NamespaceAffinity(Observed):
    """The groups a namespace may place its data on, and its persistence where its policies set it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    primary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Groups used first; `*` means every bookie."
    )
    secondary: tuple[GroupName, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Groups used when the primary ones do not suffice."
    )
    strict: bool | None = Field(
        default=None,
        description="Asked for: never bookies without a group; null: not said. No released Pulsar reads it.",
    )
    ensemble_size: int | None = Field(default=None, ge=1, le=MAX_ENSEMBLE, description="Bookies a ledger spreads over.")
    write_quorum: int | None = Field(default=None, ge=1, le=MAX_ENSEMBLE, description="Copies of each entry.")
    ack_quorum: int | None = Field(default=None, ge=0, le=MAX_ENSEMBLE, description="Copies a producer waits for.")


class BrokerIsolation(BaseModel):
    """One of Pulsar's namespace isolation policies: which brokers serve some namespaces. Shown, not decided on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pulsar_cluster: GroupName = Field(description="As Pulsar names the cluster whose brokers they are.")
    name: GroupName = Field(description="Of the policy.")
    namespaces: tuple[Pattern, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Regular expressions of `tenant/namespace`."
    )
    primary: tuple[Pattern, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Regular expressions of the brokers that serve them."
    )
    secondary: tuple[Pattern, ...] = Field(
        default=(), max_length=_MAX_GROUPS_NAMED, description="Likewise, of those that do when too few of these can."
    )
    min_available: int | None = Field(
        default=None, ge=-MAX_INT64, le=MAX_INT64, description="Fewer available primary brokers are too few."
    )


class BookieAffinity(Reading):
    """All namespaces that say where their data may lie, in one reading."""

    event_type: ClassVar[str] = "headgate.bookie-affinity.v1"

    namespaces: dict[NamespaceName, NamespaceAffinity] = Field(
        default_factory=dict,
        max_length=MAX_NAMESPACES,
        description="By `tenant/namespace`; those without affinity may be left out.",
    )
    broker_policies: tuple[BrokerIsolation, ...] | None = Field(
        default=None, max_length=10_000, description="Which brokers serve which namespaces; null: not read."
    )


class NamespacePromise(Reading):
    """What a person promises a namespace; it holds until another one is given."""

    event_type: ClassVar[str] = "headgate.namespace-promise.v1"

    outcome: Outcome = Field(default=Outcome.OK, description="Always `ok`: a command is not read, it is given.")
    namespace: NamespaceName = Field(description="`tenant/namespace`.")
    promise: RuleSet | None = Field(description="The rules that are promised; null: those of the settings again.")
    actor: str = Field(default="", max_length=249, description="Who promises.")
    reason: str = Field(default="", max_length=2000, description="Why, in the actor's words.")

    def subject(self) -> str:
        """``<cluster>/<namespace>``."""
        return f"{self.cluster}/{self.namespace}"
