"""A policy's settings of a watched cluster, and the names of its I/O: collectors, actuators, metrics.

Each of Headgate's own policies declares it in `connectors.<policy>.registration`, an installed one in its own package.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from connectors.component import load_named
from connectors.kafka.connection import WatchedKafka
from connectors.pulsar.settings import PulsarAdmin
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.policy import PolicyKind
from policies.registry import POLICIES
from policies.settings import PolicySettings
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


def _yield_nothing(*_: Any) -> Iterator[Any]:
    yield from ()


Hook = str | Callable[..., Any] | None
"""A function, by preference as ``module:attribute``, so that only the process that calls it imports it; None: none."""


@dataclass(frozen=True)
class PolicyConnectors:
    """A policy's settings and its I/O; every field is optional.

    Each command imports the module that makes this object, so the module imports no client. The hooks of the second
    half are named, and imported by the process that calls them. Their arguments are in `connectors.policy_io`.
    """

    cluster_settings: Mapping[str, ClusterSetting] = field(default_factory=dict)
    """The policy's own settings in `clusters.<name>`, by key."""
    acts_with: tuple[str, ...] = ()
    """Names of settings that let the actuators act on a cluster; one of them suffices."""
    acts_if: str = ""
    """The further condition, in words."""
    mistakes: Callable[[ClusterSources], Iterator[str]] = _yield_nothing
    """Yields contradictions in a cluster's settings, each as ``path: sentence``; they refuse the settings."""
    warnings: Callable[[Any, Mapping[str, ClusterSources]], Iterator[SettingsWarning]] = _yield_nothing
    """Yields warnings, given the policy's settings and the watched clusters."""
    informed: Callable[[Any, Mapping[str, ClusterSources]], Any] = lambda settings, _clusters: settings
    """Given the policy's settings and the watched clusters, returns the settings completed from the clusters'."""
    commands: str | None = None
    """Its own commands of `headgate`: a Typer app as ``module:attribute``. A named app becomes a group of commands; the
    commands of an app without a name stand beside Headgate's. Keep the module light, because `--help` imports it."""
    jars: tuple[str, ...] = ()
    """The groups of jars that the actuators need, such as ``bookkeeper``."""

    collectors: Hook = None
    """Yields the collectors of a cluster as components, given a `CollectorContext`."""
    actuators: Hook = None
    """Yields the actuators of the clusters in this process's work partitions, given an `ActuatorContext`; called again
    when these change."""
    refusals: Hook = None
    """Given an `ActuatorContext`, yields why watched clusters refuse the settings of the actuators; a cluster that does
    not answer does not."""
    release: Hook = None
    """Given an `ActuatorContext` and the name of what `--forget` leaves as it is, or None: restores on all watched
    clusters the state from before Headgate, for `headgate act --release`, and yields a sentence for each."""
    probes: Hook = None
    """Given a `ProbeContext`, yields the checks of `headgate doctor` whether the actuators may act; collectors are
    checked by running them."""
    remedies: Hook = None
    """Given `ClusterSources` and a reading that is not `ok`, yields remedies for the doctor."""
    view: Hook = None
    """Given the policy's settings, makes its `PolicyView`: its own metrics and section of the status page. None: it has
    only the metrics of all policies, and the page shows explanations and numbers of its decisions."""

    @property
    def needed(self) -> str:
        """The settings with which the actuators act, in words; empty without actuators."""
        return " ".join(filter(None, (" or ".join(f"`{block}`" for block in self.acts_with), self.acts_if)))


def acts_on(connectors: PolicyConnectors, settings: PolicySettings, name: str, cluster: ClusterSources) -> bool:
    """Whether decisions of a policy about a cluster are carried out by an actuator."""
    is_set = any(getattr(cluster, block, None) is not None for block in connectors.acts_with)
    return is_set and settings.for_cluster(name).acts


def find_needs(settings: Mapping[str, Any], clusters: Mapping[str, ClusterSources]) -> dict[tuple[str, str], str]:
    """Return the setting that would make an actuator, by policy and cluster, where there is none."""
    return {
        (kind.name, name): connectors.needed
        for kind in POLICIES.values()
        if (connectors := connectors_of(kind)).acts_with
        for name, cluster in clusters.items()
        if not acts_on(connectors, settings[kind.name], name, cluster)
    }


def load_hook(hook: Hook) -> Callable[..., Any]:
    """Return the function of a hook; without one, a function that yields nothing.

    Raises UserError if it cannot be loaded.
    """
    return load_named(hook, "the policy's hook") if isinstance(hook, str) else hook or _yield_nothing


def connectors_of(kind: PolicyKind) -> PolicyConnectors:
    """Return a policy's I/O.

    Raises UserError if the object that the registration names cannot be loaded, or is no `PolicyConnectors`.
    """
    if kind.connectors is None:
        return PolicyConnectors()
    found = load_named(kind.connectors, f"policy {kind.name}: connectors =")
    if not isinstance(found, PolicyConnectors):
        raise UserError(
            f"policy {kind.name}: {kind.connectors} must be a connectors.registration.PolicyConnectors, "
            f"and is a {type(found).__name__}"
        )
    return found
