"""Tasks for the Java ledger copier, many per call: a call costs more than copying a small ledger."""

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

Progress = Callable[[int, int, int], None]
"""Takes a ledger's id, and the entries and bytes read of it so far; called from the thread that takes answers."""
TaskResult = JavaResult | JvmDiedError | JavaError

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JavaTask:
    """Something to be done about a ledger."""

    ledger_id: int
    request: Mapping[str, object]
    progress: Progress | None = None
    answer: Future[JavaResult] = field(default_factory=Future)
    """Raises JvmDiedError and JavaError as `BookKeeperJvm.call` does."""
    entries_seen: int = 0
    idle_since: float = 0.0

    def end(self, answer: TaskResult) -> None:
        """Give the answer to whoever waits."""
        if isinstance(answer, JavaResult):
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)


Ended = Callable[[Sequence[tuple[JavaTask, TaskResult]]], None]
"""Takes all that has ended at once, and gives each its answer; it must not raise."""


class JavaTasks:
    """Tasks of one copier in Java. Safe to use from many threads; close it.

    Args:
        remote: the copier.
        idle_limit_seconds: what makes no progress for so long is given up.
        ended: takes the answers, in a thread that runs while there are any to come.
    """

    def __init__(self, remote: RemoteCopier, idle_limit_seconds: float, ended: Ended) -> None:
        self._remote = remote
        self._idle_limit_seconds = idle_limit_seconds
        self._ended = ended
        self._lock = threading.Lock()
        self._open: dict[str, JavaTask] = {}
        self._is_followed = False
        self._numbers = itertools.count()

    @property
    def is_usable(self) -> bool:
        """Whether its JVM still runs."""
        return self._remote.is_usable

    def begin(self, tasks: Sequence[JavaTask]) -> None:
        """Have them done, by one call; every failure is an answer."""
        named = {f"{task.ledger_id}/{next(self._numbers)}": task for task in tasks}
        requests = [{"name": name, "ledger_id": task.ledger_id, **task.request} for name, task in named.items()]
        for task in tasks:
            task.idle_since = time.monotonic()
        with self._lock:
            self._open |= named
        try:
            self._remote.start(msgspec.json.encode(requests).decode())
        except (JvmDiedError, JavaError) as error:
            self._end([(name, error) for name in named])
            return
        with self._lock:
            if self._is_followed or not self._open:
                return
            self._is_followed = True
        threading.Thread(target=self._follow, name="answers of the ledger copier", daemon=True).start()

    def limit(self, bytes_per_second: int) -> None:
        """How much is copied in a second from now on; raises as `BookKeeperJvm.call` does."""
        self._remote.limit(bytes_per_second)

    def close(self) -> None:
        """Give up what is under way, and end the clients; raises as `BookKeeperJvm.call` does."""
        self._remote.close()

    def _follow(self) -> None:
        """Take answers as long as any are to come."""
        while True:
            with self._lock:
                if not self._open:
                    self._is_followed = False
                    return
            try:
                self._take()
            except (JvmDiedError, JavaError) as error:
                self._end_all(error)
            except Exception as error:  # nobody may wait for ever, whatever it was
                _log.exception("answers of the ledger copier")
                self._end_all(JavaError(f"unexpected: {error!r}"))

    def _take(self) -> None:
        said = msgspec.json.decode(self._remote.answers(_POLL_MS), type=list[JavaResult])
        for result in said:
            self._told(result)
        self._end([(result.name, result) for result in said if not result.is_under_way])

    def _told(self, result: JavaResult) -> None:
        """How far one is; given up when it does not move."""
        task = self._open.get(result.name)
        if task is None:
            return
        if task.progress is not None and result.entries:
            task.progress(task.ledger_id, result.entries, result.bytes)
        if result.status == "queued" or result.entries > task.entries_seen:
            task.entries_seen, task.idle_since = result.entries, time.monotonic()
        elif result.is_under_way and time.monotonic() > task.idle_since + self._idle_limit_seconds:
            self._remote.cancel(result.name)

    def _end_all(self, error: JvmDiedError | JavaError) -> None:
        with self._lock:
            names = list(self._open)
        self._end([(name, error) for name in names])

    def _end(self, answers: Sequence[tuple[str, TaskResult]]) -> None:
        with self._lock:
            ended = [(task, answer) for name, answer in answers if (task := self._open.pop(name, None)) is not None]
        if ended:
            self._ended(ended)
