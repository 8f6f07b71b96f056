"""The two clusters of a ledger copy: addresses, credentials, and the configuration of the Java client for each."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from connectors.bookkeeper.copy_journal import PROVENANCE
from connectors.zookeeper.connection import ZooKeeperConnection
from policies.switching.ledger_paths import Layout

WINDOW_ENTRIES = 64
"""Of a ledger so many entries are read at once, or fewer when they are large."""
BYTES_IN_FLIGHT = 16 * 1024 * 1024
"""Of all ledgers together so much is being read at once: bookies have other readers than us."""
ENTRY_BYTES = 16 * 1024
"""A smaller entry counts for so much, as bookies limit requests, too (`maxPendingReadRequestsPerThread`)."""


@dataclass(frozen=True, slots=True)
class LedgerCluster:
    """A cluster, and how to be let in."""

    instance_id: str
    """The content of its `INSTANCEID`."""
    metadata_service_uri: str
    """As BookKeeper has it, such as `zk+hierarchical://zk-1:2181;zk-2:2181/ledgers`."""
    password: bytes = field(default=b"", repr=False)
    """Of its ledgers; that of Pulsar's managed ledgers is empty unless set."""
    digest_type: str = "CRC32C"
    """Of ledgers whose metadata do not say it: `MAC`, `CRC32`, `CRC32C` (Pulsar's) or `DUMMY`."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further ones of BookKeeper's client configuration, such as those of TLS."""


@dataclass(frozen=True, slots=True)
class Replication:
    """On how many bookies a copy is spread, written to and acknowledged."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


def metadata_service_uri(connection: ZooKeeperConnection, root: str, layout: Layout) -> str:
    """Say where a cluster's metadata is, such as ``zk+hierarchical://zk-1:2181;zk-2:2181/pulsar/ledgers``.

    Args:
        connection: of its ZooKeeper; of this only servers and chroot are told, never who we are to it.
        root: the path of its ledgers below the chroot, such as ``/ledgers``.
        layout: of its ledgers; it is a part of the scheme, by the same names.
    """
    # BookKeeper splits at semicolons: a comma would be a part of a host's name.
    return f"zk+{layout.value}://{';'.join(connection.hosts())}{connection.chroot}{root.rstrip('/')}"


def java_settings(
    source: LedgerCluster,
    target: LedgerCluster,
    concurrency: int,
    timeout_seconds: float,
    window_bytes: int,
    bytes_per_second: int = 0,
) -> str:
    """What the Java constructor reads."""
    return msgspec.json.encode(
        {
            "source": _cluster(source, timeout_seconds),
            "target": _cluster(target, timeout_seconds),
            "provenance_name": PROVENANCE,
            "timeout_ms": round(timeout_seconds * 1000),
            "window_bytes": window_bytes,
            "window_entries": WINDOW_ENTRIES,
            "bytes_in_flight": BYTES_IN_FLIGHT,
            "entry_bytes": ENTRY_BYTES,
            "concurrency": concurrency,
            "bytes_per_second": bytes_per_second,
        }
    ).decode()


def _cluster(cluster: LedgerCluster, timeout_seconds: float) -> dict[str, object]:
    # The client's own time-outs end first, with a reason; each of its requests may take several tries.
    seconds = max(1, round(timeout_seconds / 3))
    properties = {
        "metadataServiceUri": cluster.metadata_service_uri,
        "zkTimeout": str(1000 * seconds),
        "addEntryTimeoutSec": str(seconds),
        "readEntryTimeoutSec": str(seconds),
        # As Pulsar's brokers have it: without protobuf, client and bookies do less. What it lacks is not used here.
        "useV2WireProtocol": "true",
        "numIOThreads": "2",
        "numWorkerThreads": "2",
        **cluster.properties,
    }
    password = base64.b64encode(cluster.password).decode()
    return {"properties": properties, "password": password, "digest_type": cluster.digest_type}
