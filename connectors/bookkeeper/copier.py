"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one that the target gives; which one, the journal knows before it is
created.

Nothing in the source is changed: ledgers are opened without recovery, so no live owner is fenced. Nothing in the target
is overwritten, and only what the journal and the ledger's own provenance say is ours is ever deleted there. Killed at
any moment, the same call again finds what is there and says so.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import timedelta
from functools import partial

import msgspec
import structlog

from connectors.bookkeeper.copy_clusters import LedgerCluster, Replication, java_settings
from connectors.bookkeeper.copy_journal import (
    CopiedLedger,
    CopyJournal,
    CopyJournalConflictError,
    CopyJournalError,
    CopyRecord,
)
from connectors.bookkeeper.copy_outcomes import (
    CopyOutcome,
    CopyResult,
    DeleteOutcome,
    DeleteResult,
    outcome_of_failure,
)
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError, RemoteCopier
from connectors.bookkeeper.java_results import JavaResult, copy_result
from policies.errors import UserError
from policies.units import MAX_INT64

CONCURRENCY = 16
WINDOW_BYTES = 4 * 1024 * 1024
_POLL_MS = 250
_STALLS = 4
"""After so many time-outs of one request without an entry more, a copy is given up."""

Progress = Callable[[int, int, int], None]
"""Takes a ledger's id, and the entries and bytes read of it so far; called from the threads that copy."""

_log = structlog.get_logger(__name__)


class _NotPreparedError(Exception):
    """What must be known before a copy is created could not be found out; the answer says why."""

    def __init__(self, answer: JavaResult) -> None:
        super().__init__(answer.detail or answer.status)
        self.outcome = (
            CopyOutcome.TIMED_OUT
            if answer.status == "cancelled"
            else outcome_of_failure(answer.phase or "", answer.code)
        )


