"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one from the target; the journal records the id before the ledger is
created.

The source is never changed: ledgers are opened without recovery, so no live owner is fenced. The target is never
overwritten, and only ledgers that both the journal and their provenance property mark as ours are deleted there. After
a kill at any moment, the same call finds the existing copy and reports it.
"""

import base64
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import msgspec
import structlog

from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, CopyRecord
from connectors.bookkeeper.copy_results import (
    CopyOutcome,
    CopyResult,
    DeleteOutcome,
    DeleteResult,
    JavaResult,
    copy_result,
    outcome_of_failure,
)
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError, RemoteCopier
from connectors.bookkeeper.settings import CopyReplication
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout
from policies.units import MAX_INT64, UserError

CONCURRENCY = 16
WINDOW_BYTES = 1024 * 1024
"""All copies together read 16 MiB at a time, because bookies have other readers, too."""

_WHOLE = frozenset({CopyOutcome.COPIED, CopyOutcome.BUILT})
_DELETIONS = {
    "deleted": (DeleteOutcome.DELETED, ""),
    "missing": (DeleteOutcome.ABSENT, ""),
    "refused": (DeleteOutcome.REFUSED, "the ledger there is not the journalled one"),
}
"""Java's answers to a deletion; any other is a failure."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerCluster:
    """A BookKeeper cluster, with its credentials."""

    instance_id: str
    """The content of its `INSTANCEID`."""
    metadata_service_uri: str
    """BookKeeper's address of the metadata, such as `zk+hierarchical://zk-1:2181;zk-2:2181/ledgers`."""
    password: bytes = field(default=b"", repr=False)
    """The password of its ledgers; Pulsar's managed ledgers have an empty one by default."""

    def for_java(self, timeout_seconds: float) -> dict[str, object]:
        """Return the settings of BookKeeper's client for it."""
        # The client's own timeouts end first, with a reason; each of its requests may take several attempts.
        seconds = max(1, round(timeout_seconds / 3))
        properties = {
            "metadataServiceUri": self.metadata_service_uri,
            "zkTimeout": str(1000 * seconds),
            "addEntryTimeoutSec": str(seconds),
            "readEntryTimeoutSec": str(seconds),
            # Pulsar's brokers use this protocol, too. Without protobuf, client and bookies do less work.
            "useV2WireProtocol": "true",
            "numIOThreads": "2",
            "numWorkerThreads": "2",
        }
        return {"properties": properties, "password": base64.b64encode(self.password).decode()}


def metadata_service_uri(connection: ZooKeeperConnection, root: str, layout: Layout) -> str:
    """Return the address of a cluster's metadata, such as ``zk+hierarchical://zk-1:2181;zk-2:2181/pulsar/ledgers``.

    The connection's credentials are not used. `root` is the path of its ledgers below the chroot, such as ``/ledgers``.
    """
    # BookKeeper splits at semicolons; a comma would be part of a host's name.
    return f"zk+{layout.value}://{';'.join(connection.hosts())}{connection.chroot}{root.rstrip('/')}"


