"""Real ledgers, made by the real BookKeeper client in a JVM of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from deploy.java.jvm import find_java
from tests.system.server import small_jvm

_PASSWORD = b"secret of the test"


class LedgerMaker:
    """Makes ledgers on one bookie; a context manager that ends its JVM.

    Args:
        folder: of its own.
        jars: `ensure_jars("bookkeeper", …)`.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        self._folder = folder
        self._jars = tuple(jars)

    def __enter__(self) -> Self:
        port, token = launch_gateway(
            classpath=":".join(map(str, self._jars)),
            javaopts=list(small_jvm(self._folder, 64)),
            java_path=str(find_java()),
            die_on_exit=True,
            enable_auth=True,
            return_proc=False,
        )
        parameters = GatewayParameters(port=port, auth_token=token)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._clients: list[Any] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        self._gateway.shutdown()

    def client(self, zookeeper_servers: str, *, metadata_version: int = -1) -> "LedgerClient":
        """A client of one cluster.

        Args:
            zookeeper_servers: `host:port[/chroot]`.
            metadata_version: the format of what it writes to ZooKeeper; -1 for its own.
        """
        jvm = self._gateway.jvm
        config = jvm.org.apache.bookkeeper.conf.ClientConfiguration()
        config.setMetadataServiceUri(f"zk+hierarchical://{zookeeper_servers}/ledgers")
        config.setLedgerMetadataFormatVersion(metadata_version)
        self._clients.append(jvm.org.apache.bookkeeper.client.BookKeeper(config))
        return LedgerClient(self._clients[-1], jvm)


class LedgerClient:
    """A real BookKeeper client of one cluster."""

    def __init__(self, client: Any, jvm: Any) -> None:
        self._client = client
        self._jvm = jvm
        self._digest = jvm.org.apache.bookkeeper.client.BookKeeper.DigestType.CRC32

    def create(self, entries: int = 1, *, custom: Mapping[str, bytes] | None = None, close: bool = True) -> int:
        """Make a ledger with the cluster's next id; return that."""
        handle = self._client.createLedger(1, 1, 1, self._digest, _PASSWORD, self._custom(custom))
        for number in range(entries):
            handle.addEntry(f"entry {number}".encode())
        if close:
            handle.close()
        return int(handle.getId())

    def create_at(self, ledger_id: int, entries: int = 1) -> None:
        """Make a ledger with a given id."""
        identifier = self._jvm.java.lang.Long(ledger_id) if ledger_id > 2**31 - 1 else ledger_id
        handle = self._client.createLedgerAdv(identifier, 1, 1, 1, self._digest, _PASSWORD, self._custom(None))
        for number in range(entries):
            handle.addEntry(number, f"entry {number}".encode())
        handle.close()

    def _custom(self, custom: Mapping[str, bytes] | None) -> Any:
        converted = self._jvm.java.util.HashMap()
        for name, value in (custom or {}).items():
            converted.put(name, value)
        return converted
