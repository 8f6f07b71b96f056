"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one from the target; the journal records the id before the ledger is
created.

The source is never changed: ledgers are opened without recovery, so no live owner is fenced. The target is never
overwritten, and only ledgers that both the journal and their provenance property mark as ours are deleted there. After
a kill at any moment, the same call finds the existing copy and reports it.
"""

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import msgspec
import structlog

from connectors.bookkeeper.copy_groups import (
    CopyGroups,
    CopyTask,
    JavaTask,
    JavaTasks,
    NewIdIntendedError,
    TaskResult,
    identify,
)
from connectors.bookkeeper.copy_journal import (
    PROVENANCE,
    CopyJournal,
    CopyOutcome,
    CopyRecord,
    CopyResult,
    DeleteOutcome,
    DeleteResult,
    outcome_of_failure,
)
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JavaResult, JvmDiedError
from connectors.bookkeeper.settings import CopyReplication
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout
from policies.units import MAX_INT64, UserError

# The two clusters of a ledger copy: addresses, credentials, and the configuration of the Java client for each.

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


CONCURRENCY = 16
WINDOW_BYTES = 4 * 1024 * 1024

_log = structlog.get_logger(__name__)


class _NotPreparedError(Exception):
    """Java could not answer a request that must precede a copy."""

    def __init__(self, answer: JavaResult) -> None:
        super().__init__(answer.detail or answer.status)
        self.outcome = outcome_of_failure(answer.phase or "", answer.code)


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
        self._groups = CopyGroups(journal, self._tasks, replication.model_dump() if replication else {})
        self._timeout_seconds = timeout.total_seconds()
        self._bytes_per_second = 0
        self._java_settings = partial(java_settings, source, target, concurrency, self._timeout_seconds, window_bytes)
        self._lock = threading.Lock()
        self._java: JavaTasks | None = None

    def make_ready(self) -> None:
        """Start the JVM and both clients, which saves the first copy some seconds.

        Raises:
            JvmDiedError: the JVM cannot be started, or died again.
            JavaError: Java threw an unexpected exception.
        """
        self._tasks()

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy one ledger, or report the ledger that has its id in the target. Every failure is an outcome.

        Args:
            new_id: copy the ledger under an id from the target. Another call for the ledger uses the same id. If our
                copy already exists under the old id, it counts; so take the id from the target's facts.

        Raises:
            ValueError: this is no ledger's id; -1 means "no ledger".
        """
        _check(ledger_id)
        return _logged(_result_of(ledger_id, partial(self._copy, ledger_id, new_id)))

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete our copy from the target and from the journal. Raises ValueError as `copy` does."""
        _check(ledger_id)
        try:
            record = self.journal.find(ledger_id)
            if record is None:
                return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no copy of it was ever journalled")
            result = self._delete(ledger_id, {"kind": "delete_own", **identify(record)})
            if result.outcome in (DeleteOutcome.DELETED, DeleteOutcome.ABSENT):
                self.journal.forget(record)
        except ZnodeConflictError as error:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, str(error))
        except ZnodeError as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        return result

    def delete_old(self, ledger_id: int) -> DeleteResult:
        """Delete a ledger from the source if it was copied completely and is unchanged. Raises as `copy` does."""
        _check(ledger_id)
        try:
            record = self.journal.find(ledger_id)
        except ZnodeConflictError as error:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, str(error))
        except ZnodeError as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        if record is None or record.copied is None:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no complete copy of it is journalled")
        expected = {name: getattr(record.copied, name) for name in ("length_bytes", "last_entry_id", "created_ms")}
        return self._delete(ledger_id, {"kind": "delete_old", **expected})

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes that all copies together write in a second; 0 is no limit."""
        with self._lock:
            self._bytes_per_second = bytes_per_second
            if self._java is not None and self._java.remote.is_usable:
                try:
                    self._java.remote.limit(bytes_per_second)
                except (JvmDiedError, JavaError) as error:  # the next JVM starts with the limit
                    _log.debug("limiting the ledger copier", error=str(error))

    def close(self) -> None:
        """Close the clients of both clusters; the next use opens them again."""
        with self._lock:
            java, self._java = self._java, None
        if java is not None and java.remote.is_usable:
            try:
                java.remote.close()
            except (JvmDiedError, JavaError) as error:
                _log.debug("closing the ledger copier", error=str(error))

    def _copy(self, ledger_id: int, new_id: bool) -> CopyResult:
        if new_id:
            return self._copy_under_new_id(ledger_id)
        if (
            self.journal.came_from_target(ledger_id)
            and self._find_state(ledger_id, {"provenance": "", "target_id": ledger_id}) == "missing"
        ):
            detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
            return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=detail)
        # An earlier intent for a new id counts only while our copy under that id exists.
        try:
            return self._groups.copy(CopyTask(ledger_id))
        except NewIdIntendedError as error:
            if self._exists(error.record):
                raise
            self.journal.forget(error.record)
        return self._groups.copy(CopyTask(ledger_id))

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
        result = self._groups.copy(CopyTask(ledger_id, record))
        is_lost = result.outcome is CopyOutcome.FOREIGN_CONFLICT and record.target_id is not None
        if not is_lost or record.copied is not None:  # a copied ledger that became foreign needs a person
            return result
        # Another client created a ledger under the new id first, so the next copy draws another id.
        self.journal.forget(record)
        detail = f"id {record.target_id}, which the target gave, was taken by others: the next try gets another one"
        return CopyResult(result.ledger_id, CopyOutcome.FAILED, source=result.source, detail=detail)

    def _exists(self, record: CopyRecord) -> bool:
        return self._find_state(record.ledger_id, identify(record)) == "own"

    def _find_state(self, ledger_id: int, identity: Mapping[str, object]) -> str:
        """Return the state of an id in the target: `own`, `foreign`, or `missing`."""
        answer = self._run(ledger_id, {"kind": "look", **identity})
        if answer.status not in ("own", "foreign", "missing"):
            raise _NotPreparedError(answer)
        return answer.status

    def _delete(self, ledger_id: int, request: dict[str, object]) -> DeleteResult:
        try:
            answer = self._run(ledger_id, request)
        except (JvmDiedError, JavaError) as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        match answer.status:
            case "deleted":
                return DeleteResult(ledger_id, DeleteOutcome.DELETED)
            case "missing":
                return DeleteResult(ledger_id, DeleteOutcome.ABSENT)
            case "refused":
                return DeleteResult(ledger_id, DeleteOutcome.REFUSED, "the ledger there is not the journalled one")
        return DeleteResult(ledger_id, DeleteOutcome.FAILED, answer.detail or answer.status)

    def _run(self, ledger_id: int, request: Mapping[str, object]) -> JavaResult:
        """Run a request that is no copy."""
        task = JavaTask(ledger_id, request)
        self._tasks().begin([task])
        return task.answer.result()

    def _tasks(self) -> JavaTasks:
        with self._lock:
            if self._java is None or not self._java.remote.is_usable:
                remote = self._jvm.new_copier(self._java_settings(self._bytes_per_second))
                self._java = JavaTasks(remote, self._ended)
            return self._java

    def _ended(self, tasks: Sequence[tuple[JavaTask, TaskResult]]) -> None:
        self._groups.end([(task, answer) for task, answer in tasks if isinstance(task, CopyTask)])
        for task, answer in tasks:
            task.end(answer)


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")


def _result_of(ledger_id: int, copy: Callable[[], CopyResult]) -> CopyResult:
    """Return the result, or the outcome of the failure."""
    try:
        return copy()
    except ZnodeConflictError as error:
        return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=str(error))
    except _NotPreparedError as error:
        return CopyResult(ledger_id, error.outcome, detail=str(error))
    except (ZnodeError, NewIdIntendedError, JvmDiedError, JavaError) as error:
        return CopyResult(ledger_id, CopyOutcome.FAILED, detail=str(error))


def _logged(result: CopyResult) -> CopyResult:
    log = _log.debug if result.outcome in (CopyOutcome.COPIED, CopyOutcome.BUILT) else _log.warning
    log("ledger copy ended", ledger=result.ledger_id, outcome=result.outcome.value, detail=result.detail)
    return result