class LedgerCopier:
    """Copies and deletes ledgers. Safe to use from many threads; close it.

    Args:
        jvm: the JVM of the client; shared by many copiers, and closed by its owner.
        journal: the journal of copies from this source to this target.
        replication: the copies' ensemble and quorums; None for those of the source.
        concurrency: number of ledgers to copy in parallel.
        window_bytes: bytes of a ledger to read at once, estimated by its entries so far; a copy holds two windows.

    Raises:
        UserError: source and target are the same cluster.
    """

    def __init__(
        self,
        jvm: BookKeeperJvm,
        source: LedgerCluster,
        target: LedgerCluster,
        journal: CopyJournal,
        *,
        replication: CopyReplication | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta = timedelta(seconds=30),
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        if source.instance_id == target.instance_id:
            raise UserError(f"source and target are the same BookKeeper cluster ({source.instance_id}): name another.")
        self._jvm = jvm
        self.journal = journal
        self._sizes = replication.model_dump() if replication else {}
        seconds = timeout.total_seconds()
        self._settings = {
            "source": source.for_java(seconds),
            "target": target.for_java(seconds),
            "provenance_name": PROVENANCE,
            "timeout_ms": round(seconds * 1000),
            "window_bytes": window_bytes,
            "concurrency": concurrency,
            "bytes_per_second": 0,
        }
        self._lock = threading.Lock()
        self._java: RemoteCopier | None = None

    def make_ready(self) -> RemoteCopier:
        """Start the JVM and both clients, unless they run: that saves the first copy some seconds.

        Raises:
            JvmDiedError: the JVM cannot be started, or died again.
            JavaError: Java threw an unexpected exception.
        """
        with self._lock:
            if self._java is None or not self._java.is_usable:
                self._java = self._jvm.new_copier(msgspec.json.encode(self._settings).decode())
            return self._java

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy one ledger, or report the ledger that has its id in the target. Every failure is an outcome.

        Args:
            new_id: copy the ledger under an id from the target. Another call for the ledger uses the same id. If our
                copy already exists under the old id, it counts; so take the id from the target's facts.

        Raises:
            ValueError: this is no ledger's id; -1 means "no ledger".
        """
        _check(ledger_id)
        try:
            result = self._copy_under_new_id(ledger_id) if new_id else self._copy_under_own_id(ledger_id)
        except ZnodeConflictError as error:
            result = CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=str(error))
        except _NotPreparedError as error:
            result = CopyResult(ledger_id, error.outcome, detail=str(error))
        except (ZnodeError, JvmDiedError, JavaError) as error:
            result = CopyResult(ledger_id, CopyOutcome.FAILED, detail=str(error))
        log = _log.debug if result.outcome in _WHOLE else _log.warning
        log("ledger copy ended", ledger=ledger_id, outcome=result.outcome.value, detail=result.detail)
        return result

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete our copy from the target and from the journal. Raises ValueError as `copy` does."""

        def delete(record: CopyRecord | None) -> DeleteResult:
            if record is None:
                return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no copy of it was ever journalled")
            result = self._delete(ledger_id, {"kind": "delete_own", **record.identity()})
            if result.outcome in (DeleteOutcome.DELETED, DeleteOutcome.ABSENT):
                self.journal.forget(record)
            return result

        return self._delete_recorded(ledger_id, delete)

    def delete_old(self, ledger_id: int) -> DeleteResult:
        """Delete a ledger from the source if it was copied completely and is unchanged. Raises as `copy` does."""

        def delete(record: CopyRecord | None) -> DeleteResult:
            if record is None or record.copied is None:
                return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no complete copy of it is journalled")
            expected = {name: getattr(record.copied, name) for name in ("length_bytes", "last_entry_id", "created_ms")}
            return self._delete(ledger_id, {"kind": "delete_old", **expected})

        return self._delete_recorded(ledger_id, delete)

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes that all copies together write in a second; 0 is no limit."""
        with self._lock:
            self._settings["bytes_per_second"] = bytes_per_second
            if self._java is not None and self._java.is_usable:
                try:
                    self._java.limit(bytes_per_second)
                except (JvmDiedError, JavaError) as error:  # the next JVM starts with the limit
                    _log.debug("limiting the ledger copier", error=str(error))

    def close(self) -> None:
        """Close the clients of both clusters; the next use opens them again."""
        with self._lock:
            java, self._java = self._java, None
        if java is not None and java.is_usable:
            try:
                java.close()
            except (JvmDiedError, JavaError) as error:
                _log.debug("closing the ledger copier", error=str(error))

    def _copy_under_own_id(self, ledger_id: int) -> CopyResult:
        if (
            self.journal.came_from_target(ledger_id)
            and self._find_state(ledger_id, {"provenance": "", "target_id": ledger_id}) == "missing"
        ):
            detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
            return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=detail)
        # An earlier intent for a new id counts only while our copy under that id exists.
        while (record := self.journal.intend(ledger_id)).target_id is not None:
            if self._exists(record):
                detail = f"our copy of it has id {record.target_id} in the target: it cannot have its own as well"
                return CopyResult(ledger_id, CopyOutcome.FAILED, detail=detail)
            self.journal.forget(record)
        return self._copy(record)

    def _copy_under_new_id(self, ledger_id: int) -> CopyResult:
        """Draw the new id before the intent is written, so that it is drawn once.

        An earlier intent for the ledger's own id counts only while our copy under that id exists.
        """
        record = self.journal.find(ledger_id)
        if record is not None and record.target_id is None and not self._exists(record):
            self.journal.forget(record)
            record = None
        if record is None:
            answer = self._run(ledger_id, {"kind": "new_id"})
            if answer.new_id is None:
                raise _NotPreparedError(answer)
            record = self.journal.intend(ledger_id, answer.new_id)
        result = self._copy(record)
        is_lost = result.outcome is CopyOutcome.FOREIGN_CONFLICT and record.target_id is not None
        if not is_lost or record.copied is not None:  # a copied ledger that became foreign needs a person
            return result
        # Another client created a ledger under the new id first, so the next copy draws another id.
        self.journal.forget(record)
        detail = f"id {record.target_id}, which the target gave, was taken by others: the next try gets another one"
        return CopyResult(result.ledger_id, CopyOutcome.FAILED, source=result.source, detail=detail)

    def _copy(self, record: CopyRecord) -> CopyResult:
        """Make the copy of a journalled intent, and record in the journal that the copy is equal."""
        answer = self._run(record.ledger_id, {"kind": "copy", **record.identity(), **self._sizes})
        result = copy_result(record, answer)
        if result.outcome not in _WHOLE or result.source is None:
            return result
        copied = CopiedLedger(
            length_bytes=result.source.length_bytes,
            last_entry_id=result.source.last_entry_id,
            entries_digest=result.source.entries_digest or "",
            created_ms=result.source.created_ms or 0,
        )
        try:
            self.journal.complete(record, copied)
        except ZnodeError as error:
            return replace(result, outcome=CopyOutcome.FAILED, detail=str(error))
        return result

    def _exists(self, record: CopyRecord) -> bool:
        return self._find_state(record.ledger_id, record.identity()) == "own"

    def _find_state(self, ledger_id: int, identity: Mapping[str, object]) -> str:
        """Return the state of an id in the target: `own`, `foreign`, or `missing`."""
        answer = self._run(ledger_id, {"kind": "look", **identity})
        if answer.status not in ("own", "foreign", "missing"):
            raise _NotPreparedError(answer)
        return answer.status

    def _delete_recorded(self, ledger_id: int, delete: Callable[[CopyRecord | None], DeleteResult]) -> DeleteResult:
        """Delete by the journal's record; every failure is an outcome."""
        _check(ledger_id)
        try:
            return delete(self.journal.find(ledger_id))
        except ZnodeConflictError as error:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, str(error))
        except (ZnodeError, JvmDiedError, JavaError) as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))

    def _delete(self, ledger_id: int, request: Mapping[str, object]) -> DeleteResult:
        answer = self._run(ledger_id, request)
        failure = (DeleteOutcome.FAILED, answer.detail or answer.status)
        return DeleteResult(ledger_id, *_DELETIONS.get(answer.status, failure))

    def _run(self, ledger_id: int, request: Mapping[str, object]) -> JavaResult:
        answer = self.make_ready().run(msgspec.json.encode({"ledger_id": ledger_id, **request}).decode())
        return msgspec.json.decode(answer, type=JavaResult)


class _NotPreparedError(Exception):
    """Java could not answer a request that must precede a copy."""

    def __init__(self, answer: JavaResult) -> None:
        super().__init__(answer.detail or answer.status)
        self.outcome = outcome_of_failure(answer.phase or "", answer.code)


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
