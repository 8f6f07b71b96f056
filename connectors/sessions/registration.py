"""The sessions policy's I/O: reads sessions, ownership and health, and unloads bundles through the admin REST API."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

import connectors.sessions.health
import connectors.sessions.ownership
import connectors.sessions.zookeeper_sessions
from connectors.collection import Probe, ProbeResult
from connectors.component import Component
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.probes import failed_probe, superuser_line, superuser_probe
from connectors.pulsar.rest import PULSAR_READ_ERRORS, address_problem, plain_http_problem
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
from connectors.sessions.health import MemberHealthCollector, WatchedHealth
from connectors.sessions.ownership import OwnershipCollector, WatchedOwnership
from connectors.sessions.unload import UnloadActuator, UnloadMetrics, UnloadSettings, UnloadWorker
from connectors.sessions.view import DETAIL, SessionsView
from connectors.sessions.zookeeper_sessions import SessionCollector, WatchedSessions
from connectors.zookeeper.probes import acl_line, read_probe
from policies.observations import Outcome, Reading
from policies.sessions import MemberHealth, OwnershipDecision, Ownerships, SessionsSettings, ZkSession
from policies.sessions.readings import BROKERS, EXTENSIBLE_LOAD_MANAGER

SESSION_POLICY = "zookeeperSessionExpiredPolicy"
"""The brokers' own setting of PIP-57."""
_OTHER_STORES = {"oxia": "Oxia", "etcd": "etcd", "rocksdb": "RocksDB", "memory": "memory"}
"""Pulsar's metadata stores other than ZooKeeper, by the scheme of their addresses; `zk:` or none is ZooKeeper's."""


def _collectors(context: CollectorContext) -> Iterator[Component]:
    name, cluster, metrics = context.name, context.cluster, context.metrics
    zookeeper = context.clients.zookeeper(name)
    if (watched := cluster.setting(WatchedSessions)) is not None and cluster.zookeeper is not None:
        publish = context.sink(ZkSession, connectors.sessions.zookeeper_sessions.SOURCE)
        history = context.history(ZkSession)
        sessions = SessionCollector(name, watched, cluster.zookeeper, publish, metrics, history=history)
        yield Component(f"session collector of {name}", sessions.run)
    if (owned := cluster.setting(WatchedOwnership)) is not None and zookeeper is not None:
        publish = context.sink(Ownerships, connectors.sessions.ownership.SOURCE)
        ownership = OwnershipCollector(name, owned, zookeeper, publish, metrics, admin=context.clients.pulsar(name))
        yield Component(f"ownership collector of {name}", ownership.run)
    if (asked := cluster.setting(WatchedHealth)) is not None and cluster.pulsar is not None:
        publish = context.sink(MemberHealth, connectors.sessions.health.SOURCE)
        earlier = context.history(MemberHealth)
        health = MemberHealthCollector(name, asked, cluster.pulsar, publish, metrics, history=earlier)
        yield Component(f"health collector of {name}", health.run)


def _actuators(context: ActuatorContext) -> Iterator[Component]:
    watched = {
        name: (admin, settings)
        for name, cluster in context.clusters.items()
        if (settings := cluster.setting(UnloadSettings)) is not None
        and (admin := context.clients.pulsar(name)) is not None
    }
    if watched:
        topics, metrics = context.loop_topics(OwnershipDecision), UnloadMetrics(context.registry)
        audit = topics.reporter(context.publish)
        workers = {name: UnloadWorker(name, *each, audit, metrics) for name, each in watched.items()}
        actuator = UnloadActuator(topics, workers)
        yield Component("unload actuator", actuator.run, None, actuator.caught_up)


def _warnings(settings: SessionsSettings, clusters: Mapping[str, ClusterSources]) -> Iterator[SettingsWarning]:
    for name, cluster in clusters.items():
        place, validity = ("clusters", name), settings.for_cluster(name).validity
        if cluster.setting(UnloadSettings) is not None and cluster.setting(WatchedOwnership) is None:
            yield SettingsWarning((*place, "unload"), f"has nothing to do: set clusters.{name}.ownership, too")
        for block, kind in _POLLED.items():
            watched: Any = cluster.setting(kind)
            if watched is not None and watched.poll_interval >= validity:
                yield warn_of_interval((*place, block, "poll_interval"), watched.poll_interval, "sessions", validity)


_POLLED: Mapping[str, type[BaseModel]] = {
    "sessions": WatchedSessions,
    "ownership": WatchedOwnership,
    "health": WatchedHealth,
}


def _acts_on(settings: Any, name: str, cluster: ClusterSources) -> bool:  # noqa: ARG001 - as for all
    return cluster.setting(UnloadSettings) is not None and cluster.pulsar is not None


