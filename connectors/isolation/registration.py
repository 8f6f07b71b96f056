"""The isolation policy's I/O: reads bookies, groups and affinity; puts unassigned bookies into quarantine."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import BaseModel

import connectors.isolation.pulsar_bookies
import connectors.isolation.zookeeper_bookies
from connectors.actuation.actuator import Actuator
from connectors.actuation.reports import ActionError
from connectors.collection.poll_metrics import PollMetrics
from connectors.collection.probe import Probe
from connectors.collection.read_errors import ReadErrors
from connectors.component import Component
from connectors.isolation.bookie_collector import BookieCollector, LeftSeconds
from connectors.isolation.broker_rules import check_rules
from connectors.isolation.detail import DETAIL
from connectors.isolation.pulsar_bookies import PulsarBookieCollector, WatchedPulsarBookies
from connectors.isolation.quarantine.admin import AdminRacks
from connectors.isolation.quarantine.racks import RackStore
from connectors.isolation.quarantine.reports import QuarantineMetrics
from connectors.isolation.quarantine.worker import QuarantineWorker
from connectors.isolation.quarantine.zookeeper import ZooKeeperRacks
from connectors.isolation.view import IsolationView
from connectors.isolation.zookeeper_bookies import WatchedBookies, ZooKeeperBookieCollector, ZooKeeperPolicies
from connectors.pulsar import outcomes as pulsar_outcomes
from connectors.pulsar.affinity import AffinityReader
from connectors.pulsar.bookie_http import BookieHttp
from connectors.pulsar.probes import superuser_line, superuser_probe
from connectors.registration import (
    ActuatorContext,
    Clients,
    ClusterSetting,
    ClusterSources,
    CollectorContext,
    PolicyConnectors,
    ProbeContext,
    SettingsWarning,
    warn_of_interval,
)
from connectors.zookeeper import outcomes as zookeeper_outcomes
from connectors.zookeeper.probes import acl_line, write_probes
from connectors.zookeeper.session import ZooKeeperSession
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
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
        check = partial(check_rules, admin, context.settings, context.name, context.cluster)
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
    collector = open_collector(
        context.name, context.cluster, context.clients, context.metrics, partial(context.sink, Bookies)
    )
    if collector is not None:
        yield Component(f"bookie collector of {context.name}", collector.run)


def open_collector(
    name: str,
    cluster: ClusterSources,
    clients: Clients,
    metrics: PollMetrics,
    sink: Callable[[str], Callable[[Reading], None]],
) -> BookieCollector[Any] | None:
    """Return the collector of a cluster's bookies; None if the settings do not watch them.

    Args:
        sink: given the CloudEvents source of the readings, returns the function that publishes them.
    """
    zookeeper, pulsar = clients.zookeeper(name), clients.pulsar(name)
    bookies, over_http = cluster.setting(WatchedBookies), cluster.setting(WatchedPulsarBookies)
    if bookies is not None and zookeeper is not None:
        ledgers, store = _open_others(name, cluster, clients)
        publish = sink(connectors.isolation.zookeeper_bookies.SOURCE)
        return ZooKeeperBookieCollector(
            name, bookies, zookeeper, publish, metrics, pulsar, ledgers=ledgers, store=store
        )
    if over_http is not None and pulsar is not None:
        publish = sink(connectors.isolation.pulsar_bookies.SOURCE)
        return PulsarBookieCollector(name, over_http, pulsar, publish, metrics)
    return None


def _open_others(
    name: str, cluster: ClusterSources, clients: Clients
) -> tuple[ZooKeeperSession | None, ZooKeeperSession | None]:
    """Return the sessions of BookKeeper's own ZooKeeper and of the configuration store; None where it is the same."""
    bookies, store = cluster.setting(WatchedBookies), cluster.configuration_store
    ledgers = None if bookies is None or bookies.ledgers is None else clients.zookeeper(name, bookies.ledgers)
    return ledgers, None if store is None else clients.zookeeper(name, store)


def _actuators(context: ActuatorContext) -> Iterator[Component]:
    isolation: IsolationSettings = context.settings
    stores = {name: opened for name in context.clusters if (opened := _open_stores(context, name)) is not None}
    if stores:
        topics, metrics = context.loop_topics(BookieQuarantine), QuarantineMetrics(context.registry)
        audit = topics.reporter(context.publish)
        workers = {
            name: QuarantineWorker(name, racks, isolation.for_cluster(name), read_affinity, audit, metrics)
            for name, (racks, read_affinity) in stores.items()
        }
        actuator = Actuator("quarantine actuator", "headgate-quarantine", topics, workers, BookieQuarantine)
        yield Component("quarantine actuator", actuator.run, None, actuator.caught_up)


def _acts_on(settings: IsolationSettings, name: str, cluster: ClusterSources) -> bool:
    by_zookeeper = cluster.setting(WatchedBookies) is not None and cluster.zookeeper is not None
    over_http = cluster.setting(WatchedPulsarBookies) is not None and cluster.pulsar is not None
    return settings.for_cluster(name).quarantine is Quarantine.ON and (by_zookeeper or over_http)


def _open_stores(context: ActuatorContext, name: str) -> tuple[RackStore, Callable[[], BookieAffinity]] | None:
    """Return the store of a cluster's groups, and what reads its namespaces; None if quarantine is off there."""
    cluster, clients = context.clusters[name], context.clients
    if not _acts_on(context.settings, name, cluster):
        return None
    bookies, session = cluster.setting(WatchedBookies), clients.zookeeper(name)
    if bookies is not None and cluster.zookeeper is not None and session is not None:
        _, configuration = _open_others(name, cluster, clients)
        policies = ZooKeeperPolicies(name, session, configuration, clients.pulsar(name))
        racks: RackStore = ZooKeeperRacks(
            name,
            cluster.zookeeper,
            bookies_path=bookies.bookies_path,
            ledgers_root=bookies.ledgers_root,
            ledgers=bookies.ledgers,
        )
        return racks, partial(_read_affinity, policies.read, bookies.affinity_interval, zookeeper_outcomes.READ_ERRORS)
    admin, over_http = clients.pulsar(name), cluster.setting(WatchedPulsarBookies)
    if over_http is not None and admin is not None:

        def read(left_seconds: LeftSeconds) -> BookieAffinity:
            return AffinityReader(admin, over_http.affinity_interval.total_seconds(), left_seconds).read(name)

        racks = AdminRacks(admin, BookieHttp(over_http.bookie_url, admin.settings))
        return racks, partial(_read_affinity, read, over_http.affinity_interval, pulsar_outcomes.READ_ERRORS)
    return None


def _read_affinity(
    read: Callable[[LeftSeconds], BookieAffinity], limit: timedelta, errors: ReadErrors
) -> BookieAffinity:
    """Read the affinity for an action.

    Raises:
        ActionError: it cannot be read, or not as a whole.
    """
    until = time.monotonic() + limit.total_seconds()
    try:
        reading = read(lambda: until - time.monotonic())
    except errors.expected as error:
        raise ActionError(str(errors.failure(error)["detail"])) from None
    if reading.detail is not None and reading.outcome is Outcome.OK:
        raise ActionError(reading.detail)
    return reading


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
