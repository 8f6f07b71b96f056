"""A policy's I/O: settings of a watched cluster, collectors, actuators, metrics.

Each of Headgate's own policies declares it in `connectors.<policy>.registration`, an installed one in its own package.
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
from connectors.collection import Kind, PollMetrics, Probe, ReadingHistory, no_history
from connectors.component import Component
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.publisher import observations_to
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.rest import PulsarAdmin
from connectors.views import DetailKind, PolicyView
from connectors.zookeeper.session import ZooKeeperConnection, ZooKeeperSession
from policies.decisions import Decision
from policies.observations import Reading
from policies.policy import PolicyKind
from policies.registry import AUDIT, POLICIES, REPORTS, observed_topic
from policies.units import UserError, format_duration

Setting = TypeVar("Setting", bound=BaseModel)


class ClusterSources(BaseModel):
    """One watched cluster: how to reach it. Policies add settings for their collectors and actuators."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    kafka: WatchedKafka | None = Field(default=None, description="A Kafka cluster whose log dirs are read.")
    zookeeper: ZooKeeperConnection | None = Field(
        default=None, description="The ZooKeeper with a cluster's BookKeeper metadata and Pulsar's policies."
    )
    configuration_store: ZooKeeperConnection | None = Field(
        default=None,
        description="The ZooKeeper with the policies of tenants and namespaces (the brokers' "
        "configurationMetadataStoreUrl), if it is not `zookeeper`.",
    )
    pulsar: PulsarAdmin | None = Field(default=None, description="The admin REST of a Pulsar cluster's brokers.")

    def setting(self, kind: type[Setting]) -> Setting | None:
        """Return a policy's own setting of this cluster, by its model; None if it is not set."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if type(value) is kind), None)


@dataclass(frozen=True, slots=True)
class SettingsWarning:
    """A warning about a valid setting that is probably a mistake."""

    place: tuple[str, ...]
    """The path of the setting."""
    sentence: str
    """The consequence, and what to set instead; it is printed after `place`."""
    is_mistake: bool = False
    """Whether no effect of the setting can be intended, so `headgate check` refuses the file."""


def warn_of_interval(place: tuple[str, ...], interval: timedelta, policy: str, validity: timedelta) -> SettingsWarning:
    """Make the warning for an interval so long that each reading is stale before the next one comes."""
    return SettingsWarning(
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
    """Other settings of the cluster that it needs, as paths such as ``zookeeper.servers``."""


class Clients(Protocol):
    """Connections to a watched cluster that its collectors and actuators share."""

    def zookeeper(self, cluster: str, connection: ZooKeeperConnection | None = None) -> ZooKeeperSession | None:
        """The session of another ZooKeeper of the cluster, or of its own; None if the settings name none."""
        ...

    def pulsar(self, cluster: str) -> AdminApi | None:
        """The cluster's admin client; None if the settings name no admin REST API."""
        ...


@dataclass(frozen=True)
class CollectorContext:
    """What a policy gets to make the collectors of one cluster."""

    name: str
    cluster: ClusterSources
    sink: Callable[[type[Reading], str], Callable[[Reading], None]]
    """Given a kind of reading and its CloudEvents source, returns a function that publishes such readings."""
    metrics: PollMetrics
    clients: Clients
    history: Callable[[type[Kind]], ReadingHistory[Kind]] = lambda _: no_history
    """Given a kind of reading, returns the last ones from before this start."""
    settings: Any = None
    """The policy's block, as it is in force for this cluster."""


@dataclass(frozen=True)
class ProbeContext:
    """What a policy gets to make the doctor's checks of one cluster."""

    name: str
    cluster: ClusterSources
    settings: Any
    """The policy's block, as it is in force for this cluster."""
    clients: Clients
    loop: KafkaConnection | None = None
    """The loop's own Kafka; None if the start embeds one."""


@dataclass(frozen=True)
class ActuatorContext:
    """What a policy gets to make its actuators."""

    clusters: Mapping[str, ClusterSources]
    settings: Any
    """The policy's settings."""
    loop: KafkaConnection
    """The loop's own Kafka."""
    topic: Callable[[str], str]
    """Returns a topic's full name, given its name without the prefix."""
    publish: Callable[[str, str, bytes], None]
    """Publishes a record (topic, key, value) to the loop's Kafka, without blocking."""
    publish_answer: Callable[[str, str, bytes], None]
    """The same for the answer to an order, which is kept until Kafka takes it."""
    registry: CollectorRegistry
    clients: Clients
    jars: Callable[[str], Sequence[Path]]
    """Returns the jars of a group such as ``bookkeeper``; fetches them if necessary."""
    java: Callable[[], Path]
    data_dir: Callable[[], Path]
    """Returns the data folder; creates it if necessary."""
    elsewhere: frozenset[str] = frozenset()
    """Names of clusters whose decisions other processes carry out."""
    may_act: Callable[[str], bool] = lambda _: True
    """Whether this process, and no other, may act on a cluster; must be asked before each action."""

    def loop_topics(self, decided: type[Decision]) -> LoopTopics:
        """The topics of a kind of decision: where decisions are read, and where their outcomes are reported."""
        return LoopTopics(self.loop, self.topic(decided.topic), self.topic(AUDIT), self.may_act, self.topic(REPORTS))

    def sink(self, kind: type[Reading], source: str) -> Callable[[Reading], None]:
        """Return a function that publishes readings of a kind, given their CloudEvents source."""
        return observations_to(self.publish, self.topic(observed_topic(kind)), source)


