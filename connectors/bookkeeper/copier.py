"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one from the target; the journal records the id before the ledger is
created.

The source is never changed: ledgers are opened without recovery, so no live owner is fenced. The target is never
overwritten, and only ledgers that both the journal and their provenance property mark as ours are deleted there. After
a kill at any moment, the same call finds the existing copy and reports it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

import msgspec
import structlog
from msgspec import structs
from pydantic import BaseModel, ConfigDict

from connectors.bookkeeper.copy_journal import PROVENANCE, CopiedLedger, CopyJournal, CopyRecord
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError
from connectors.bookkeeper.settings import CopyReplication
from connectors.zookeeper.json_znodes import ZnodeConflictError, ZnodeError
from connectors.zookeeper.settings import ZooKeeperConnection
from policies.switching.ledgers import Layout, Ledger, same_ledger
from policies.units import MAX_INT64, UserError

CONCURRENCY = 16
WINDOW_BYTES = 1024 * 1024
"""All copies together read 16 MiB at a time, because bookies have other readers, too."""

_log = structlog.get_logger(__name__)


class CopyOutcome(StrEnum):
    """The outcome of a copy or a deletion."""

    COPIED = "copied"
    """The copy was written, closed, read back, and is equal."""
    BUILT = "built"
    """Our earlier copy exists, complete and equal."""
    OWN_PARTIAL = "own_partial"
    """Our earlier copy exists and is incomplete: delete it and copy again."""
    FOREIGN_CONFLICT = "foreign_conflict"
    """The id belongs to a ledger of somebody else, or is journalled for another source. It was not changed."""
    SOURCE_OPEN = "source_open"
    """The ledger has a writer, or is in recovery: its owner must close it first."""
    SOURCE_UNREADABLE = "source_unreadable"
    """The ledger does not exist, or not all of its entries can be read."""
    COPY_DIFFERS = "copy_differs"
    """The copy was written and closed, and differs from the source when read back."""
    DELETED = "deleted"
    """The metadata are removed, now or before; the bookies delete the entries later."""
    NOT_RECORDED = "not_recorded"
    """The journal does not have it as our copy, or as a complete copy. Nothing was deleted."""
    REFUSED = "refused"
    """The existing ledger is not the journalled one. Nothing was deleted."""
    FAILED = "failed"
    """A cluster, the journal or the JVM does not answer, or refuses: to be tried again."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy or a deletion."""

    outcome: CopyOutcome
    source: Ledger | None = None
    """The source's ledger, as far as it was read; with the digest of its entries once all were read."""
    target: Ledger | None = None
    """The target's ledger without our provenance property, for comparison with the source."""
    detail: str = ""


class JavaResult(BaseModel):
    """Java's answer to a request."""

    model_config = ConfigDict(frozen=True)

    status: str
    source: Ledger | None = None
    target: Ledger | None = None
    phase: str = ""
    """The failed phase: `source-…` or `target-…`."""
    code: int | None = None
    """The failure's `BKException.Code`; 0 or None for any other exception."""
    detail: str = ""
    new_id: int | None = None

    def outcome(self) -> CopyOutcome:
        """Return the outcome of a failure: a source that answers and cannot be read is not tried again."""
        side, _, step = self.phase.partition("-")
        is_unreachable = step == "connect" or self.code in (_UNREACHABLE if step == "read" else _SILENT)
        return CopyOutcome.SOURCE_UNREADABLE if side == "source" and not is_unreachable else CopyOutcome.FAILED


_ZOOKEEPER, _META_STORE, _QUORUM_TIMEOUT, _TIMEOUT, _BUSY = -9, -18, -21, -23, -105
_UNREACHABLE = frozenset({_ZOOKEEPER, _META_STORE, _BUSY})
_SILENT = _UNREACHABLE | {_TIMEOUT, _QUORUM_TIMEOUT}

