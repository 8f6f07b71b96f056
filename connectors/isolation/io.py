"""The isolation policy's I/O: reads bookies, groups and affinity; puts unassigned bookies into quarantine."""

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial

from connectors.actuation.actuator import Actuator
from connectors.actuation.order_worker import ActionError
from connectors.collection import Probe, ProbeResult
from connectors.component import Component
from connectors.http.rest import REST_READ_ERRORS
from connectors.isolation.collector import (
    BookieCollector,
    BookieSource,
    PulsarBookies,
    ZooKeeperBookies,
    parse_broker_groups,
)
from connectors.isolation.quarantine import QuarantineMetrics, QuarantineWorker
from connectors.isolation.registration import WATCHED, WatchedBookies, WatchedPulsarBookies
from connectors.policy_io import ActuatorContext, Clients, CollectorContext, ProbeContext
from connectors.pulsar.admin import AdminApi, failed_probe, superuser_line, superuser_probe
from connectors.registration import ClusterSources
from connectors.zookeeper.session import acl_line, write_probes
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.isolation.decisions import BookieQuarantine
from policies.isolation.settings import IsolationSettings, RuleSet, Unaffine
from policies.observations import Outcome, Reading

_OVERLAPS_RIGHT_SINCE = {(3, 0): 12, (3, 3): 7, (4, 0): 5}
"""The first patch of each release line that has pull request 24091. All lines from 4.1 on have it, no others do."""


def check_rules(
    admin: AdminApi, settings: IsolationSettings, name: str = "", cluster: ClusterSources | None = None
) -> ProbeResult:
    """Compare the settings with the broker that answers."""
    try:
        version, configuration = admin.version(), admin.runtime_configuration()
    except REST_READ_ERRORS.expected as error:
        return failed_probe(admin.settings, error, "read the brokers' settings")
    found = f"version {version}; policies.isolation.rules is {settings.rules.value}"
    remedies = (
        *_compare_rules(version, settings.rules),
        *_compare_settings(configuration, settings),
        *_compare_stores(configuration, f"clusters.{name}", cluster or ClusterSources()),
    )
    return ProbeResult(Outcome.ERROR if remedies else Outcome.OK, found, remedies)


def _compare_rules(version: str, rules: RuleSet) -> Iterator[str]:
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,9}))?", version)
    if numbers is None:
        return
    major, minor, patch = (int(number or 0) for number in numbers.groups())
    fitting = RuleSet.LEGACY if (major, minor) < (2, 11) else RuleSet.CURRENT
    if rules is not fitting:
        why = (
            "no released Pulsar has the strict rules"
            if rules is RuleSet.STRICT
            else f"these are the rules of {version}"
        )
        yield f"policies.isolation.rules: {fitting.value} ({why})"
    elif fitting is RuleSet.CURRENT and (major, minor) < (4, 1):
        first = _OVERLAPS_RIGHT_SINCE.get((major, minor))
        if first is None or patch < first:
            yield (
                "upgrade the brokers to 3.0.12, 3.3.7, 4.0.5 or later: before, they choose other bookies where groups "
                "overlap, so placements of such groups may be wrong"
            )


def _compare_settings(configuration: Mapping[str, str | None], settings: IsolationSettings) -> Iterator[str]:
    is_strict = (configuration.get("strictBookieAffinityEnabled") or "").lower() == "true"
    fitting = Unaffine.UNGROUPED if is_strict else Unaffine.ANY
    if settings.unaffine is not fitting:
        yield f"policies.isolation.unaffine: {fitting.value} (strictBookieAffinityEnabled is {str(is_strict).lower()})"
    own, theirs = settings.broker_groups, parse_broker_groups(configuration)
    if own and (set(own.primary), set(own.secondary)) != (set(theirs.primary), set(theirs.secondary)):
        primary, secondary = (", ".join(groups) for groups in (theirs.primary, theirs.secondary))
        fitting_groups = f"{{primary: [{primary}], secondary: [{secondary}]}}"
        yield f"policies.isolation.broker_groups: {fitting_groups} (as the broker has)"


def _compare_stores(configuration: Mapping[str, str | None], place: str, cluster: ClusterSources) -> Iterator[str]:
    """Yield the settings of ZooKeepers that the brokers use beside their own and the cluster's settings lack."""
    bookies, zookeeper = cluster.setting(WatchedBookies), cluster.zookeeper
    if bookies is None or zookeeper is None:
        return
    own = _find_store(configuration, "metadataStoreUrl", "zookeeperServers")
    store = _find_store(configuration, "configurationMetadataStoreUrl", "configurationStoreServers") or own
    if store != own and cluster.configuration_store is None:
        yield f"{place}.configuration_store: {{servers: '{store}'}} (the brokers' configurationMetadataStoreUrl)"
    ledgers = _find_store(configuration, "bookkeeperMetadataServiceUri")
    if not own or not ledgers:
        return
    hosts, _, root = ledgers.partition("/")
    if bookies.ledgers is None and set(hosts.split(",")) != set(own.partition("/")[0].split(",")):
        yield f"{place}.bookies.ledgers: {{servers: '{hosts}'}} (the brokers' bookkeeperMetadataServiceUri)"
        return
    path = f"/{root}".removeprefix((bookies.ledgers or zookeeper).chroot)
    if path != bookies.ledgers_root:
        yield f"{place}.bookies.ledgers_root: {path} (the brokers' bookkeeperMetadataServiceUri)"


