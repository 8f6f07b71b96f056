"""Groups copies that are requested at the same time: one write of the journal and one call to Java for all.

The rules for one copy hold for each of a group: its intent is written before Java is called, and it is verified before
it is reported. If one of them fails, the others go on.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from connectors.bookkeeper.copy_journal import CopiedLedger, CopyJournal, CopyJournalError, CopyRecord
from connectors.bookkeeper.copy_outcomes import CopyOutcome, CopyResult
from connectors.bookkeeper.java_results import JavaResult, copy_result
from connectors.bookkeeper.java_tasks import JavaTask, JavaTasks, Progress, TaskResult

GROUP = 64
"""So many copies are journalled by one write at most."""
_GATHER_SECONDS = 0.002
"""So long is waited for others who ask at the same time: a write of the journal takes about as long."""
_WHOLE = frozenset({CopyOutcome.COPIED, CopyOutcome.BUILT})


class NewIdIntendedError(Exception):
    """A copy under a new id is journalled of what was to be copied under its own. Nothing was begun."""

    def __init__(self, record: CopyRecord) -> None:
        super().__init__(f"our copy of it has id {record.target_id} in the target: it cannot have its own as well")
        self.record = record


class CopyTask(JavaTask):
    """A copy on its way, from its intent to the note that it is equal.

    Args:
        ledger_id: in the source.
        progress: is told how far it is.
        record: of its intent; None: it is still to be written, for a copy under the same id.
    """

    def __init__(self, ledger_id: int, progress: Progress | None, record: CopyRecord | None = None) -> None:
        super().__init__(ledger_id, {}, progress)
        self.record = record
        self.result: Future[CopyResult] = Future()
        self.began = time.monotonic()


class CopyGroups:
    """Journals copies and has them made, many at once. Safe to use from many threads: who comes first works for others.

    Args:
        journal: of the copies.
        tasks: gives what Java is asked by; raises as `BookKeeperJvm.new_copier` does.
        sizes: of the copies' ensembles and quorums, where they are not the source's.
    """

    def __init__(self, journal: CopyJournal, tasks: Callable[[], JavaTasks], sizes: Mapping[str, int]) -> None:
        self._journal = journal
        self._tasks = tasks
        self._sizes = sizes
        self._waiting: deque[CopyTask] = deque()
        self._beginning = threading.Lock()

    def copy(self, copy: CopyTask) -> CopyResult:
        """Copy a ledger, and note it when the copy is equal.

        Raises:
            NewIdIntendedError: an earlier intent stands, of a copy under a new id.
            CopyJournalError: the intent could not be written down, so nothing was begun.
            JvmDiedError: the JVM is gone.
            JavaError: Java threw what it should not.
        """
        self._waiting.append(copy)
        # Whoever is at it looks again afterwards, so nobody is left waiting who came meanwhile.
        while self._waiting and self._beginning.acquire(blocking=False):
            try:
                time.sleep(_GATHER_SECONDS)
                self.begin([self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))])
            finally:
                self._beginning.release()
        return copy.result.result()

    def begin(self, copies: Sequence[CopyTask]) -> None:
        """Have a group of at most `GROUP` copied: their intents first, then Java. Never raises: each has its result."""
        try:
            self._intend([copy for copy in copies if copy.record is None])
            begun = [copy for copy in copies if copy.record is not None]
            for copy in begun:
                copy.request = {"kind": "copy", **named(_record(copy)), **self._sizes}
            if begun:
                self._tasks().begin(begun)
        except Exception as error:
            _fail(copies, error)

    def end(self, copies: Sequence[tuple[CopyTask, TaskResult]]) -> None:
        """Java is done with them: what is equal is noted, and everybody told. Never raises."""
        try:
            self._note([(copy, answer) for copy, answer in copies if isinstance(answer, JavaResult)])
            for copy, answer in copies:
                if not isinstance(answer, JavaResult):
                    copy.result.set_exception(answer)
        except Exception as error:
            _fail((copy for copy, _ in copies), error)

    def _intend(self, copies: Sequence[CopyTask]) -> None:
        for copy, record in zip(copies, self._journal.intend_all([copy.ledger_id for copy in copies]), strict=True):
            if isinstance(record, CopyJournalError):
                copy.result.set_exception(record)
            elif record.target_id is not None:
                copy.result.set_exception(NewIdIntendedError(record))
            else:
                copy.record = record

    def _note(self, answers: Sequence[tuple[CopyTask, JavaResult]]) -> None:
        """The results, once the journal knows of the complete copies."""
        results = {copy: _result(copy, answer) for copy, answer in answers}
        whole = [copy for copy, result in results.items() if result.outcome in _WHOLE]
        facts = [(_record(copy), _copied(results[copy])) for copy in whole]
        for copy, noted in zip(whole, self._journal.complete_all(facts), strict=True):
            if isinstance(noted, CopyJournalError):
                results[copy] = replace(results[copy], outcome=CopyOutcome.JOURNAL_FAILED, detail=str(noted))
        for copy, result in results.items():
            copy.result.set_result(result)


def named(record: CopyRecord) -> dict[str, object]:
    """How the copy is known in the target."""
    return {"provenance": record.provenance, "target_id": record.id_in_target}


def _result(copy: CopyTask, answer: JavaResult) -> CopyResult:
    record = _record(copy)
    return copy_result(copy.ledger_id, answer, record.source, time.monotonic() - copy.began, record.target_id)


def _record(copy: CopyTask) -> CopyRecord:
    assert copy.record is not None  # noqa: S101  # before anything is begun
    return copy.record


def _copied(result: CopyResult) -> CopiedLedger:
    source = result.source
    assert source is not None  # noqa: S101  # it was compared
    return CopiedLedger(
        length_bytes=source.length_bytes,
        last_entry_id=source.last_entry_id,
        entries_digest=source.entries_digest or "",
        created_ms=source.created_ms or 0,
    )


def _fail(copies: Iterable[CopyTask], error: Exception) -> None:
    """Nobody may wait for ever, whatever it was."""
    for copy in copies:
        if not copy.result.done():
            copy.result.set_exception(error)
