"""Tasks for the Java ledger copier, many in one call, because a call costs more than copying a small ledger."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec
import structlog

from connectors.bookkeeper.gateway import JavaError, JvmDiedError, RemoteCopier
from connectors.bookkeeper.java_results import JavaResult

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
    entries_seen: int = 0
    idle_since: float = 0.0

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

    A task without progress for `idle_limit_seconds` is cancelled. `ended` is called on a thread that runs while tasks
    are open.
    """

    def __init__(self, remote: RemoteCopier, idle_limit_seconds: float, ended: Ended) -> None:
        self.remote = remote
        self._idle_limit_seconds = idle_limit_seconds
        self._ended = ended
        self._lock = threading.Lock()
        self._open: dict[str, JavaTask] = {}
        self._is_followed = False
        self._numbers = itertools.count()

    def begin(self, tasks: Sequence[JavaTask]) -> None:
        """Start tasks with one call; every failure is an answer."""
        named = {f"{task.ledger_id}/{next(self._numbers)}": task for task in tasks}
        requests = [{"name": name, "ledger_id": task.ledger_id, **task.request} for name, task in named.items()]
        for task in tasks:
            task.idle_since = time.monotonic()
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
        for result in results:
            self._note_progress(result)
        self._end([(result.name, result) for result in results if not result.is_under_way])

    def _note_progress(self, result: JavaResult) -> None:
        """Store the progress of a task, and cancel it if it makes none."""
        task = self._open.get(result.name)
        if task is None:
            return
        if result.status == "queued" or result.entries > task.entries_seen:
            task.entries_seen, task.idle_since = result.entries, time.monotonic()
        elif result.is_under_way and time.monotonic() > task.idle_since + self._idle_limit_seconds:
            self.remote.cancel(result.name)

    def _end_all(self, error: JvmDiedError | JavaError) -> None:
        with self._lock:
            names = list(self._open)
        self._end([(name, error) for name in names])

    def _end(self, answers: Sequence[tuple[str, TaskResult]]) -> None:
        with self._lock:
            ended = [(task, answer) for name, answer in answers if (task := self._open.pop(name, None)) is not None]
        if ended:
            self._ended(ended)
