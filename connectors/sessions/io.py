"""The sessions policy's I/O: reads sessions, ownership and health, and unloads bundles through the admin REST API."""

from collections.abc import Iterator
from functools import partial

from connectors.collection import Probe, ProbeResult
from connectors.component import Component
from connectors.http.rest import REST_READ_ERRORS
from connectors.policy_io import ActuatorContext, CollectorContext, ProbeContext
from connectors.pulsar.admin import AdminApi, failed_probe, superuser_line, superuser_probe
from connectors.registration import ClusterSources
from connectors.sessions import health, ownership, zookeeper_sessions
from connectors.sessions.registration import POLLED, UnloadSettings, WatchedHealth, WatchedOwnership, WatchedSessions
from connectors.sessions.unload import UnloadActuator, UnloadMetrics, UnloadWorker
from connectors.zookeeper.session import acl_line, read_probe
from policies.observations import Outcome, Reading
from policies.sessions import MemberHealth, OwnershipDecision, Ownerships, ZkSession
from policies.sessions.readings import BROKERS, EXTENSIBLE_LOAD_MANAGER

SESSION_POLICY = "zookeeperSessionExpiredPolicy"
"""The brokers' own setting of PIP-57."""


_OTHER_STORES = {"oxia": "Oxia", "etcd": "etcd", "rocksdb": "RocksDB", "memory": "memory"}
"""Pulsar's metadata stores other than ZooKeeper, by the scheme of their addresses; `zk:` or none is ZooKeeper's."""


def make_collectors(context: CollectorContext) -> Iterator[Component]:
    """Yield the collectors of a cluster."""
    name, cluster, metrics = context.name, context.cluster, context.metrics
    zookeeper = context.clients.zookeeper(name)
    if (watched := cluster.setting(WatchedSessions)) is not None and cluster.zookeeper is not None:
        publish, history = context.sink(ZkSession, zookeeper_sessions.SOURCE), context.history(ZkSession)
        sessions = zookeeper_sessions.SessionCollector(
            name, watched, cluster.zookeeper, publish, metrics, history=history
        )
        yield Component(f"session collector of {name}", sessions.run)
    if (owned := cluster.setting(WatchedOwnership)) is not None and zookeeper is not None:
        publish, admin = context.sink(Ownerships, ownership.SOURCE), context.clients.pulsar(name)
        owners = ownership.OwnershipCollector(name, owned, zookeeper, publish, metrics, admin=admin)
        yield Component(f"ownership collector of {name}", owners.run)
    if (asked := cluster.setting(WatchedHealth)) is not None and cluster.pulsar is not None:
        publish, earlier = context.sink(MemberHealth, health.SOURCE), context.history(MemberHealth)
        checks = health.MemberHealthCollector(name, asked, cluster.pulsar, publish, metrics, history=earlier)
        yield Component(f"health collector of {name}", checks.run)


def make_actuators(context: ActuatorContext) -> Iterator[Component]:
    """Yield the actuator of the clusters that the settings let it act on."""
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


def list_probes(context: ProbeContext) -> Iterator[Probe]:
    """Yield the doctor's checks of a cluster."""
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
    if any(context.cluster.setting(block) is not None for block in POLLED.values()):
        yield Probe(system, "the brokers' settings for lost sessions", partial(check_brokers, admin))


def check_brokers(admin: AdminApi) -> ProbeResult:
    """Check the settings of the broker that answers: the store is ZooKeeper, and decisions are left to Headgate."""
    try:
        configuration = admin.runtime_configuration()
    except REST_READ_ERRORS.expected as error:
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


def list_remedies(cluster: ClusterSources, reading: Reading) -> Iterator[str]:
    """Yield remedies for a reading that is not `ok`."""
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