def _find_store(configuration: Mapping[str, str | None], *names: str) -> str:
    """Return the first of these settings as `host:port,host:port/chroot`; empty if none names a ZooKeeper.

    Pulsar writes `zk:host:port/chroot`, or the hosts alone; BookKeeper `zk+hierarchical://host:port;host:port/root`, or
    `metadata-store:zk:host:port/root`.
    """
    for name in names:
        address = (configuration.get(name) or "").strip().removeprefix("metadata-store:")
        scheme, _, rest = address.rpartition("://")
        if address and (not scheme or scheme.startswith("zk")):
            address = rest if scheme else address.removeprefix("zk:")
            return address.replace(";", ",").replace(" ", "").rstrip("/")
    return ""


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
    zookeeper, admin = context.clients.zookeeper(context.name), context.clients.pulsar(context.name)
    bookies = context.cluster.setting(WatchedBookies)
    if admin is not None and any(context.cluster.setting(kind) is not None for kind in WATCHED.values()):
        check = partial(check_rules, admin, context.settings, context.name, context.cluster)
        yield Probe(f"{context.name}: Pulsar", "the brokers' rules for bookies", check)
    if not context.settings.acts:
        return
    if bookies is not None and zookeeper is not None:
        system, paths = f"{context.name}: ZooKeeper", (bookies.bookies_path,)
        yield from write_probes(system, zookeeper, paths, "quarantine must")
    elif context.cluster.setting(WatchedPulsarBookies) is not None and admin is not None:
        yield superuser_probe(f"{context.name}: Pulsar", admin, "quarantine bookies")


def list_remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    """Yield remedies for a reading that is not `ok`."""
    if reading.outcome is not Outcome.UNAUTHORIZED:
        return
    bookies = cluster.setting(WatchedBookies)
    if bookies is not None and cluster.zookeeper is not None:
        paths = {Bookies: bookies.ledgers_root, BookieRacks: bookies.bookies_path}
        yield acl_line(cluster.zookeeper, paths.get(type(reading), "/admin"), "r")
    elif cluster.pulsar is not None:
        yield superuser_line(cluster.pulsar, "read bookies and policies")


def make_collectors(context: CollectorContext) -> Iterator[Component]:
    """Yield the collectors of a cluster."""
    if (source := open_source(context.name, context.cluster, context.clients)) is not None:
        collector = BookieCollector(source, context.sink(Bookies, source.name), context.metrics)
        yield Component(f"bookie collector of {context.name}", collector.run)


def open_source(name: str, cluster: ClusterSources, clients: Clients) -> BookieSource | None:
    """Return the source of a cluster's bookies; None if the settings do not watch them."""
    zookeeper, pulsar = clients.zookeeper(name), clients.pulsar(name)
    bookies, over_http = cluster.setting(WatchedBookies), cluster.setting(WatchedPulsarBookies)
    if bookies is not None and zookeeper is not None:
        ledgers = None if bookies.ledgers is None else clients.zookeeper(name, bookies.ledgers)
        other = cluster.configuration_store
        store = None if other is None else clients.zookeeper(name, other)
        return ZooKeeperBookies(name, bookies, zookeeper, pulsar, ledgers=ledgers, store=store)
    if over_http is not None and pulsar is not None:
        return PulsarBookies(name, over_http, pulsar)
    return None


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
    isolation: IsolationSettings = context.settings
    acting = {name: cluster for name, cluster in context.clusters.items() if isolation.for_cluster(name).acts}
    opened = ((name, open_source(name, cluster, context.clients)) for name, cluster in acting.items())
    sources = {name: source for name, source in opened if source is not None}
    if sources:
        topics, metrics = context.loop_topics(BookieQuarantine), QuarantineMetrics(context.registry)
        audit = topics.reporter(context.publish)
        workers = {
            name: QuarantineWorker(
                name, source.open_store(), isolation.for_cluster(name), partial(_read_affinity, source), audit, metrics
            )
            for name, source in sources.items()
        }
        actuator = Actuator("quarantine actuator", "headgate-quarantine", topics, workers, BookieQuarantine)
        yield Component("quarantine actuator", actuator.run, None, actuator.caught_up)


def _read_affinity(source: BookieSource) -> BookieAffinity:
    """Read the affinity for an action.

    Raises:
        ActionError: it cannot be read.
    """
    until = time.monotonic() + source.affinity_seconds
    try:
        return source.read_affinity(lambda: until - time.monotonic())
    except source.errors.expected as error:
        raise ActionError(source.errors.detail_of(error)) from None
