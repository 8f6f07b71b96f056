"""Reads the registered bookies, their groups, and the bookie affinity of namespaces from ZooKeeper.

Groups, affinity and namespace isolation policies are documents of the same form in Pulsar's admin REST API.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from connectors.collection import DETAIL_LENGTH, parse_document
from connectors.zookeeper.server_admin import session_name
from connectors.zookeeper.session import Reader, UnreadError
from policies.bookie_readings import (
    MAX_ENSEMBLE,
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    BrokerGroups,
    BrokerIsolation,
    NamespaceAffinity,
    RackInfo,
)
from policies.observations import Outcome
from policies.units import UserError, from_millis

Hint = Callable[[Any], None]
"""A kazoo watch: something may have changed. It must not block."""

READ_ONLY = "readonly"
"""The child of `available` that is no bookie: the folder of the read-only ones."""
LEDGERS_ELSEWHERE = "set bookies.ledgers, or ledgers_root, to the brokers' bookkeeperMetadataServiceUri"


def none_as_empty(value: object) -> object:
    """Replace the null that Pulsar writes for an empty map."""
    return {} if value is None else value


_Members = Annotated[dict[str, Annotated[RackInfo, BeforeValidator(none_as_empty)]], BeforeValidator(none_as_empty)]
RackGroups = dict[str, _Members]
"""Groups of bookies, each with its members' racks, as Pulsar writes them."""

_GROUPS: TypeAdapter[dict[str, dict[str, RackInfo]]] = TypeAdapter(RackGroups)


def read_bookies(reader: Reader, cluster: str, ledgers_root: str, hint: Hint) -> Bookies:
    """Read the whole registration tree, and leave watches on it. A bookie that goes meanwhile is left out.

    Raises:
        UserError: the tree has no metadata of BookKeeper.
        UnreadError: a node cannot be read.
    """
    available, cookies = f"{ledgers_root}/available", f"{ledgers_root}/cookies"
    read_only = f"{available}/{READ_ONLY}"

    def children(path: str) -> Any:
        return reader.client.get_children_async(path, watch=hint)

    names = dict(reader.read_all(children, (available, read_only, cookies)))
    if names[available] is None:
        raise UserError(f"there is no node {reader.client.chroot}{available}: {LEDGERS_ELSEWHERE}")
    writable = [f"{available}/{name}" for name in sorted(names[available]) if name != READ_ONLY]
    others = [f"{read_only}/{name}" for name in sorted(names[read_only] or ())]
    stats = dict(reader.read_all(reader.client.exists_async, [*writable, *others]))
    return Bookies(
        cluster=cluster,
        outcome=Outcome.OK,
        writable=_registrations(writable, stats),
        read_only=_registrations(others, stats),
        known=tuple(sorted(names[cookies] or ())),
    )


def _registrations(paths: list[str], stats: dict[str, Any]) -> tuple[BookieRegistration, ...]:
    found = ((path.rpartition("/")[2], stats[path]) for path in paths)
    return tuple(parse_registration(bookie, stat) for bookie, stat in found if stat is not None)


def parse_registration(bookie: str, stat: Any) -> BookieRegistration:
    """Return a bookie's registration from the stat of its node."""
    session = session_name(stat.ephemeralOwner) if stat.ephemeralOwner else None
    return BookieRegistration(bookie=bookie, session=session, czxid=stat.czxid, registered_at=from_millis(stat.ctime))


def read_racks(reader: Reader, cluster: str, path: str, hint: Hint) -> BookieRacks:
    """Read the groups of bookies, and leave a watch on their node. Raises UserError if it cannot be parsed."""
    # `get` leaves no watch on a missing node, `exists` does.
    watched = reader.read(lambda node: reader.client.exists_async(node, watch=hint), path)
    answer = None if watched is None else reader.read(reader.client.get_async, path)
    if answer is None:
        detail = f"there is no node {reader.client.chroot}{path}"
        return BookieRacks(cluster=cluster, outcome=Outcome.ABSENT, detail=detail)
    try:
        groups = parse_groups(answer[0])
    except ValueError as error:
        raise UserError(f"{reader.client.chroot}{path} cannot be parsed: {error}") from None
    return BookieRacks(cluster=cluster, outcome=Outcome.OK, groups=groups)


def parse_groups(data: bytes) -> dict[str, dict[str, RackInfo]]:
    """Return the groups of `/bookies` with their members; raises ValueError if they cannot be parsed."""
    return parse_document(_GROUPS, data) if data.strip() else {}


# The affinity of namespaces, by Pulsar's policies.

LOCAL_POLICIES = "/admin/local-policies"
POLICIES = "/admin/policies"
CLUSTERS = "/admin/clusters"
ISOLATION_POLICIES = "namespaceIsolationPolicies"

Value = TypeVar("Value")


