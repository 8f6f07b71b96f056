"""The metadata service URI of a BookKeeper cluster, as its own clients take it."""

from connectors.zookeeper.connection import ZooKeeperConnection
from policies.switching.ledger_paths import Layout


def metadata_service_uri(connection: ZooKeeperConnection, root: str, layout: Layout) -> str:
    """Say where a cluster's metadata is, such as ``zk+hierarchical://zk-1:2181;zk-2:2181/pulsar/ledgers``.

    Args:
        connection: of its ZooKeeper; of this only servers and chroot are told, never who we are to it.
        root: the path of its ledgers below the chroot, such as ``/ledgers``.
        layout: of its ledgers; it is a part of the scheme, by the same names.
    """
    # BookKeeper splits at semicolons: a comma would be a part of a host's name.
    return f"zk+{layout.value}://{';'.join(connection.hosts())}{connection.chroot}{root.rstrip('/')}"
