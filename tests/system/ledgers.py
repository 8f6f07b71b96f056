"""Real ledgers, written and read by BookKeeper's client in a JVM of its own, not by the code under test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from connectors.bookkeeper.gateway import BookKeeperJvm
from deploy.java.jvm import find_java

_WINDOW = 10


class _SmallJvm(BookKeeperJvm):
    """One that makes a few ledgers and ends: compiling for hours to come would be most of what it does."""

    def _command(self) -> list[str]:
        java, *arguments = super()._command()
        return [java, "-XX:TieredStopAtLevel=1", *arguments]


class LedgerClient:
    """A client of several clusters.

    Args:
        folder: of its own.
        jars: `ensure_jars("bookkeeper", …)`.
    """

    def __init__(self, folder: Path, jars: Sequence[Path]) -> None:
        self._jvm = _SmallJvm(find_java(), jars, folder)
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._jvm.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()
        self._jvm.close()

    @property
    def _java(self) -> Any:
        return self._jvm.start().gateway.jvm

    def _client(self, servers: str) -> Any:
        if servers not in self._clients:
            settings = self._java.org.apache.bookkeeper.conf.ClientConfiguration()
            settings.setMetadataServiceUri(f"zk+hierarchical://{servers}/ledgers")
            self._clients[servers] = self._java.org.apache.bookkeeper.client.BookKeeper(settings)
        return self._clients[servers]

    def renew(self, servers: str) -> None:
        """Use a new client of a cluster from now on, because a client remembers where ids are generated."""
        if (client := self._clients.pop(servers, None)) is not None:
            client.close()

    @property
    def _digest(self) -> Any:
        return self._java.org.apache.bookkeeper.client.BookKeeper.DigestType.CRC32C

    def create(
        self, servers: str, ledger_id: int, custom: Mapping[str, bytes] | None = None, password: bytes = b""
    ) -> Any:
        """A handle that writes a new ledger on one bookie."""
        metadata = self._java.java.util.HashMap()
        for name, value in (custom or {}).items():
            metadata.put(name, value)
        # Py4J passes what fits 32 bits as an int, which fits no parameter of type long but by an exact type.
        wide = self._java.java.lang.Long.valueOf(str(ledger_id))
        return self._client(servers).createLedgerAdv(wide, 1, 1, 1, self._digest, password, metadata)

    def write(
        self, servers: str, ledger_id: int, entries: Sequence[bytes], custom: Mapping[str, bytes] | None = None
    ) -> None:
        """Write a closed ledger with these entries."""
        handle = self.create(servers, ledger_id, custom)
        for number, entry in enumerate(entries):
            handle.addEntry(number, entry)
        handle.close()

    def make(self, servers: str, entries: Sequence[bytes], custom: Mapping[str, bytes] | None = None) -> int:
        """Write a closed ledger under the cluster's next id; returns the id."""
        metadata = self._java.java.util.HashMap()
        for name, value in (custom or {}).items():
            metadata.put(name, value)
        handle = self._client(servers).createLedger(1, 1, 1, self._digest, b"", metadata)
        for entry in entries:
            handle.addEntry(entry)
        handle.close()
        return int(handle.getId())

    def read(self, servers: str, ledger_id: int) -> list[bytes]:
        """All entries of a closed ledger."""
        handle = self._client(servers).openLedgerNoRecovery(ledger_id, self._digest, b"")
        entries: list[bytes] = []
        try:
            while len(entries) <= handle.getLastAddConfirmed():
                found = handle.readEntries(len(entries), min(handle.getLastAddConfirmed(), len(entries) + _WINDOW - 1))
                while found.hasMoreElements():
                    entry = found.nextElement()
                    assert entry.getEntryId() == len(entries)
                    entries.append(bytes(entry.getEntry()))
        finally:
            handle.close()
        return entries

    def delete(self, servers: str, ledger_id: int) -> None:
        self._client(servers).deleteLedger(ledger_id)

    def custom_metadata(self, servers: str, ledger_id: int) -> dict[str, bytes]:
        metadata = self._client(servers).getLedgerMetadata(ledger_id).get().getCustomMetadata()
        return {str(name): bytes(metadata.get(name)) for name in metadata.keySet().toArray()}