def split_groups(value: object) -> Any:
    """Split a comma-separated text, without empty entries and repetitions; anything else but None stays as it is.

    Blanks are part of a name, as for brokers: in `a, b` they see the group ` b`, which does not exist and must show.
    """
    if value is None or isinstance(value, str):
        return tuple(dict.fromkeys(group for group in (value or "").split(",") if group))
    return value


def _parse_number(value: object) -> object:
    if isinstance(value, str):  # Pulsar writes numbers as text here
        return int(value) if value.strip().lstrip("-").isdigit() else None
    return value


def _limit_count(value: object) -> object:
    """Pulsar writes 0 if its brokers' default applies. No cluster has more bookies than the greatest ensemble."""
    if isinstance(value, int):
        return min(value, MAX_ENSEMBLE) if value > 0 else None
    return value


_Groups = Annotated[tuple[str, ...], BeforeValidator(split_groups)]
_Count = Annotated[int | None, BeforeValidator(_limit_count)]
_Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda value: () if value is None else value)]


class _Document(BaseModel):
    """A document of Pulsar; fields that are not needed are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class AffinityDocument(_Document):
    """The bookie affinity in a namespace's local policies."""

    primary: _Groups = Field(default=(), alias="bookkeeperAffinityGroupPrimary")
    secondary: _Groups = Field(default=(), alias="bookkeeperAffinityGroupSecondary")
    strict: bool | None = None


class _LocalPolicies(_Document):
    affinity: AffinityDocument | None = Field(default=None, alias="bookieAffinityGroup")


class PersistenceDocument(_Document):
    """The ensemble and quorums in a namespace's policies."""

    ensemble_size: _Count = Field(default=None, alias="bookkeeperEnsemble")
    write_quorum: _Count = Field(default=None, alias="bookkeeperWriteQuorum")
    ack_quorum: _Count = Field(default=None, alias="bookkeeperAckQuorum")


class _Policies(_Document):
    persistence: PersistenceDocument | None = None


class _Parameters(_Document):
    min_limit: Annotated[int | None, BeforeValidator(_parse_number)] = None


class _Failover(_Document):
    parameters: Annotated[_Parameters, BeforeValidator(lambda value: value or {})] = _Parameters()


class IsolationPolicyDocument(_Document):
    """One namespace isolation policy."""

    namespaces: _Patterns = ()
    primary: _Patterns = ()
    secondary: _Patterns = ()
    auto_failover_policy: _Failover | None = Field(default=None)


IsolationPolicyDocuments = dict[str, IsolationPolicyDocument]
"""A Pulsar cluster's policies by name."""

_LOCAL = TypeAdapter(_LocalPolicies)
_POLICIES = TypeAdapter(_Policies)
ISOLATION: TypeAdapter[IsolationPolicyDocuments] = TypeAdapter(
    Annotated[IsolationPolicyDocuments, BeforeValidator(none_as_empty)]
)


def parse_affinity(data: bytes) -> AffinityDocument | None:
    """Return a namespace's affinity from its local policies; raises ValueError if they cannot be parsed."""
    affinity = parse_document(_LOCAL, data).affinity if data.strip() else None
    return affinity if affinity and (affinity.primary or affinity.secondary) else None


def parse_persistence(data: bytes) -> PersistenceDocument | None:
    """Return a namespace's persistence from its policies; raises ValueError if they cannot be parsed."""
    return parse_document(_POLICIES, data).persistence if data.strip() else None


