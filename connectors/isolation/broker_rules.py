"""The doctor's check whether `policies.isolation` describes the brokers: by their version and their settings."""

import re
from collections.abc import Iterator, Mapping

from connectors.collection.probe import ProbeResult
from connectors.isolation.zookeeper_bookies import WatchedBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.affinity import parse_broker_groups
from connectors.pulsar.outcomes import READ_ERRORS
from connectors.pulsar.probes import failed_probe
from connectors.registration import ClusterSources
from policies.isolation import IsolationSettings
from policies.isolation.settings import RuleSet, Unaffine
from policies.observations import Outcome

_OVERLAPS_RIGHT_SINCE = {(3, 0): 12, (3, 3): 7, (4, 0): 5}
"""The first patch of each release line that has pull request 24091. All lines from 4.1 on have it, no others do."""


def check_rules(
    admin: AdminApi, settings: IsolationSettings, name: str = "", cluster: ClusterSources | None = None
) -> ProbeResult:
    """Compare the settings with the broker that answers."""
    try:
        version, configuration = admin.version(), admin.runtime_configuration()
    except READ_ERRORS.expected as error:
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
