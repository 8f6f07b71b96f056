"""Identifies a BookKeeper cluster by what is read at its address: a name alone never suffices to register it."""

from typing import Any

from connectors.bookkeeper.copy_clusters import metadata_service_uri
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from deploy.settings.application import Settings
from deploy.switch.precheck_command import named
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot


def registration(settings: Settings, cluster: str, name: str) -> dict[str, Any]:
    """The arguments of `register`: name, address and identity of a BookKeeper cluster of a broker cluster.

    Raises:
        UserError: the settings do not say where it is, or no BookKeeper cluster that can be served is there.
    """
    brokers, clusters = named(settings, cluster)
    if name not in clusters.clusters:
        known = ", ".join(clusters.clusters)
        raise UserError(f"--name: clusters.{cluster}.bookkeeper names no cluster {name}; it names {known}")
    block = f"clusters.{cluster}.bookkeeper.clusters.{name}"
    with ClusterSessions(cluster, brokers, clusters) as sessions:
        found = _read(sessions, name, block)
        connection = sessions.connection(name)
    if found.instance_id is None:
        raise UserError(f"{block}: {found.root}/INSTANCEID holds nothing, so it is not known which cluster it is")
    if found.layout is None:
        raise UserError(f"{block}: {found.root}/LAYOUT names neither hierarchical nor longhierarchical")
    uri = metadata_service_uri(connection, clusters.clusters[name].ledgers_root, found.layout)
    return {"name": name, "uri": uri, "instance_id": found.instance_id, "root": found.root}


def _read(sessions: ClusterSessions, name: str, block: str) -> ClusterSnapshot:
    try:
        return sessions.read_cluster(name)
    except (NotConnectedError, UnreadError) as error:
        raise UserError(f"{block}: cannot be read: {detail_of(error)}") from None
    except UserError as error:
        raise UserError(f"{block}: {error}") from None