class LedgerCopier:
    """Copies and deletes ledgers. Safe to use from many threads; close it.

    Args:
        jvm: where the client runs; shared by many copiers, and closed by its owner.
        source: where ledgers are read.
        target: where they are created.
        journal: of copies from this source to this target.
        replication: of the copies; None: as in the source.
        concurrency: how many ledgers at once.
        timeout: how long one request of the client may take.
        window_bytes: how much of a ledger is read at once, by the size of its entries so far; a copy holds two windows.

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
        replication: Replication | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta = timedelta(seconds=30),
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        if source.instance_id == target.instance_id:
            raise UserError(f"source and target are the same BookKeeper cluster ({source.instance_id}): name another.")
        self._jvm = jvm
        self._journal = journal
        self._sizes = asdict(replication) if replication else {}
        self._concurrency = concurrency
        self._timeout_seconds = timeout.total_seconds()
        self._bytes_per_second = 0
        self._java_settings = partial(java_settings, source, target, concurrency, self._timeout_seconds, window_bytes)
        self._lock = threading.Lock()
        self._remote: RemoteCopier | None = None
        self._numbers = itertools.count()

    def copy(self, ledger_id: int, progress: Progress | None = None, *, new_id: bool = False) -> CopyResult:
        """Copy one ledger, or say what stands in its place. Every failure is an outcome.

        Args:
            ledger_id: in the source.
            progress: is told how far it is.
            new_id: copy it under an id that the target gives. Asked again, it has the id that it was given once; and
                a copy of ours that stands under the old id already is taken for it, so the target's facts say the id.

        Raises:
            ValueError: this is no ledger's id; -1 means "no ledger".
        """
        _check(ledger_id)
        started = time.monotonic()
        result = self._copy(ledger_id, progress, started, new_id)
        say = _log.debug if result.outcome in (CopyOutcome.COPIED, CopyOutcome.BUILT) else _log.warning
        say("ledger copy ended", ledger=ledger_id, outcome=result.outcome.value, detail=result.detail)
        return result

    def copy_many(self, ledger_ids: Iterable[int], progress: Progress | None = None) -> Iterator[CopyResult]:
        """Copy ledgers, so many at once; results come as they are known. Raises as `copy` does.

        Whoever stops taking results waits for the copies under way only.
        """
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="ledger copy") as pool:
            pending: set[Future[CopyResult]] = set()
            for ledger_id in ledger_ids:
                if len(pending) >= self._concurrency:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in done)
                pending.add(pool.submit(self.copy, ledger_id, progress))
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete our own copy from the target, and forget it. Raises ValueError as `copy` does."""
        _check(ledger_id)
        try:
            record = self._journal.find(ledger_id)
            if record is None:
                return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no copy of it was ever journalled")
            result = self._delete(ledger_id, {"kind": "delete_own", **_named(record)})
            if result.outcome in (DeleteOutcome.DELETED, DeleteOutcome.ABSENT):
                self._journal.forget(record)
        except CopyJournalConflictError as error:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, str(error))
        except CopyJournalError as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        return result

    def delete_old(self, ledger_id: int) -> DeleteResult:
        """Delete from the source what was copied to its end and is still the same. Raises ValueError as `copy` does."""
        _check(ledger_id)
        try:
            record = self._journal.find(ledger_id)
        except CopyJournalConflictError as error:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, str(error))
        except CopyJournalError as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        if record is None or record.copied is None:
            return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no complete copy of it is journalled")
        expected = {name: getattr(record.copied, name) for name in ("length_bytes", "last_entry_id", "created_ms")}
        return self._delete(ledger_id, {"kind": "delete_old", **expected})

    def limit(self, bytes_per_second: int) -> None:
        """Copy no more than so much in a second, over all ledgers, from now on; 0 is no limit."""
        with self._lock:
            self._bytes_per_second = bytes_per_second
            if self._remote is not None and self._remote.is_usable:
                try:
                    self._remote.limit(bytes_per_second)
                except (JvmDiedError, JavaError) as error:  # the next one is made with the limit
                    _log.debug("limiting the ledger copier", error=str(error))

    def close(self) -> None:
        """Close the clients of both clusters; the next use opens them again."""
        with self._lock:
            remote, self._remote = self._remote, None
        if remote is not None and remote.is_usable:
            try:
                remote.close()
            except (JvmDiedError, JavaError) as error:
                _log.debug("closing the ledger copier", error=str(error))

    def _copy(self, ledger_id: int, progress: Progress | None, started: float, new_id: bool) -> CopyResult:
        try:
            if not new_id and self._journal.came_from_target(ledger_id) and self._is_missing(ledger_id):
                detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
                return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=detail)
            record = self._intended(ledger_id, new_id)
            if record.target_id is not None and not new_id:
                detail = f"our copy of it has id {record.target_id} in the target: it cannot have its own as well"
                return CopyResult(ledger_id, CopyOutcome.TARGET_FAILED, detail=detail)
            answer = self._run(ledger_id, {"kind": "copy", **_named(record), **self._sizes}, progress)
            result = copy_result(ledger_id, answer, record.source, time.monotonic() - started, record.target_id)
            if result.outcome is CopyOutcome.FOREIGN_CONFLICT and record.target_id is not None:
                return self._taken(record, result)
        except CopyJournalConflictError as error:
            return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=str(error))
        except CopyJournalError as error:
            return CopyResult(ledger_id, CopyOutcome.JOURNAL_FAILED, detail=str(error))
        except _NotPreparedError as error:
            return CopyResult(ledger_id, error.outcome, detail=str(error))
        except JvmDiedError as error:
            return CopyResult(ledger_id, CopyOutcome.JVM_DIED, detail=str(error))
        except JavaError as error:
            return CopyResult(ledger_id, CopyOutcome.INTERNAL_ERROR, detail=str(error))
        return self._journalled(record, result)

    def _intended(self, ledger_id: int, new_id: bool) -> CopyRecord:
        """Its record, written before anything is created; a new id is drawn before that, so that it is drawn once.

        What was once journalled for the other way of copying stands only as long as a copy of ours does.
        """
        record = self._journal.find(ledger_id) if new_id else self._journal.intend(ledger_id)
        if record is not None and (record.target_id is not None) is not new_id and not self._stands(record):
            self._journal.forget(record)
            record = None
        return record or self._journal.intend(ledger_id, self._new_id(ledger_id) if new_id else None)

    def _stands(self, record: CopyRecord) -> bool:
        return self._look(record.ledger_id, _named(record)) == "own"

    def _is_missing(self, ledger_id: int) -> bool:
        return self._look(ledger_id, {"provenance": "", "target_id": ledger_id}) == "missing"

    def _look(self, ledger_id: int, named: Mapping[str, object]) -> str:
        """What stands in the target: `own`, `foreign`, or `missing`."""
        answer = self._run(ledger_id, {"kind": "look", **named}, None)
        if answer.status not in ("own", "foreign", "missing"):
            raise _NotPreparedError(answer)
        return answer.status

    def _new_id(self, ledger_id: int) -> int:
        answer = self._run(ledger_id, {"kind": "new_id"}, None)
        if answer.new_id is None:
            raise _NotPreparedError(answer)
        return answer.new_id

    def _taken(self, record: CopyRecord, result: CopyResult) -> CopyResult:
        """Somebody else made a ledger under the new id before we did: the next copy is given another one."""
        if record.copied is not None:
            return result  # it was ours: a person must look
        self._journal.forget(record)
        detail = f"id {record.target_id}, which the target gave, was taken by others: the next try gets another one"
        return CopyResult(result.ledger_id, CopyOutcome.TARGET_FAILED, source=result.source, detail=detail)

    def _journalled(self, record: CopyRecord, result: CopyResult) -> CopyResult:
        """The result, once the journal knows of a complete copy."""
        source = result.source
        if result.outcome not in (CopyOutcome.COPIED, CopyOutcome.BUILT) or source is None:
            return result
        try:
            self._journal.complete(
                record,
                CopiedLedger(
                    length_bytes=source.length_bytes,
                    last_entry_id=source.last_entry_id,
                    entries_digest=source.entries_digest or "",
                    created_ms=source.created_ms or 0,
                ),
            )
        except CopyJournalError as error:
            return CopyResult(
                result.ledger_id, CopyOutcome.JOURNAL_FAILED, source=source, target=result.target, detail=str(error)
            )
        return result

    def _delete(self, ledger_id: int, request: dict[str, object]) -> DeleteResult:
        try:
            answer = self._run(ledger_id, request, None)
        except (JvmDiedError, JavaError) as error:
            return DeleteResult(ledger_id, DeleteOutcome.FAILED, str(error))
        match answer.status:
            case "deleted":
                return DeleteResult(ledger_id, DeleteOutcome.DELETED)
            case "missing":
                return DeleteResult(ledger_id, DeleteOutcome.ABSENT)
            case "refused":
                return DeleteResult(ledger_id, DeleteOutcome.REFUSED, "what stands there is not what was journalled")
        return DeleteResult(ledger_id, DeleteOutcome.FAILED, answer.detail or answer.status)

    def _run(self, ledger_id: int, request: Mapping[str, object], progress: Progress | None) -> JavaResult:
        """Have something done, and follow it; given up when it does not move."""
        remote, name = self._current(), f"{ledger_id}/{next(self._numbers)}"
        said = remote.start(name, msgspec.json.encode({**request, "ledger_id": ledger_id}).decode(), _POLL_MS)
        seen, limit_seconds = 0, _STALLS * self._timeout_seconds
        until = time.monotonic() + limit_seconds
        while True:
            answer = msgspec.json.decode(said, type=JavaResult)
            if progress is not None and answer.entries:
                progress(ledger_id, answer.entries, answer.bytes)
            if answer.status not in ("queued", "running"):
                return answer
            if answer.status == "queued" or answer.entries > seen:
                seen, until = answer.entries, time.monotonic() + limit_seconds
            elif time.monotonic() > until:
                remote.cancel(name)
            said = remote.answer(name, _POLL_MS)

    def _current(self) -> RemoteCopier:
        with self._lock:
            if self._remote is None or not self._remote.is_usable:
                self._remote = self._jvm.new_copier(self._java_settings(self._bytes_per_second))
            return self._remote


def _named(record: CopyRecord) -> dict[str, object]:
    """How the copy is known in the target."""
    return {"provenance": record.provenance, "target_id": record.id_in_target}


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")