_COPIES = {
    "copied": (CopyOutcome.COPIED, CopyOutcome.COPY_DIFFERS),
    "own_closed": (CopyOutcome.BUILT, CopyOutcome.OWN_PARTIAL),
    "own_partial": (CopyOutcome.OWN_PARTIAL, CopyOutcome.OWN_PARTIAL),
    "foreign": (CopyOutcome.FOREIGN_CONFLICT, CopyOutcome.FOREIGN_CONFLICT),
    "source_open": (CopyOutcome.SOURCE_OPEN, CopyOutcome.SOURCE_OPEN),
}
"""The outcome of a copy by Java's status, if both ledgers are equal, and if they are not."""
_OURS = frozenset({"copied", "own_closed", "own_partial"})
"""States in which Java found the journalled provenance in the target's ledger."""
_WHOLE = frozenset({CopyOutcome.COPIED, CopyOutcome.BUILT})
COMPARED = ("length_bytes", "last_entry_id", "created_ms")
"""The source's facts that must be as they were when it was copied."""


class _FailedError(Exception):
    """Java could not carry out a request."""

    def __init__(self, answer: JavaResult) -> None:
        super().__init__(": ".join(filter(None, (answer.phase, answer.detail))) or answer.status)
        self.outcome = answer.outcome()


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
        jvm: the JVM of the client, which belongs to this copier.
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
        self._settings: dict[str, object] = {
            "source": source.for_java(seconds),
            "target": target.for_java(seconds),
            "provenance_name": PROVENANCE,
            "timeout_ms": round(seconds * 1000),
            "window_bytes": window_bytes,
            "concurrency": concurrency,
            "bytes_per_second": 0,
        }

    def make_ready(self) -> None:
        """Start the JVM and both clients, unless they run: that saves the first copy some seconds.

        Raises JvmDiedError if the JVM cannot be started.
        """
        self._jvm.start(self._settings_json())

    def copy(self, ledger_id: int, *, new_id: bool = False) -> CopyResult:
        """Copy one ledger, or report the ledger that has its id in the target. Every failure is an outcome.

        Args:
            new_id: copy the ledger under an id from the target. Another call for the ledger uses the same id. If our
                copy already exists under the old id, it counts; so take the id from the target's ledger.

        Raises:
            ValueError: this is no ledger's id; -1 means "no ledger".
        """
        _check(ledger_id)
        try:
            result = self._copy_under_new_id(ledger_id) if new_id else self._copy_under_own_id(ledger_id)
        except ZnodeConflictError as error:
            result = CopyResult(CopyOutcome.FOREIGN_CONFLICT, detail=str(error))
        except _FailedError as error:
            result = CopyResult(error.outcome, detail=str(error))
        except (ZnodeError, JvmDiedError, JavaError) as error:
            result = CopyResult(CopyOutcome.FAILED, detail=str(error))
        log = _log.debug if result.outcome in _WHOLE else _log.warning
        log("ledger copy ended", ledger=ledger_id, outcome=result.outcome.value, detail=result.detail)
        return result

    def delete(self, ledger_id: int, *, own: bool) -> CopyResult:
        """Delete our copy from the target and from the journal; or a ledger from the source. Raises as `copy` does.

        The source's ledger must be unchanged since it was copied completely. Every failure is an outcome.
        """
        _check(ledger_id)
        try:
            record = self.journal.find(ledger_id)
            if record is None or not (own or record.copied):
                return CopyResult(CopyOutcome.NOT_RECORDED, detail="no complete copy of it is journalled")
            expected = _identity(record) if own else {name: getattr(record.copied, name) for name in COMPARED}
            if self._run(ledger_id, "delete_own" if own else "delete_old", expected).status == "refused":
                return CopyResult(CopyOutcome.REFUSED, detail="the ledger there is not the journalled one")
            if own:
                self.journal.forget(record)
        except ZnodeConflictError as error:
            return CopyResult(CopyOutcome.NOT_RECORDED, detail=str(error))
        except (_FailedError, ZnodeError, JvmDiedError, JavaError) as error:
            return CopyResult(CopyOutcome.FAILED, detail=str(error))
        return CopyResult(CopyOutcome.DELETED)

    def limit(self, bytes_per_second: int) -> None:
        """Limit the bytes that all copies together write in a second; 0 is no limit."""
        self._settings["bytes_per_second"] = bytes_per_second
        try:
            self._jvm.limit(bytes_per_second)
        except (JvmDiedError, JavaError) as error:  # the next JVM starts with the limit
            _log.debug("limiting the ledger copier", error=str(error))

    def close(self) -> None:
        """End the JVM; the next use starts another one."""
        self._jvm.close()

    def _copy_under_own_id(self, ledger_id: int) -> CopyResult:
        if self.journal.came_from_target(ledger_id) and self._find_state(ledger_id, "", ledger_id) == "missing":
            detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
            return CopyResult(CopyOutcome.FOREIGN_CONFLICT, detail=detail)
        # An earlier intent for a new id counts only while our copy under that id exists.
        while (record := self.journal.intend(ledger_id)).target_id is not None:
            if self._exists(record):
                detail = f"our copy of it has id {record.target_id} in the target: it cannot have its own as well"
                return CopyResult(CopyOutcome.FAILED, detail=detail)
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
            record = self.journal.intend(ledger_id, self._run(ledger_id, "new_id", {}).new_id)
        result = self._copy(record)
        is_lost = result.outcome is CopyOutcome.FOREIGN_CONFLICT and record.target_id is not None
        if not is_lost or record.copied is not None:  # a copied ledger that became foreign needs a person
            return result
        # Another client created a ledger under the new id first, so the next copy draws another id.
        self.journal.forget(record)
        detail = f"id {record.target_id}, which the target gave, was taken by others: the next try gets another one"
        return CopyResult(CopyOutcome.FAILED, source=result.source, detail=detail)

    def _copy(self, record: CopyRecord) -> CopyResult:
        """Make the copy of a journalled intent, and record in the journal that the copy is equal."""
        result = copy_result(record, self._run(record.ledger_id, "copy", {**_identity(record), **self._sizes}))
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
        return self._find_state(record.ledger_id, record.provenance, record.id_in_target) == "own"

    def _find_state(self, ledger_id: int, provenance: str, target_id: int) -> str:
        """Return the state of an id in the target: `own`, `foreign`, or `missing`."""
        return self._run(ledger_id, "look", {"provenance": provenance, "target_id": target_id}).status

    def _run(self, ledger_id: int, kind: str, more: Mapping[str, object]) -> JavaResult:
        request = msgspec.json.encode({"ledger_id": ledger_id, "kind": kind, **more}).decode()
        answer = JavaResult.model_validate_json(self._jvm.run(request, self._settings_json()))
        if answer.status == "failed":
            raise _FailedError(answer)
        return answer

    def _settings_json(self) -> str:
        return msgspec.json.encode(self._settings).decode()


def copy_result(record: CopyRecord, answer: JavaResult) -> CopyResult:
    """Make the result of a copy from Java's answer, by the policy's own rule for equal ledgers.

    But for the id in the target, which may be another one, everything must be equal.
    """
    source, target = _without_mark(answer.source), _without_mark(answer.target)
    if target is not None:
        target = structs.replace(target, provenance=record.source if answer.status in _OURS else "")
    is_equal = (
        source is not None
        and target is not None
        and target.ledger_id == record.id_in_target
        and same_ledger(source, structs.replace(target, ledger_id=source.ledger_id))
    )
    return CopyResult(_COPIES[answer.status][not is_equal], source=source, target=target)


def _without_mark(ledger: Ledger | None) -> Ledger | None:
    """Return a ledger without our provenance property, which is not part of the copied ledger."""
    if ledger is None:
        return None
    custom = {name: value for name, value in ledger.custom_metadata.items() if name != PROVENANCE}
    return structs.replace(ledger, custom_metadata=custom)


def _identity(record: CopyRecord) -> dict[str, object]:
    """Return the identity of the copy in the target, for Java."""
    return {"provenance": record.provenance, "target_id": record.id_in_target}


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
