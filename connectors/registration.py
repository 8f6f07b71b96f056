"""A policy's I/O: settings of a watched cluster, collectors, actuators, metrics.

Headgate's own policies declare it in `by_policy`, those of installed packages in their package.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ConfigDict, Field

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.part import Part
from connectors.policy_detail import DetailKind
from connectors.policy_view import PolicyView
from connectors.poll_metrics import PollMetrics
from connectors.probe import Probe
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.connection import PulsarAdmin
from connectors.recalled import Kind, Recall, nothing_recalled
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.session import ZooKeeperSession
from policies.decisions import Decision
from policies.errors import UserError
from policies.observations import Reading
from policies.policy import PolicyKind
from policies.registry import AUDIT
from policies.units import format_duration

Setting = TypeVar("Setting", bound=BaseModel)


class ClusterSources(BaseModel):
    """One watched cluster: how it is reached. Policies add what is read there, and how decisions are carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    kafka: WatchedKafka | None = Field(default=None, description="A Kafka cluster whose log dirs are read.")
    zookeeper: ZooKeeperConnection | None = Field(
        default=None, description="The ZooKeeper with a cluster's BookKeeper metadata and Pulsar's policies."
    )
    pulsar: PulsarAdmin | None = Field(default=None, description="The admin REST of a Pulsar cluster's brokers.")

    def setting(self, kind: type[Setting]) -> Setting | None:
        """A policy's own setting of this cluster, by its model; None where it is not set."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if type(value) is kind), None)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something in the settings that is allowed, and hardly what was meant."""

    place: tuple[str, ...]
    """The path of the setting."""
    sentence: str
    """What follows from it, and what to set instead; its place goes before."""


def too_seldom(place: tuple[str, ...], interval: timedelta, policy: str, validity: timedelta) -> Doubt:
    """The doubt about an interval at which each reading has gone stale before the next one comes."""
    return Doubt(
        place,
        f"{format_duration(interval)} is not shorter than policies.{policy}.validity ({format_duration(validity)}): "
        "each reading is too old before the next one comes; make it a third of that, or less",
    )


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """A policy's own setting of a watched cluster."""

    model: type[BaseModel]
    description: str
    needs: tuple[str, ...] = ()
    """What must be set of the cluster besides, as a path: ``zookeeper.servers``."""


class Clients(Protocol):
    """Connections to a watched cluster that its parts share."""

    def zookeeper(self, cluster: str) -> ZooKeeperSession | None:
        """Its ZooKeeper session; None where its ZooKeeper is not named."""
        ...

    def pulsar(self, cluster: str) -> AdminApi | None:
        """Its admin client; None where its REST is not named."""
        ...


@dataclass(frozen=True)
class CollectorContext:
    """What the collectors of one cluster are made of."""

    name: str
    cluster: ClusterSources
    sink: Callable[[type[Reading], str], Callable[[Reading], None]]
    """From a kind of reading and its source to where such readings go."""
    metrics: PollMetrics
    clients: Clients
    recall: Callable[[type[Kind]], Recall[Kind]] = lambda _: nothing_recalled
    """From a kind of reading to the last of them before this start."""
    settings: Any = None
    """The policy's block, as it is in force for this cluster."""


@dataclass(frozen=True)
class ProbeContext:
    """What questions about one cluster are made of."""

    name: str
    cluster: ClusterSources
    settings: Any
    """The policy's block, as it is in force for this cluster."""
    clients: Clients


@dataclass(frozen=True)
class ActuatorContext:
    """What a policy's actuators are made of."""

    clusters: Mapping[str, ClusterSources]
    settings: Any
    """The policy's block."""
    loop: KafkaConnection
    """The loop's own Kafka."""
    topic: Callable[[str], str]
    """From a topic without prefix to its full name."""
    publish: Callable[[str, str, bytes], None]
    """Hands a record (topic, key, value) over to the loop's Kafka; does not block."""
    registry: CollectorRegistry
    clients: Clients
    jars: Callable[[str], Sequence[Path]]
    """The jars of a group such as ``bookkeeper``, fetched if need be."""
    java: Callable[[], Path]
    data_dir: Callable[[], Path]
    """The data folder, made if need be."""
    elsewhere: frozenset[str] = frozenset()
    """Clusters whose decisions other processes carry out."""
    may_act: Callable[[str], bool] = lambda _: True
    """Whether a cluster is this process's to act on, and no other's: to be asked before each act."""

    def loop_topics(self, decided: type[Decision]) -> LoopTopics:
        """Where decisions of a kind are, and where what was done about them is said."""
        return LoopTopics(self.loop, self.topic(decided.topic), self.topic(AUDIT), self.may_act)


