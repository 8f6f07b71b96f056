"""The two clusters of a ledger copy: addresses, credentials, and the configuration of the Java client for each."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from connectors.bookkeeper.copy_journal import PROVENANCE
from connectors.zookeeper.connection import ZooKeeperConnection
from policies.switching.ledger_paths import Layout

WINDOW_ENTRIES = 64
"""Maximum number of a ledger's entries in one read."""
BYTES_IN_FLIGHT = 16 * 1024 * 1024
"""Maximum bytes of all reads in flight, because bookies have other readers, too."""
ENTRY_BYTES = 16 * 1024
"""Minimum size that an entry counts for; bookies limit requests, too (`maxPendingReadRequestsPerThread`)."""


@dataclass(frozen=True, slots=True)
class LedgerCluster:
    """A BookKeeper cluster, with its credentials."""

    instance_id: str
    """The content of its `INSTANCEID`."""
    metadata_service_uri: str
    """BookKeeper's address of the metadata, such as `zk+hierarchical://zk-1:2181;zk-2:2181/ledgers`."""
    password: bytes = field(default=b"", repr=False)
    """The password of its ledgers; Pulsar's managed ledgers have an empty one by default."""
    digest_type: str = "CRC32C"
    """The digest type of ledgers without one in their metadata: `MAC`, `CRC32`, `CRC32C` (Pulsar's) or `DUMMY`."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further properties of BookKeeper's client, such as those of TLS."""


class CopyReplication(BaseModel):
    """Replication of the copies in the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ensemble_size: int = Field(ge=1, le=1000, description="Bookies of a copy.")
    write_quorum: int = Field(ge=1, le=1000, description="Bookies that store each entry.")
    ack_quorum: int = Field(ge=1, le=1000, description="Bookies that must acknowledge each entry.")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum:
            raise ValueError("ensemble_size must be at least write_quorum, and that at least ack_quorum")
        return self


def metadata_service_uri(connection: ZooKeeperConnection, root: str, layout: Layout) -> str:
    """Return the address of a cluster's metadata, such as ``zk+hierarchical://zk-1:2181;zk-2:2181/pulsar/ledgers``.

    The connection's credentials are not used. `root` is the path of its ledgers below the chroot, such as ``/ledgers``.
    """
    # BookKeeper splits at semicolons; a comma would be part of a host's name.
    return f"zk+{layout.value}://{';'.join(connection.hosts())}{connection.chroot}{root.rstrip('/')}"


def java_settings(
    source: LedgerCluster,
    target: LedgerCluster,
    concurrency: int,
    timeout_seconds: float,
    window_bytes: int,
    bytes_per_second: int = 0,
) -> str:
    """Return the settings for the Java constructor, in JSON."""
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
    # The client's own timeouts end first, with a reason; each of its requests may take several attempts.
    seconds = max(1, round(timeout_seconds / 3))
    properties = {
        "metadataServiceUri": cluster.metadata_service_uri,
        "zkTimeout": str(1000 * seconds),
        "addEntryTimeoutSec": str(seconds),
        "readEntryTimeoutSec": str(seconds),
        # Pulsar's brokers use this protocol, too. Without protobuf, client and bookies do less work.
        "useV2WireProtocol": "true",
        "numIOThreads": "2",
        "numWorkerThreads": "2",
        **cluster.properties,
    }
    password = base64.b64encode(cluster.password).decode()
    return {"properties": properties, "password": password, "digest_type": cluster.digest_type}
