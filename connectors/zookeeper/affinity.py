"""Reads bookie affinity (which groups each namespace may use) from Pulsar's policies in ZooKeeper."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from connectors.collection.read_errors import DETAIL_LENGTH, first_problem
from connectors.zookeeper.outcomes import UnreadError
from connectors.zookeeper.pulsar_policies import broker_isolations, parse_isolation_policies
from connectors.zookeeper.tree import ChangedNodes, ParsedNode, Reader
from policies.isolation.readings import BookieAffinity, BrokerIsolation, NamespaceAffinity
from policies.isolation.settings import MAX_ENSEMBLE
from policies.observations import Outcome

LOCAL_POLICIES = "/admin/local-policies"
POLICIES = "/admin/policies"
CLUSTERS = "/admin/clusters"
ISOLATION_POLICIES = "namespaceIsolationPolicies"


def _listed(value: object) -> object:
    """A comma-separated text as a tuple, without empty entries and repetitions.

    Blanks are part of a name, as brokers have it: of `a, b` they know no group ` b`, and that must show.
    """
    if value is None:
        return ()
    if not isinstance(value, str):
        return value
    return tuple(dict.fromkeys(part for part in value.split(",") if part))


def _positive(value: object) -> object:
    # Pulsar writes 0 for what its brokers shall decide.
    return None if isinstance(value, int) and value <= 0 else value


_Groups = Annotated[tuple[str, ...], BeforeValidator(_listed)]
_Count = Annotated[int | None, Field(le=MAX_ENSEMBLE), BeforeValidator(_positive)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AffinityDocument(_Document):
    """The part of a namespace's local policies that matters here."""

    primary: _Groups = Field(default=(), alias="bookkeeperAffinityGroupPrimary")
    secondary: _Groups = Field(default=(), alias="bookkeeperAffinityGroupSecondary")
    strict: bool | None = None


class _LocalPolicies(_Document):
    affinity: AffinityDocument | None = Field(default=None, alias="bookieAffinityGroup")


class PersistenceDocument(_Document):
    """The part of a namespace's policies that matters here."""

    ensemble_size: _Count = Field(default=None, alias="bookkeeperEnsemble")
    write_quorum: _Count = Field(default=None, alias="bookkeeperWriteQuorum")
    ack_quorum: _Count = Field(default=None, alias="bookkeeperAckQuorum")


class _Policies(_Document):
    persistence: PersistenceDocument | None = None


def parse_affinity(data: bytes) -> AffinityDocument | None:
    """A namespace's affinity from its local policies; None when they have none.

    Raises:
        ValueError: the bytes are no local policies; the message tells where.
    """
    if not data.strip():
        return None
    try:
        affinity = _LocalPolicies.model_validate_json(data).affinity
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    return affinity if affinity and (affinity.primary or affinity.secondary) else None


def parse_persistence(data: bytes) -> PersistenceDocument | None:
    """A namespace's persistence from its policies; None when they have none.

    Raises:
        ValueError: the bytes are no policies; the message tells where.
    """
    if not data.strip():
        return None
    try:
        return _Policies.model_validate_json(data).persistence
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


class AffinityTree:
    """The affinity of all namespaces of a cluster, over many readings; only what has changed is read again.

    Namespaces without affinity are left out, and their persistence is not read. Of a namespace whose policies cannot be
    parsed the last good ones stand, and the reading's detail names it.
    """

    def __init__(self) -> None:
        self._affinities = ChangedNodes(parse_affinity)
        self._persistences = ChangedNodes(parse_persistence)
        self._broker_policies = ChangedNodes(parse_isolation_policies)

    def read(self, reader: Reader, cluster: str) -> BookieAffinity:
        """Read what has changed; trees that do not exist are empty.

        Raises:
            UnreadError: some node cannot be read: then nothing is said of any namespace.
        """
        affinities = self._local_policies(reader)
        isolated = {path.removeprefix(f"{LOCAL_POLICIES}/"): node.value for path, node in affinities.items()}
        names = [name for name, affinity in isolated.items() if affinity is not None]
        persistences = self._persistences.refresh(reader, [f"{POLICIES}/{name}" for name in names])
        self._persistences.forget_others(persistences)
        namespaces = {
            name: _namespace(affinity, persistences.get(f"{POLICIES}/{name}"))
            for name, affinity in sorted(isolated.items())
            if affinity is not None
        }
        detail = _problems({**affinities, **persistences})
        return BookieAffinity(
            cluster=cluster,
            outcome=Outcome.OK,
            detail=detail,
            namespaces=namespaces,
            broker_policies=self._read_broker_policies(reader),
        )

    def _read_broker_policies(self, reader: Reader) -> tuple[BrokerIsolation, ...] | None:
        """None when they cannot be read: no bookie is placed by them, so nothing else waits for them."""
        try:
            clusters = _below(reader, [CLUSTERS])
            nodes = self._broker_policies.refresh(reader, [f"{path}/{ISOLATION_POLICIES}" for path in clusters])
        except UnreadError:
            return None
        self._broker_policies.forget_others(nodes)
        return tuple(
            policy
            for path, node in sorted(nodes.items())
            for policy in broker_isolations(path.split("/")[-2], node.value or {})
        )

    def _local_policies(self, reader: Reader) -> dict[str, ParsedNode[AffinityDocument]]:
        tenants = _below(reader, [LOCAL_POLICIES])
        nodes = self._affinities.refresh(reader, _below(reader, tenants))
        # Namespaces of the first kind, tenant/cluster/namespace, lie one deeper; what has children is their cluster.
        clusters = [path for path, node in nodes.items() if node.children]
        if clusters:
            nodes |= self._affinities.refresh(reader, _below(reader, clusters))
        self._affinities.forget_others(nodes)
        return nodes


def _below(reader: Reader, paths: Iterable[str]) -> list[str]:
    answers = reader.each(reader.client.get_children_async, paths)
    return [f"{path}/{name}" for path, names in answers for name in names or ()]


def _namespace(affinity: AffinityDocument, policies: ParsedNode[PersistenceDocument] | None) -> NamespaceAffinity:
    persistence = (policies.value if policies is not None else None) or PersistenceDocument()
    return NamespaceAffinity(
        primary=affinity.primary,
        secondary=affinity.secondary,
        strict=affinity.strict,
        ensemble_size=persistence.ensemble_size,
        write_quorum=persistence.write_quorum,
        ack_quorum=persistence.ack_quorum,
    )


def _problems(nodes: Mapping[str, ParsedNode[AffinityDocument] | ParsedNode[PersistenceDocument]]) -> str | None:
    problems = sorted(f"{path}: {node.problem}" for path, node in nodes.items() if node.problem is not None)
    if not problems:
        return None
    count = f"{len(problems)} {'node' if len(problems) == 1 else 'nodes'}"
    return f"{count} cannot be parsed, the last good values stand: {'; '.join(problems)}"[:DETAIL_LENGTH]
