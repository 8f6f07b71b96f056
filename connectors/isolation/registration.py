"""The isolation policy's I/O: reads bookies, groups and affinity; puts unassigned bookies into quarantine."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

import connectors.isolation.pulsar_bookies
import connectors.isolation.zookeeper_bookies
from connectors.actuation.actuator import Actuator
from connectors.collection.probe import Probe
from connectors.component import Component
from connectors.isolation.broker_rules import check_rules
from connectors.isolation.detail import DETAIL
from connectors.isolation.pulsar_bookies import PulsarBookieCollector, WatchedPulsarBookies
from connectors.isolation.quarantine.admin import AdminRacks
from connectors.isolation.quarantine.racks import RackStore
from connectors.isolation.quarantine.reports import QuarantineMetrics
from connectors.isolation.quarantine.worker import QuarantineWorker
from connectors.isolation.quarantine.zookeeper import ZooKeeperRacks
from connectors.isolation.view import IsolationView
from connectors.isolation.zookeeper_bookies import WatchedBookies, ZooKeeperBookieCollector
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.probes import superuser_line, superuser_probe
from connectors.registration import (
    ActuatorContext,
    ClusterSetting,
    ClusterSources,
    CollectorContext,
    PolicyConnectors,
    ProbeContext,
    SettingsWarning,
    warn_of_interval,
)
from connectors.zookeeper.probes import acl_line, write_probes
from policies.bookie_readings import BookieRacks, Bookies
from policies.isolation import BookieQuarantine, IsolationSettings
from policies.isolation.settings import Quarantine
from policies.observations import Outcome, Reading

_WATCHED: Mapping[str, type[BaseModel]] = {"bookies": WatchedBookies, "pulsar_bookies": WatchedPulsarBookies}


def _informed(settings: IsolationSettings, clusters: Mapping[str, ClusterSources]) -> IsolationSettings:
    """Add whether an actuator can carry out quarantines, which the decisions' sentences state."""
    return settings.with_defaults(
        {
            name: {"has_actuator": any(cluster.setting(kind) is not None for kind in _WATCHED.values())}
            for name, cluster in clusters.items()
        }
    )


