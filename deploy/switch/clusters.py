"""The clusters of a switch: those that the settings name, and their identity as read at their address."""

from typing import Any

from connectors.bookkeeper.copy_clusters import metadata_service_uri
from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from deploy.settings.application import Settings
from policies.errors import UserError


def bookkeeper_clusters(settings: Settings, cluster: str) -> tuple[ZooKeeperConnection, BookKeeperClusters]:
    """Return the ZooKeeper of a cluster's brokers, and the BookKeeper clusters that they may write to.

    Raises:
        UserError: the settings do not have them.
    """
    watched = settings.watched(cluster)
    if watched.bookkeeper is None or watched.zookeeper is None:
        raise UserError(f"clusters.{cluster}.bookkeeper: is not set, so there are no clusters to switch between")
    return watched.zookeeper, watched.bookkeeper


def identify_cluster(settings: Settings, cluster: str, name: str) -> dict[str, Any]:
    """Return the arguments of `register`: name, address and identity of a BookKeeper cluster.

    The identity is read at the address, because a name alone never suffices to register a cluster.

    Raises:
        UserError: the settings do not have its address, or no supported BookKeeper cluster is there.
    """
    brokers, clusters = bookkeeper_clusters(settings, cluster)
    if name not in clusters.clusters:
        known = ", ".join(clusters.clusters)
        raise UserError(f"--name: clusters.{cluster}.bookkeeper names no cluster {name}; it names {known}")
    block = f"clusters.{cluster}.bookkeeper.clusters.{name}"
    with ClusterSessions(cluster, brokers, clusters) as sessions:
        try:
            found = sessions.read_cluster(name)
        except (NotConnectedError, UnreadError) as error:
            raise UserError(f"{block}: cannot be read: {detail_of(error)}") from None
        except UserError as error:
            raise UserError(f"{block}: {error}") from None
        connection = sessions.connection(name)
    if found.instance_id is None:
        raise UserError(f"{block}: {found.root}/INSTANCEID is empty, so the cluster cannot be identified")
    if found.layout is None:
        raise UserError(f"{block}: {found.root}/LAYOUT names neither hierarchical nor longhierarchical")
    uri = metadata_service_uri(connection, clusters.clusters[name].ledgers_root, found.layout)
    return {"name": name, "uri": uri, "instance_id": found.instance_id, "root": found.root}
