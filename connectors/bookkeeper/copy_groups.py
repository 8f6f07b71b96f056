"""Groups copies that are requested at the same time: one journal write and one call to Java for all.

The rules for a single copy apply to each copy of a group: its intent is written before Java is called, and the copy is
verified before it is reported. If one of them fails, the others go on.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal, CopyOutcome, CopyRecord, CopyResult
from connectors.bookkeeper.gateway import JavaError, JavaResult, JvmDiedError, RemoteCopier, copy_result
from connectors.zookeeper.json_znodes import ZnodeError

# Tasks for the Java ledger copier, many in one call, because a call costs more than copying a small ledger.

_POLL_MS = 250

TaskResult = JavaResult | JvmDiedError | JavaError

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JavaTask:
    """A request about a ledger."""

    ledger_id: int
    request: Mapping[str, object]
    answer: Future[JavaResult] = field(default_factory=Future)
    """Raises JvmDiedError and JavaError as `BookKeeperJvm.call` does."""

    def end(self, answer: TaskResult) -> None:
        """Set the answer."""
        if isinstance(answer, JavaResult):
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)


Ended = Callable[[Sequence[tuple[JavaTask, TaskResult]]], None]
"""Receives the tasks that ended together, and sets their answers; it must not raise."""


class JavaTasks:
    """Tasks of one Java copier, `remote`, which ends them when it is closed. Safe to use from many threads.

    Java ends every wait of a task by the request timeout, so no task stays open forever. `ended` is called on a thread
    that runs while tasks are open.
    """

    def __init__(self, remote: RemoteCopier, ended: Ended) -> None:
        self.remote = remote
        self._ended = ended
        self._lock = threading.Lock()
        self._open: dict[str, JavaTask] = {}
        self._is_followed = False
        self._numbers = itertools.count()

    def begin(self, tasks: Sequence[JavaTask]) -> None:
        """Start tasks with one call; every failure is an answer."""
        named = {f"{task.ledger_id}/{next(self._numbers)}": task for task in tasks}
        requests = [{"name": name, "ledger_id": task.ledger_id, **task.request} for name, task in named.items()]
        with self._lock:
            self._open |= named
        try:
            self.remote.start(msgspec.json.encode(requests).decode())
        except (JvmDiedError, JavaError) as error:
            self._end([(name, error) for name in named])
            return
        with self._lock:
            if self._is_followed or not self._open:
                return
            self._is_followed = True
        threading.Thread(target=self._follow, name="answers of the ledger copier", daemon=True).start()

    def _follow(self) -> None:
        """Read answers while tasks are open."""
        while True:
            with self._lock:
                if not self._open:
                    self._is_followed = False
                    return
            try:
                self._read_answers()
            except (JvmDiedError, JavaError) as error:
                self._end_all(error)
            except Exception as error:  # no caller may wait forever
                _log.exception("answers of the ledger copier")
                self._end_all(JavaError(f"unexpected: {error!r}"))

    def _read_answers(self) -> None:
        results = msgspec.json.decode(self.remote.answers(_POLL_MS), type=list[JavaResult])
        self._end([(result.name, result) for result in results])

    def _end_all(self, error: JvmDiedError | JavaError) -> None:
        with self._lock:
            names = list(self._open)
        self._end([(name, error) for name in names])

    def _end(self, answers: Sequence[tuple[str, TaskResult]]) -> None:
        with self._lock:
            ended = [(task, answer) for name, answer in answers if (task := self._open.pop(name, None)) is not None]
        if ended:
            self._ended(ended)


GROUP = 64
"""Maximum number of copies in one journal write."""
_WHOLE = frozenset({CopyOutcome.COPIED, CopyOutcome.BUILT})


class NewIdIntendedError(Exception):
    """The journal has a copy under a new id of a ledger to be copied under its own id. Nothing was started."""

    def __init__(self, record: CopyRecord) -> None:
        super().__init__(f"our copy of it has id {record.target_id} in the target: it cannot have its own as well")
        self.record = record


class CopyTask(JavaTask):
    """One copy, from its intent to its completion in the journal.

    Without a record the intent is still to be written, for a copy under the same id.
    """

    def __init__(self, ledger_id: int, record: CopyRecord | None = None) -> None:
        super().__init__(ledger_id, {})
        self.record = record
        self.result: Future[CopyResult] = Future()


class CopyGroups:
    """Journals and starts copies in groups. Safe to use from many threads; one of them works for the others.

    `sizes` are the copies' ensemble size and quorums, if they differ from the source's.
    """

    def __init__(self, journal: CopyJournal, tasks: Callable[[], JavaTasks], sizes: Mapping[str, int]) -> None:
        self._journal = journal
        self._tasks = tasks
        self._sizes = sizes
        self._waiting: deque[CopyTask] = deque()
        self._beginning = threading.Lock()

    def copy(self, copy: CopyTask) -> CopyResult:
        """Copy a ledger, and record in the journal that the copy is equal.

        Raises:
            NewIdIntendedError: the journal has an earlier intent for a copy under a new id.
            ZnodeError: the intent could not be written, so nothing was started.
            JvmDiedError: the JVM is gone.
            JavaError: Java threw an unexpected exception.
        """
        self._waiting.append(copy)
        # The thread with the lock checks the queue again afterwards, so no copy that arrives meanwhile is left waiting.
        while self._waiting and self._beginning.acquire(blocking=False):
            try:
                self.begin([self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))])
            finally:
                self._beginning.release()
        return copy.result.result()

    def begin(self, copies: Sequence[CopyTask]) -> None:
        """Start at most `GROUP` copies: write their intents, then call Java. Never raises: each copy has its result."""
        try:
            self._intend([copy for copy in copies if copy.record is None])
            begun = [copy for copy in copies if copy.record is not None]
            for copy in begun:
                copy.request = {"kind": "copy", **identify(_record(copy)), **self._sizes}
            if begun:
                self._tasks().begin(begun)
        except Exception as error:
            _fail(copies, error)

    def end(self, copies: Sequence[tuple[CopyTask, TaskResult]]) -> None:
        """Record the equal copies, and set the results of all. Never raises."""
        try:
            self._note([(copy, answer) for copy, answer in copies if isinstance(answer, JavaResult)])
            for copy, answer in copies:
                if not isinstance(answer, JavaResult):
                    copy.result.set_exception(answer)
        except Exception as error:
            _fail((copy for copy, _ in copies), error)

    def _intend(self, copies: Sequence[CopyTask]) -> None:
        for copy, record in zip(copies, self._journal.intend_all([copy.ledger_id for copy in copies]), strict=True):
            if isinstance(record, ZnodeError):
                copy.result.set_exception(record)
            elif record.target_id is not None:
                copy.result.set_exception(NewIdIntendedError(record))
            else:
                copy.record = record

    def _note(self, answers: Sequence[tuple[CopyTask, JavaResult]]) -> None:
        """Set the results, after the journal has recorded the complete copies."""
        results = {copy: _result(copy, answer) for copy, answer in answers}
        whole = [copy for copy, result in results.items() if result.outcome in _WHOLE]
        facts = [(_record(copy), _copied_ledger(results[copy])) for copy in whole]
        for copy, noted in zip(whole, self._journal.complete_all(facts), strict=True):
            if isinstance(noted, ZnodeError):
                results[copy] = replace(results[copy], outcome=CopyOutcome.FAILED, detail=str(noted))
        for copy, result in results.items():
            copy.result.set_result(result)


def identify(record: CopyRecord) -> dict[str, object]:
    """Return the identity of a copy in the target, for Java."""
    return {"provenance": record.provenance, "target_id": record.id_in_target}


def _result(copy: CopyTask, answer: JavaResult) -> CopyResult:
    record = _record(copy)
    return copy_result(copy.ledger_id, answer, record.source, record.target_id)


def _record(copy: CopyTask) -> CopyRecord:
    assert copy.record is not None  # noqa: S101  # set before Java is called
    return copy.record


def _copied_ledger(result: CopyResult) -> CopiedLedger:
    source = result.source
    assert source is not None  # noqa: S101  # the copy was compared with it
    return CopiedLedger(
        length_bytes=source.length_bytes,
        last_entry_id=source.last_entry_id,
        entries_digest=source.entries_digest or "",
        created_ms=source.created_ms or 0,
    )


def _fail(copies: Iterable[CopyTask], error: Exception) -> None:
    """Set the error as the result of each open copy, so that no caller waits forever."""
    for copy in copies:
        if not copy.result.done():
            copy.result.set_exception(error)