def _nothing_wrong(cluster: ClusterSources) -> Iterator[str]:  # noqa: ARG001 - by default its settings go together
    yield from ()


def _as_they_are(settings: Any, clusters: Mapping[str, ClusterSources]) -> Any:  # noqa: ARG001 - by default
    return settings


def _no_collectors(context: CollectorContext) -> Iterator[Part]:  # noqa: ARG001 - by default nothing is read
    yield from ()


def _whatever_it_is(settings: Any, name: str, cluster: ClusterSources) -> bool:  # noqa: ARG001 - by default
    return True


def _no_actuators(context: ActuatorContext) -> Iterator[Part]:  # noqa: ARG001 - by default nothing is carried out
    yield from ()


def _no_probes(context: ProbeContext) -> Iterator[Probe]:  # noqa: ARG001 - by default nothing is asked
    yield from ()


def _no_remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:  # noqa: ARG001 - by default none is known
    yield from ()


def _no_doubts(settings: Any, clusters: Mapping[str, ClusterSources]) -> Iterator[Doubt]:  # noqa: ARG001 - by default
    yield from ()


@dataclass(frozen=True)
class PolicyConnectors:
    """A policy's part with I/O; what is left out it does not have."""

    cluster_settings: Mapping[str, ClusterSetting] = field(default_factory=dict)
    """By name, in `clusters.<name>`."""
    mistakes: Callable[[ClusterSources], Iterator[str]] = _nothing_wrong
    """What in the settings of a cluster does not go together, one sentence each."""
    doubts: Callable[[Any, Mapping[str, ClusterSources]], Iterator[Doubt]] = _no_doubts
    """From the policy's block and the watched clusters to what is allowed, and hardly what was meant."""
    informed: Callable[[Any, Mapping[str, ClusterSources]], Any] = _as_they_are
    """From the policy's block and the watched clusters to the block with what these settings say of it."""
    collectors: Callable[[CollectorContext], Iterator[Part]] = _no_collectors
    actuators: Callable[[ActuatorContext], Iterator[Part]] = _no_actuators
    """They are made for the clusters of a process's share, and anew when these change."""
    acts_on: Callable[[Any, str, ClusterSources], bool] = _whatever_it_is
    """From the policy's block, a cluster's name and what is set of it to whether its actuators have to do with it."""
    probes: Callable[[ProbeContext], Iterator[Probe]] = _no_probes
    """What `headgate doctor` asks of a cluster besides running its collectors once: whether its actuators may act."""
    remedies: Callable[[ClusterSources, Reading], Iterator[str]] = _no_remedies
    """What a person can do about a reading that is not `ok`."""
    view: Callable[[Any], PolicyView] | None = None
    """From the policy's block to its metrics; None: it has only those that all policies have."""
    detail: DetailKind | None = None
    """Its own part of the status page; None: its sentences and its decisions' numbers are shown."""
    metrics: Mapping[str, Callable[[CollectorRegistry], object]] = field(default_factory=dict)
    """Of its actuators, for the references: from ``The quota actuator`` to what registers its metrics."""


def acts_on(connectors: PolicyConnectors, settings: Any, name: str, cluster: ClusterSources) -> bool:
    """Whether decisions of a policy about a cluster are carried out."""
    return connectors.actuators is not _no_actuators and connectors.acts_on(settings, name, cluster)


@cache
def _resolved(name: str, place: str) -> PolicyConnectors:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"policy {name}: connectors = {place!r} cannot be loaded ({error}); it must be module:attribute"
        ) from error
    if not isinstance(found, PolicyConnectors):
        raise UserError(
            f"policy {name}: {place} must be a connectors.registration.PolicyConnectors, "
            f"and is a {type(found).__name__}"
        )
    return found


def connectors_of(kind: PolicyKind) -> PolicyConnectors:
    """A policy's part with I/O.

    Raises:
        UserError: what the registration names cannot be loaded, or is something else.
    """
    return PolicyConnectors() if kind.connectors is None else _resolved(kind.name, kind.connectors)
