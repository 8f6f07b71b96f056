"""Copies ledgers from one BookKeeper cluster to another, with the real client in a JVM of its own.

A copy has the id of the source's ledger, or a new one from the target; the journal records which, before the ledger is
created.

Nothing in the source is changed: ledgers are opened without recovery, so no live owner is fenced. Nothing in the target
is overwritten, and only ledgers that both the journal and their own provenance call ours are ever deleted there. After
a kill at any moment, the same call finds what exists and reports it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from itertools import islice
from queue import SimpleQueue

import structlog

from connectors.bookkeeper.copy_clusters import LedgerCluster, Replication, java_settings
from connectors.bookkeeper.copy_groups import GROUP, CopyGroups, CopyTask, NewIdIntendedError, named
from connectors.bookkeeper.copy_journal import (
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
from connectors.bookkeeper.gateway import BookKeeperJvm, JavaError, JvmDiedError
from connectors.bookkeeper.java_results import JavaResult
from connectors.bookkeeper.java_tasks import JavaTask, JavaTasks, Progress, TaskResult
from policies.errors import UserError
from policies.units import MAX_INT64

CONCURRENCY = 16
WINDOW_BYTES = 4 * 1024 * 1024
_AHEAD = 10
"""Of so many times as many ledgers as are copied at once the intent is written meanwhile, or that they are equal."""
_THREADS = 4
"""Of so many times as many ledgers something is asked at once, where it must be, each by a thread of its own."""
_STALLS = 4
"""After so many time-outs of one request without an entry more, a copy is given up."""

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
        self._groups = CopyGroups(journal, self._tasks, asdict(replication) if replication else {})
        self._concurrency = concurrency
        self._timeout_seconds = timeout.total_seconds()
        self._bytes_per_second = 0
        self._java_settings = partial(java_settings, source, target, concurrency, self._timeout_seconds, window_bytes)
        self._lock = threading.Lock()
        self._java: JavaTasks | None = None

    def make_ready(self) -> None:
        """Have the JVM started and both clients connecting: seconds that the first copy need not wait then.

        Raises:
            JvmDiedError: it cannot be started, or died again.
            JavaError: Java threw what it should not.
        """
        self._tasks()

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
        return _told(self._copied(ledger_id, progress, new_id))

    def copy_many(self, ledger_ids: Iterable[int], progress: Progress | None = None) -> Iterator[CopyResult]:
        """Copy ledgers, so many at once; results come as they are known. Raises as `copy` does.

        Whoever stops taking results waits for the copies under way only.
        """
        ended: SimpleQueue[tuple[int, Future[CopyResult]]] = SimpleQueue()
        ids, most, under_way = iter(ledger_ids), _AHEAD * self._concurrency, 0
        group = min(GROUP, -(-most // 2))
        threads = _THREADS * self._concurrency
        with ThreadPoolExecutor(threads, thread_name_prefix="ledger copy") as pool:  # a thread only for what needs one

            def follow(ledger_id: int, copy: Future[CopyResult]) -> None:
                copy.add_done_callback(lambda done: ended.put((ledger_id, done)))

            try:
                while True:
                    while under_way <= most - group and (batch := list(islice(ids, group))):
                        for ledger_id, copy in self._begin(batch, progress, pool):
                            under_way += 1
                            follow(ledger_id, copy)
                    if not under_way:
                        return
                    ledger_id, copy = ended.get()
                    if isinstance(copy.exception(), NewIdIntendedError):
                        follow(ledger_id, pool.submit(self._copied, ledger_id, progress))
                        continue
                    under_way -= 1
                    yield _told(_result_of(ledger_id, copy.result))
            finally:
                for _ in range(under_way):
                    ended.get()

    def delete_own(self, ledger_id: int) -> DeleteResult:
        """Delete our own copy from the target, and forget it. Raises ValueError as `copy` does."""
        _check(ledger_id)
        try:
            record = self._journal.find(ledger_id)
            if record is None:
                return DeleteResult(ledger_id, DeleteOutcome.NOT_RECORDED, "no copy of it was ever journalled")
            result = self._delete(ledger_id, {"kind": "delete_own", **named(record)})
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
            if self._java is not None and self._java.is_usable:
                try:
                    self._java.limit(bytes_per_second)
                except (JvmDiedError, JavaError) as error:  # the next one is made with the limit
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

    def _begin(
        self, ledger_ids: Sequence[int], progress: Progress | None, pool: Executor
    ) -> Iterable[tuple[int, Future[CopyResult]]]:
        """Have these copied: as a group that no thread waits for, where nothing must be asked of each before."""
        for ledger_id in ledger_ids:
            _check(ledger_id)
        if not self._is_one_way():
            return [(each, pool.submit(self._copied, each, progress)) for each in ledger_ids]
        copies = [CopyTask(each, progress) for each in ledger_ids]
        self._groups.begin(copies)
        return [(copy.ledger_id, copy.result) for copy in copies]

    def _is_one_way(self) -> bool:
        try:
            return self._journal.is_one_way()
        except CopyJournalError:
            return False  # whoever asks for each is told why

    def _copied(self, ledger_id: int, progress: Progress | None, new_id: bool = False) -> CopyResult:
        return _result_of(ledger_id, partial(self._copy, ledger_id, progress, new_id))

    def _copy(self, ledger_id: int, progress: Progress | None, new_id: bool) -> CopyResult:
        if new_id:
            return self._copy_anew(ledger_id, progress)
        if self._journal.came_from_target(ledger_id) and self._is_missing(ledger_id):
            detail = f"ledger {ledger_id} was deleted from the target, which may still hold entries of it"
            return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=detail)
        return self._copy_same(ledger_id, progress)

    def _copy_same(self, ledger_id: int, progress: Progress | None) -> CopyResult:
        """Under its own id. What was once journalled for a new one stands only as long as a copy of ours does."""
        try:
            return self._groups.copy(CopyTask(ledger_id, progress))
        except NewIdIntendedError as error:
            if self._stands(error.record):
                raise
            self._journal.forget(error.record)
        return self._groups.copy(CopyTask(ledger_id, progress))

    def _copy_anew(self, ledger_id: int, progress: Progress | None) -> CopyResult:
        """Under a new id, which is drawn before the intent is written, so that it is drawn once.

        What was once journalled for its own id stands only as long as a copy of ours does.
        """
        record = self._journal.find(ledger_id)
        if record is not None and record.target_id is None and not self._stands(record):
            self._journal.forget(record)
            record = None
        record = record or self._journal.intend(ledger_id, self._new_id(ledger_id))
        result = self._groups.copy(CopyTask(ledger_id, progress, record))
        if result.outcome is CopyOutcome.FOREIGN_CONFLICT and record.target_id is not None:
            return self._taken(record, result)
        return result

    def _stands(self, record: CopyRecord) -> bool:
        return self._look(record.ledger_id, named(record)) == "own"

    def _is_missing(self, ledger_id: int) -> bool:
        return self._look(ledger_id, {"provenance": "", "target_id": ledger_id}) == "missing"

    def _look(self, ledger_id: int, known_as: Mapping[str, object]) -> str:
        """What stands in the target: `own`, `foreign`, or `missing`."""
        answer = self._run(ledger_id, {"kind": "look", **known_as})
        if answer.status not in ("own", "foreign", "missing"):
            raise _NotPreparedError(answer)
        return answer.status

    def _new_id(self, ledger_id: int) -> int:
        answer = self._run(ledger_id, {"kind": "new_id"})
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
                return DeleteResult(ledger_id, DeleteOutcome.REFUSED, "what stands there is not what was journalled")
        return DeleteResult(ledger_id, DeleteOutcome.FAILED, answer.detail or answer.status)

    def _run(self, ledger_id: int, request: Mapping[str, object]) -> JavaResult:
        """Have something else than a copy done."""
        task = JavaTask(ledger_id, request)
        self._tasks().begin([task])
        return task.answer.result()

    def _tasks(self) -> JavaTasks:
        with self._lock:
            if self._java is None or not self._java.is_usable:
                remote = self._jvm.new_copier(self._java_settings(self._bytes_per_second))
                self._java = JavaTasks(remote, _STALLS * self._timeout_seconds, self._ended)
            return self._java

    def _ended(self, tasks: Sequence[tuple[JavaTask, TaskResult]]) -> None:
        self._groups.end([(task, answer) for task, answer in tasks if isinstance(task, CopyTask)])
        for task, answer in tasks:
            task.end(answer)


def _check(ledger_id: int) -> None:
    if not 0 <= ledger_id <= MAX_INT64:
        raise ValueError(f"{ledger_id} is no ledger id: it must lie between 0 and {MAX_INT64}")


def _result_of(ledger_id: int, copy: Callable[[], CopyResult]) -> CopyResult:
    """What it gives, or the outcome that its failure is."""
    try:
        return copy()
    except CopyJournalConflictError as error:
        return CopyResult(ledger_id, CopyOutcome.FOREIGN_CONFLICT, detail=str(error))
    except CopyJournalError as error:
        return CopyResult(ledger_id, CopyOutcome.JOURNAL_FAILED, detail=str(error))
    except NewIdIntendedError as error:
        return CopyResult(ledger_id, CopyOutcome.TARGET_FAILED, detail=str(error))
    except _NotPreparedError as error:
        return CopyResult(ledger_id, error.outcome, detail=str(error))
    except JvmDiedError as error:
        return CopyResult(ledger_id, CopyOutcome.JVM_DIED, detail=str(error))
    except JavaError as error:
        return CopyResult(ledger_id, CopyOutcome.INTERNAL_ERROR, detail=str(error))


def _told(result: CopyResult) -> CopyResult:
    say = _log.debug if result.outcome in (CopyOutcome.COPIED, CopyOutcome.BUILT) else _log.warning
    say("ledger copy ended", ledger=result.ledger_id, outcome=result.outcome.value, detail=result.detail)
    return result
