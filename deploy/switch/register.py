"""What a BookKeeper cluster is, read at its own address: its name alone must never be enough to register it."""

import time
from typing import Any

from connectors.bookkeeper.copy_clusters import metadata_service_uri
from connectors.bookkeeper.identity import read_cluster
from connectors.zookeeper.outcomes import NotConnectedError, UnreadError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from deploy.settings import Settings
from deploy.switch.precheck import named
from policies.errors import UserError
from policies.switching.precheck.snapshot import ClusterSnapshot


def registration(settings: Settings, cluster: str, name: str) -> dict[str, Any]:
    """The arguments of `register`: name, address and identity of a BookKeeper cluster of a broker cluster.

    Raises:
        UserError: the settings do not say where it is, or no BookKeeper cluster that can be served is there.
    """
    brokers, clusters = named(settings, cluster)
    if name not in clusters.clusters:
        known = ", ".join(clusters.clusters)
        raise UserError(f"--name: clusters.{cluster}.bookkeeper names no cluster {name}; it names {known}")
    block = clusters.clusters[name]
    connection, place = block.zookeeper or brokers, f"clusters.{cluster}.bookkeeper.clusters.{name}"
    found = _read(ZooKeeperSession(f"{cluster}/{name}", connection), name, block.ledgers_root, place)
    if found.instance_id is None:
        raise UserError(f"{place}: {found.root}/INSTANCEID holds nothing, so it is not known which cluster it is")
    if found.layout is None:
        raise UserError(f"{place}: {found.root}/LAYOUT names neither hierarchical nor longhierarchical")
    uri = metadata_service_uri(connection, block.ledgers_root, found.layout)
    return {"name": name, "uri": uri, "instance_id": found.instance_id, "root": found.root}


def _read(session: ZooKeeperSession, name: str, root: str, place: str) -> ClusterSnapshot:
    until = time.monotonic() + 2 * session.connection.timeout_seconds
    try:
        reader = session.reader(lambda: until - time.monotonic())
        return read_cluster(reader, name, root, time.time_ns() // 1_000_000)
    except (NotConnectedError, UnreadError) as error:
        raise UserError(f"{place}: cannot be read: {detail_of(error)}") from None
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    finally:
        session.close()