class GoodNodes:
    """The last good value of each node. One that cannot be parsed any more keeps it, and spoils no other."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._problems: dict[str, str] = {}

    def read(
        self, reader: Reader, paths: Iterable[str], parse: Callable[[bytes], Value]
    ) -> Iterator[tuple[str, Value, int]]:
        """Yield each existing node's path, parsed value and number of children.

        Raises UserError for a node that never could be parsed, or UnreadError.
        """
        for path, answer in reader.read_all(reader.client.get_async, paths):
            self._problems.pop(path, None)
            if answer is None:
                self._values.pop(path, None)
                continue
            try:
                self._values[path] = parse(answer[0])
            except ValueError as error:
                problem = f"{reader.client.chroot}{path} cannot be parsed: {error}"
                if path not in self._values:
                    raise UserError(problem) from None
                self._problems[path] = problem
            yield path, self._values[path], answer[1].numChildren

    def describe(self) -> str | None:
        """Name the nodes whose last good value stands."""
        found = "; ".join(problem for _, problem in sorted(self._problems.items()))
        return f"the last good values stand: {found}"[:DETAIL_LENGTH] if found else None


def read_affinity(
    reader: Reader,
    cluster: str,
    nodes: GoodNodes,
    broker_groups: BrokerGroups | None = None,
    store: Reader | None = None,
) -> BookieAffinity:
    """Read the affinity of all namespaces of a cluster; those without are omitted.

    If the tree of local policies does not exist, the outcome is `absent`. If brokers have groups of their own, all
    namespaces are listed, because these groups hold for them.

    Args:
        nodes: those of the readings before.
        store: reads the configuration store, if it is another ZooKeeper.

    Raises:
        UserError: a node never could be parsed, or the namespaces' policies are not here: their ensembles are unknown.
        UnreadError: a node cannot be read, so no namespace can be reported.
    """
    store = store or reader
    tenants = reader.read(reader.client.get_children_async, LOCAL_POLICIES)
    if tenants is None:
        detail = f"there is no node {reader.client.chroot}{LOCAL_POLICIES}"
        return BookieAffinity(cluster=cluster, outcome=Outcome.ABSENT, detail=detail, broker_groups=broker_groups)
    affinities = _read_affinities(reader, nodes, [f"{LOCAL_POLICIES}/{name}" for name in tenants])
    isolated = {path.removeprefix(f"{LOCAL_POLICIES}/"): affinity for path, affinity in affinities.items()}
    tenants = store.read(store.client.get_children_async, POLICIES)
    if broker_groups:
        found = _children(store, (f"{POLICIES}/{name}" for name in tenants or ()))
        every = (path.removeprefix(f"{POLICIES}/") for path in found)
        unaffine = AffinityDocument()
        isolated = {**dict.fromkeys(every, unaffine), **{n: a or unaffine for n, a in isolated.items()}}
    paths = [f"{POLICIES}/{name}" for name, affinity in isolated.items() if affinity is not None]
    persistences = {path: value for path, value, _ in nodes.read(store, paths, parse_persistence)}
    if tenants is None or (paths and not persistences):
        missing = store.client.chroot + (paths[0] if tenants is not None else POLICIES)
        setting = f"clusters.{cluster}.configuration_store to the brokers' configurationMetadataStoreUrl"
        raise UserError(f"ensembles are unknown, there is no node {missing}: set {setting}")
    namespaces = {
        name: namespace_affinity(affinity, persistences.get(path), has_policies=path in persistences)
        for name, affinity in sorted(isolated.items())
        if affinity is not None
        for path in (f"{POLICIES}/{name}",)
    }
    return BookieAffinity(
        cluster=cluster,
        outcome=Outcome.OK,
        detail=nodes.describe(),
        namespaces=namespaces,
        broker_groups=broker_groups,
        broker_policies=_read_broker_policies(store, nodes),
    )


def _read_broker_policies(reader: Reader, known: GoodNodes) -> tuple[BrokerIsolation, ...] | None:
    """Return None if they cannot be read; they place no bookie, so the affinity is published without them."""
    try:
        paths = [f"{path}/{ISOLATION_POLICIES}" for path in _children(reader, [CLUSTERS])]
        nodes = list(known.read(reader, paths, lambda data: parse_document(ISOLATION, data.strip() or b"{}")))
    except (UnreadError, UserError):
        return None
    policies = ((path.split("/")[-2], documents) for path, documents, _ in nodes)
    return tuple(each for cluster, documents in sorted(policies) for each in broker_isolations(cluster, documents))


def _read_affinities(reader: Reader, known: GoodNodes, tenants: list[str]) -> dict[str, AffinityDocument | None]:
    nodes = list(known.read(reader, _children(reader, tenants), parse_affinity))
    # Old namespaces (tenant/cluster/namespace) are one level deeper: here a node with children is their cluster.
    clusters = [path for path, _, children in nodes if children]
    nodes += known.read(reader, _children(reader, clusters), parse_affinity)
    return {path: affinity for path, affinity, _ in nodes}


def broker_isolations(pulsar_cluster: str, policies: IsolationPolicyDocuments) -> Iterator[BrokerIsolation]:
    """Yield the policies for a reading, in their order: brokers use the first that matches a namespace."""
    for name, policy in policies.items():
        fields = policy.model_dump(include={"namespaces", "primary", "secondary"})
        if policy.auto_failover_policy is not None:
            fields["min_available"] = policy.auto_failover_policy.parameters.min_limit
        yield BrokerIsolation(pulsar_cluster=pulsar_cluster, name=name, **fields)


def _children(reader: Reader, paths: Iterable[str]) -> list[str]:
    answers = reader.read_all(reader.client.get_children_async, paths)
    return [f"{path}/{name}" for path, names in answers for name in names or ()]


def namespace_affinity(
    affinity: AffinityDocument, persistence: PersistenceDocument | None, *, has_policies: bool = True
) -> NamespaceAffinity:
    """Return a namespace's part of the reading; without its policies, its ensemble is not known."""
    parts = affinity.model_dump() | (persistence or PersistenceDocument()).model_dump()
    return NamespaceAffinity(**parts, has_policies=has_policies)