def _warnings(settings: IsolationSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    """Warn of quarantine without watched bookies, and of intervals that are too long."""
    without = [name for name, each in clusters.items() if all(each.setting(kind) is None for kind in _WATCHED.values())]
    asked = [name for name in clusters if settings.for_cluster(name).quarantine is Quarantine.ON]
    if asked and set(asked) <= set(without):
        yield SettingsWarning(
            ("policies", "isolation", "quarantine"),
            f"quarantines nothing: no bookies are watched; set clusters.{asked[0]}.bookies (or pulsar_bookies)",
        )
    for name, cluster in clusters.items():
        validity = settings.for_cluster(name).validity
        for block, kind in _WATCHED.items():
            watched: Any = cluster.setting(kind)
            for interval in _INTERVALS if watched is not None else ():
                if (polled := getattr(watched, interval)) >= validity:
                    yield warn_of_interval(("clusters", name, block, interval), polled, "isolation", validity)


_INTERVALS = ("poll_interval", "affinity_interval")


def _probes(context: ProbeContext) -> Iterator[Probe]:
    zookeeper, admin = context.clients.zookeeper(context.name), context.clients.pulsar(context.name)
    bookies = context.cluster.setting(WatchedBookies)
    if admin is not None and any(context.cluster.setting(kind) is not None for kind in _WATCHED.values()):
        check = partial(check_rules, admin, context.settings)
        yield Probe(f"{context.name}: Pulsar", "the brokers' rules for bookies", check)
    if context.settings.quarantine is not Quarantine.ON:
        return
    if bookies is not None and zookeeper is not None:
        system, paths = f"{context.name}: ZooKeeper", (bookies.bookies_path,)
        yield from write_probes(system, zookeeper, paths, "quarantine must")
    elif context.cluster.setting(WatchedPulsarBookies) is not None and admin is not None:
        yield superuser_probe(f"{context.name}: Pulsar", admin, "quarantine bookies")


def _remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    if reading.outcome is not Outcome.UNAUTHORIZED:
        return
    bookies = cluster.setting(WatchedBookies)
    if bookies is not None and cluster.zookeeper is not None:
        paths = {Bookies: bookies.ledgers_root, BookieRacks: bookies.bookies_path}
        yield acl_line(cluster.zookeeper, paths.get(type(reading), "/admin"), "r")
    elif cluster.pulsar is not None:
        yield superuser_line(cluster.pulsar, "read bookies and policies")


def _collectors(context: CollectorContext) -> Iterator[Component]:
    name, part = context.name, f"bookie collector of {context.name}"
    zookeeper, pulsar = context.clients.zookeeper(name), context.clients.pulsar(name)
    bookies, over_http = context.cluster.setting(WatchedBookies), context.cluster.setting(WatchedPulsarBookies)
    if bookies is not None and zookeeper is not None:
        publish = context.sink(Bookies, connectors.isolation.zookeeper_bookies.SOURCE)
        yield Component(part, ZooKeeperBookieCollector(name, bookies, zookeeper, publish, context.metrics, pulsar).run)
    if over_http is not None and pulsar is not None:
        publish = context.sink(Bookies, connectors.isolation.pulsar_bookies.SOURCE)
        yield Component(part, PulsarBookieCollector(name, over_http, pulsar, publish, context.metrics).run)


def _actuators(context: ActuatorContext) -> Iterator[Component]:
    isolation: IsolationSettings = context.settings
    stores = {name: racks for name in context.clusters if (racks := _open_racks(context, name)) is not None}
    if stores:
        topics, metrics = context.loop_topics(BookieQuarantine), QuarantineMetrics(context.registry)
        audit = topics.reporter(context.publish)
        workers = {
            name: QuarantineWorker(name, racks, isolation.for_cluster(name).max_quarantined, audit, metrics)
            for name, racks in stores.items()
        }
        actuator = Actuator("quarantine actuator", "headgate-quarantine", topics, workers, BookieQuarantine)
        yield Component("quarantine actuator", actuator.run, None, actuator.caught_up)


def _acts_on(settings: IsolationSettings, name: str, cluster: ClusterSources) -> bool:
    by_zookeeper = cluster.setting(WatchedBookies) is not None and cluster.zookeeper is not None
    over_http = cluster.setting(WatchedPulsarBookies) is not None and cluster.pulsar is not None
    return settings.for_cluster(name).quarantine is Quarantine.ON and (by_zookeeper or over_http)


def _open_racks(context: ActuatorContext, name: str) -> RackStore | None:
    """Return the store of a cluster's groups; None if quarantine is off there."""
    cluster = context.clusters[name]
    if not _acts_on(context.settings, name, cluster):
        return None
    if (bookies := cluster.setting(WatchedBookies)) is not None and cluster.zookeeper is not None:
        return ZooKeeperRacks(
            name, cluster.zookeeper, bookies_path=bookies.bookies_path, ledgers_root=bookies.ledgers_root
        )
    admin = context.clients.pulsar(name)
    if (over_http := cluster.setting(WatchedPulsarBookies)) is not None and admin is not None:
        return AdminRacks(admin, BookieHttp(over_http.bookie_url, admin.settings))
    return None


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
    probes=_probes,
    remedies=_remedies,
    informed=_informed,
    collectors=_collectors,
    actuators=_actuators,
    acts_on=_acts_on,
    acts_if="`bookies` or `pulsar_bookies` with policies.isolation.quarantine on",
    view=IsolationView,
    detail=DETAIL,
    commands="deploy.policy_commands.isolation:app",
    metrics={"The quarantine actuator": QuarantineMetrics},
)
