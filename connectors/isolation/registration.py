"""The settings of the isolation policy in a watched cluster, and its registration."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from connectors.http.client import url_problems
from connectors.redaction import RedactedBlock
from connectors.registration import ClusterSetting, ClusterSources, PolicyConnectors, SettingsWarning, warn_of_interval
from connectors.zookeeper.settings import ZnodePath, ZooKeeperConnection
from policies.isolation.settings import IsolationSettings
from policies.units import PositiveDuration, parse_duration


class WatchedBookies(BaseModel):
    """Settings of the collector from ZooKeeper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"),
        description="Interval between readings of the bookies and their groups; watches show most changes at once.",
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("30s"),
        description="Interval between readings of the namespaces' affinity; with thousands of namespaces not short.",
    )
    ledgers: ZooKeeperConnection | None = Field(
        default=None,
        description="The ZooKeeper with BookKeeper's metadata (the brokers' bookkeeperMetadataServiceUri), if it is "
        "not `zookeeper`.",
    )
    ledgers_root: ZnodePath = Field(default="/ledgers", description="Root of BookKeeper's metadata, below the chroot.")
    bookies_path: ZnodePath = Field(
        default="/bookies", description="The znode with the groups of bookies, below the chroot."
    )


class WatchedPulsarBookies(RedactedBlock):
    """Settings of the collector over HTTP."""

    poll_interval: PositiveDuration = Field(
        default=parse_duration("5s"), description="Interval between readings of the bookies and their groups."
    )
    affinity_interval: PositiveDuration = Field(
        default=parse_duration("1m"),
        description="Interval between readings of the namespaces' affinity, and time limit of each: a namespace takes "
        "one or two requests.",
    )
    bookie_url: str = Field(
        description="`http(s)://…` of the HTTP endpoint (httpServerEnabled) of a bookie, or of a name that resolves to "
        "any live bookie: Pulsar's admin REST API does not list the registered bookies."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of the address."""
        yield from url_problems("bookie_url", self.bookie_url)


WATCHED: Mapping[str, type[BaseModel]] = {"bookies": WatchedBookies, "pulsar_bookies": WatchedPulsarBookies}


def _warnings(settings: IsolationSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    """Warn of quarantine without watched bookies, and of intervals that are too long."""
    without = [name for name, each in clusters.items() if all(each.setting(kind) is None for kind in WATCHED.values())]
    asked = [name for name in clusters if settings.for_cluster(name).acts]
    if asked and set(asked) <= set(without):
        yield SettingsWarning(
            ("policies", "isolation", "quarantine"),
            f"quarantines nothing: no bookies are watched; set clusters.{asked[0]}.bookies (or pulsar_bookies)",
        )
    for name, cluster in clusters.items():
        validity = settings.for_cluster(name).validity
        for block, kind in WATCHED.items():
            watched: Any = cluster.setting(kind)
            for interval in _INTERVALS if watched is not None else ():
                if (polled := getattr(watched, interval)) >= validity:
                    yield warn_of_interval(("clusters", name, block, interval), polled, "isolation", validity)


_INTERVALS = ("poll_interval", "affinity_interval")


def _mistakes(cluster: ClusterSources) -> Iterator[str]:
    if cluster.setting(WatchedBookies) is not None and cluster.setting(WatchedPulsarBookies) is not None:
        yield "pulsar_bookies: give either bookies or pulsar_bookies, not both"


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "bookies": ClusterSetting(
            WatchedBookies,
            "If present, the bookies, their groups and the namespaces' affinity are read through `zookeeper`, and "
            "`policies.isolation.quarantine` acts on its `/bookies`.",
            needs=("zookeeper.servers",),
        ),
        "pulsar_bookies": ClusterSetting(
            WatchedPulsarBookies,
            "The same through `pulsar`, with less certainty, for a cluster without access to its ZooKeeper.",
            needs=("pulsar.admin_url",),
        ),
    },
    mistakes=_mistakes,
    warnings=_warnings,
    commands="deploy.policy_commands.apps:app",
    acts_with=tuple(WATCHED),
    acts_if="with policies.isolation.quarantine on",
    collectors="connectors.isolation.io:make_collectors",
    actuators="connectors.isolation.io:make_actuators",
    probes="connectors.isolation.io:list_probes",
    remedies="connectors.isolation.io:list_remedies",
    view="connectors.isolation.view:IsolationView",
)