def _yield_nothing(*_: Any) -> Iterator[Any]:
    yield from ()


@dataclass(frozen=True)
class PolicyConnectors:
    """A policy's I/O; every field is optional."""

    cluster_settings: Mapping[str, ClusterSetting] = field(default_factory=dict)
    """The policy's own settings in `clusters.<name>`, by key."""
    mistakes: Callable[[ClusterSources], Iterator[str]] = _yield_nothing
    """Yields contradictions in a cluster's settings, each as ``path: sentence``; they refuse the settings."""
    warnings: Callable[[Any, Mapping[str, ClusterSources]], Iterator[SettingsWarning]] = _yield_nothing
    """Yields warnings, given the policy's settings and the watched clusters."""
    informed: Callable[[Any, Mapping[str, ClusterSources]], Any] = lambda settings, _clusters: settings
    """Given the policy's settings and the watched clusters, returns the settings completed from the clusters'."""
    embedded: Callable[[Any, str], Any] = lambda settings, _cluster: settings
    """Given the policy's settings and the name of the Kafka cluster that `headgate up` starts, returns the settings
    with defaults for that cluster."""
    collectors: Callable[[CollectorContext], Iterator[Component]] = _yield_nothing
    actuators: Callable[[ActuatorContext], Iterator[Component]] = _yield_nothing
    """Makes the actuators of the clusters in this process's work partitions; called again when these change."""
    acts_on: Callable[[Any, str, ClusterSources], bool] = lambda *_: True
    """Whether the actuators act on a cluster, given the policy's settings, the cluster's name and its settings."""
    acts_if: str = ""
    """The settings that `acts_on` asks for, in words for an error."""
    refusals: Callable[[ActuatorContext], Iterator[str]] = _yield_nothing
    """Yields why watched clusters refuse the settings of the actuators; a cluster that does not answer does not."""
    release: Callable[[ActuatorContext, str | None], Iterator[str]] | None = None
    """Restores on all watched clusters the state from before Headgate, for `headgate act --release`, and yields a
    sentence for each. The string names what `--forget` leaves as it is."""
    services: str | None = None
    """Components that run beside the actuators, such as a REST API: ``module:attribute`` of a function that takes the
    application's settings and yields them."""
    probes: Callable[[ProbeContext], Iterator[Probe]] = _yield_nothing
    """Yields the checks of `headgate doctor` whether the actuators may act; collectors are checked by running them."""
    remedies: Callable[[ClusterSources, Reading], Iterator[str]] = _yield_nothing
    """Yields remedies for a reading that is not `ok`, for the doctor."""
    view: Callable[[Any], PolicyView] | None = None
    """Makes the policy's own metrics, given its settings; None: it has only the metrics of all policies."""
    detail: DetailKind | None = None
    """Its own section of the status page; None: explanations and numbers of its decisions are shown."""
    commands: str | None = None
    """Its own commands of `headgate`: a Typer app as ``module:attribute``. A named app becomes a group of commands; the
    commands of an app without a name stand beside Headgate's. Keep the module light, because `--help` imports it."""
    jars: tuple[str, ...] = ()
    """The groups of jars that the actuators need, such as ``bookkeeper``."""
    metrics: Mapping[str, Callable[[CollectorRegistry], object]] = field(default_factory=dict)
    """By the actuator's title in the reference (``The quota actuator``), the function that registers its metrics."""


def acts_on(connectors: PolicyConnectors, settings: Any, name: str, cluster: ClusterSources) -> bool:
    """Whether decisions of a policy about a cluster are carried out by an actuator."""
    return connectors.actuators is not _yield_nothing and connectors.acts_on(settings, name, cluster)


def find_needs(settings: Mapping[str, Any], clusters: Mapping[str, ClusterSources]) -> dict[tuple[str, str], str]:
    """Return the setting that would make an actuator, by policy and cluster, where there is none."""
    return {
        (kind.name, name): connectors.acts_if
        for kind in POLICIES.values()
        if (connectors := connectors_of(kind)).acts_if
        for name, cluster in clusters.items()
        if not acts_on(connectors, settings[kind.name], name, cluster)
    }


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
    """Return a policy's I/O.

    Raises:
        UserError: the object that the registration names cannot be loaded, or is no `PolicyConnectors`.
    """
    return PolicyConnectors() if kind.connectors is None else _resolved(kind.name, kind.connectors)
