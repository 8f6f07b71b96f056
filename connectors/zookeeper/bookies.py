"""Reads bookie affinity and namespace isolation policies from Pulsar's policies in ZooKeeper.

The documents have the same form in Pulsar's admin REST API.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from connectors.collection import DETAIL_LENGTH, parse_document
from connectors.zookeeper.session import Reader, UnreadError
from policies.bookie_readings import MAX_ENSEMBLE, BookieAffinity, BrokerGroups, BrokerIsolation, NamespaceAffinity
from policies.observations import Outcome
from policies.units import UserError, counted

LOCAL_POLICIES = "/admin/local-policies"
POLICIES = "/admin/policies"
CLUSTERS = "/admin/clusters"
ISOLATION_POLICIES = "namespaceIsolationPolicies"


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ParsedNode(Generic[Value]):
    """A node's value."""

    children: int
    value: Value | None
    """If the present value cannot be parsed, the last good one or None."""
    problem: str | None = None


def read_parsed(
    reader: Reader, paths: Iterable[str], parse: Callable[[bytes], Value | None], last: Mapping[str, Any]
) -> dict[str, ParsedNode[Value]]:
    """Return the existing nodes at these paths; raises UnreadError.

    A value of the `last` reading counts where `parse` raises ValueError for the present one.
    """
    nodes: dict[str, ParsedNode[Value]] = {}
    for path, answer in reader.read_all(reader.client.get_async, paths):
        if answer is not None:
            data, stat = answer
            try:
                nodes[path] = ParsedNode(stat.numChildren, parse(data))
            except ValueError as error:
                nodes[path] = ParsedNode(stat.numChildren, last.get(path), str(error))
    return nodes


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


_Groups = Annotated[tuple[str, ...], BeforeValidator(split_groups)]
# Pulsar writes 0 if its brokers' default applies.
_Count = Annotated[
    int | None,
    Field(le=MAX_ENSEMBLE),
    BeforeValidator(lambda value: None if isinstance(value, int) and value <= 0 else value),
]
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
_ISOLATION: TypeAdapter[IsolationPolicyDocuments | None] = TypeAdapter(IsolationPolicyDocuments | None)


def parse_affinity(data: bytes) -> AffinityDocument | None:
    """Return a namespace's affinity from its local policies; raises ValueError if they cannot be parsed."""
    affinity = parse_document(_LOCAL, data).affinity if data.strip() else None
    return affinity if affinity and (affinity.primary or affinity.secondary) else None


def parse_persistence(data: bytes) -> PersistenceDocument | None:
    """Return a namespace's persistence from its policies; raises ValueError if they cannot be parsed."""
    return parse_document(_POLICIES, data).persistence if data.strip() else None


class AffinityTree:
    """The affinity of all namespaces of a cluster; those without are omitted.

    If a namespace's policies cannot be parsed, the last good ones count, and the reading's detail names the node.
    """

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        """The affinities and persistences of the last reading that succeeded, by path."""
        self._broker_policies: dict[str, IsolationPolicyDocuments | None] = {}

    def read(
        self, reader: Reader, cluster: str, broker_groups: BrokerGroups | None = None, store: Reader | None = None
    ) -> BookieAffinity:
        """Read all nodes; `store` reads the configuration store, if it is another ZooKeeper.

        If the tree of local policies does not exist, the outcome is `absent`. If brokers have groups of their own, all
        namespaces are listed, because these groups hold for them.

        Raises:
            UserError: the namespaces' policies are not here, so their ensembles are unknown.
            UnreadError: a node cannot be read, so no namespace can be reported.
        """
        store = store or reader
        tenants = reader.read(reader.client.get_children_async, LOCAL_POLICIES)
        if tenants is None:
            detail = f"there is no node {reader.client.chroot}{LOCAL_POLICIES}"
            return BookieAffinity(cluster=cluster, outcome=Outcome.ABSENT, detail=detail, broker_groups=broker_groups)
        affinities = self._read_affinities(reader, [f"{LOCAL_POLICIES}/{name}" for name in tenants])
        isolated = {path.removeprefix(f"{LOCAL_POLICIES}/"): node.value for path, node in affinities.items()}
        tenants = store.read(store.client.get_children_async, POLICIES)
        if broker_groups:
            found = _children(store, (f"{POLICIES}/{name}" for name in tenants or ()))
            every = (path.removeprefix(f"{POLICIES}/") for path in found)
            unaffine = AffinityDocument()
            isolated = {**dict.fromkeys(every, unaffine), **{n: a or unaffine for n, a in isolated.items()}}
        paths = [f"{POLICIES}/{name}" for name, affinity in isolated.items() if affinity is not None]
        persistences = read_parsed(store, paths, parse_persistence, self._last)
        if tenants is None or (paths and not persistences):
            missing = store.client.chroot + (paths[0] if tenants is not None else POLICIES)
            setting = f"clusters.{cluster}.configuration_store to the brokers' configurationMetadataStoreUrl"
            raise UserError(f"ensembles are unknown, there is no node {missing}: set {setting}")
        namespaces = {
            name: namespace_affinity(affinity, node.value if node else None, has_policies=node is not None)
            for name, affinity in sorted(isolated.items())
            if affinity is not None
            for node in (persistences.get(f"{POLICIES}/{name}"),)
        }
        nodes: dict[str, ParsedNode[Any]] = {**affinities, **persistences}
        self._last = {path: node.value for path, node in nodes.items()}
        return BookieAffinity(
            cluster=cluster,
            outcome=Outcome.OK,
            detail=_problems(nodes),
            namespaces=namespaces,
            broker_groups=broker_groups,
            broker_policies=self._read_broker_policies(store),
        )

    def _read_broker_policies(self, reader: Reader) -> tuple[BrokerIsolation, ...] | None:
        """Return None if they cannot be read; they place no bookie, so the affinity is published without them."""
        try:
            paths = [f"{path}/{ISOLATION_POLICIES}" for path in _children(reader, [CLUSTERS])]
            nodes = read_parsed(
                reader, paths, lambda data: parse_document(_ISOLATION, data.strip() or b"null"), self._broker_policies
            )
        except UnreadError:
            return None
        self._broker_policies = found = {path: node.value for path, node in sorted(nodes.items())}
        return tuple(p for path, each in found.items() for p in broker_isolations(path.split("/")[-2], each or {}))

    def _read_affinities(self, reader: Reader, tenants: list[str]) -> dict[str, ParsedNode[AffinityDocument]]:
        nodes = read_parsed(reader, _children(reader, tenants), parse_affinity, self._last)
        # Old namespaces (tenant/cluster/namespace) are one level deeper: here a node with children is their cluster.
        clusters = [path for path, node in nodes.items() if node.children]
        return nodes | read_parsed(reader, _children(reader, clusters), parse_affinity, self._last)


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


def _problems(nodes: Mapping[str, ParsedNode[Any]]) -> str | None:
    problems = sorted(f"{path}: {node.problem}" for path, node in nodes.items() if node.problem is not None)
    what = f"{counted(len(problems), 'node')} cannot be parsed, the last good values stand: {'; '.join(problems)}"
    return what[:DETAIL_LENGTH] if problems else None