def _probes(context: ProbeContext) -> Iterator[Probe]:
    admin, system = context.clients.pulsar(context.name), f"{context.name}: Pulsar"
    zookeeper, watched = context.clients.zookeeper(context.name), context.cluster.setting(WatchedSessions)
    watches_brokers = watched is not None and any(tree.path == BROKERS for tree in watched.members)
    if zookeeper is not None and (watches_brokers or context.cluster.setting(WatchedOwnership) is not None):
        remedy = (
            "no broker has ever registered in this ZooKeeper: check zookeeper.servers with its chroot; brokers that "
        )
        remedy += "keep their metadata in Oxia or etcd (metadataStoreUrl) have no sessions to watch"
        yield read_probe(f"{context.name}: ZooKeeper", zookeeper, BROKERS, remedy)
    if admin is None:
        return
    if context.cluster.setting(UnloadSettings) is not None:
        yield superuser_probe(system, admin, "unload bundles")
    if any(context.cluster.setting(block) is not None for block in _POLLED.values()):
        yield Probe(system, "the brokers' settings for lost sessions", partial(check_brokers, admin))


def check_brokers(admin: AdminApi) -> ProbeResult:
    """Check the settings of the broker that answers: the store is ZooKeeper, and decisions are left to Headgate."""
    try:
        configuration = admin.runtime_configuration()
    except PULSAR_READ_ERRORS.expected as error:
        return failed_probe(admin.settings, error, "read the brokers' settings")
    store = (configuration.get("metadataStoreUrl") or "").strip().partition(":")[0].lower()
    if store in _OTHER_STORES:
        found = f"the brokers keep their metadata in {_OTHER_STORES[store]} (metadataStoreUrl), not in ZooKeeper"
        remedy = "remove `sessions` and `ownership` of this cluster: without ZooKeeper there are no sessions to watch"
        return ProbeResult(Outcome.UNSUPPORTED, found, (remedy,))
    expired = configuration.get(SESSION_POLICY) or "not set"
    manager = configuration.get("loadManagerClassName") or "an unknown load manager"
    source = "from the brokers" if manager.endswith(EXTENSIBLE_LOAD_MANAGER) else "from ZooKeeper"
    found = f"{SESSION_POLICY} is {expired}; {manager.rpartition('.')[2]}, so ownership is read {source}"
    if expired == "reconnect":
        return ProbeResult(Outcome.OK, found)
    remedy = f"broker.conf: {SESSION_POLICY}=reconnect (and restart the brokers); else each shuts itself down at once"
    return ProbeResult(Outcome.ERROR, found, (remedy,))


def _remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    if isinstance(reading, ZkSession):
        sessions = cluster.setting(WatchedSessions) or WatchedSessions()
        yield (
            f"zoo.cfg of every server: admin.enableServer=true, and admin.serverPort as in {sessions.admin_url} "
            "(or set sessions.admin_url)"
        )
    elif reading.outcome is not Outcome.UNAUTHORIZED:
        return
    elif isinstance(reading, MemberHealth) and cluster.pulsar is not None:
        yield superuser_line(cluster.pulsar, "ask a broker for its health")
    elif cluster.zookeeper is not None:
        yield from (acl_line(cluster.zookeeper, path, "r") for path in ("/loadbalance", "/namespace"))


def _mistakes(cluster: ClusterSources) -> Iterator[str]:
    for name, block in (("health", cluster.setting(WatchedHealth)), ("unload", cluster.setting(UnloadSettings))):
        if block is not None:
            yield from plain_http_problem(f"{name}.member_url", block, block.member_url, cluster.pulsar)
        if isinstance(block, WatchedHealth) and cluster.pulsar is not None:
            problems = (address_problem(member, cluster.pulsar.admin_url) for member in block.members)
            yield from (f"health.members: {problem}" for problem in problems if problem is not None)


CONNECTORS = PolicyConnectors(
    cluster_settings={
        "sessions": ClusterSetting(
            WatchedSessions,
            "If present, the ZooKeeper sessions of its brokers, or of other members, are watched.",
            needs=("zookeeper.servers",),
        ),
        "ownership": ClusterSetting(
            WatchedOwnership,
            "If present, the owners of bundles are read through `zookeeper`.",
            needs=("zookeeper.servers",),
        ),
        "health": ClusterSetting(
            WatchedHealth,
            "If present, each broker's health is checked, which finds zombies.",
            needs=("pulsar.admin_url",),
        ),
        "unload": ClusterSetting(
            UnloadSettings,
            "If present, `headgate run` or `headgate act` carries out decisions about bundles through `pulsar`.",
            needs=("pulsar.admin_url",),
        ),
    },
    mistakes=_mistakes,
    warnings=_warnings,
    probes=_probes,
    remedies=_remedies,
    collectors=_collectors,
    actuators=_actuators,
    acts_on=_acts_on,
    acts_if="`unload`",
    view=SessionsView,
    detail=DETAIL,
    metrics={"The unload actuator": UnloadMetrics},
)
