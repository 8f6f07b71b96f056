"""Tasks from other threads for the agent's thread, in order."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from connectors.sessions.agent.callbacks import OwnershipError


class WorkQueue:
    """A queue of work for one thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None

    def run_in(self, worker: threading.Thread) -> None:
        """The thread that does the work."""
        self._worker = worker

    def put(self, job: Callable[[], None]) -> None:
        """Have something done; never blocks."""
        self._queue.put(job)

    def wake(self) -> None:
        """Have the thread look for what is due."""
        self._queue.put(_nothing)

    def run(self, timeout_seconds: float) -> None:
        """Do what there is to do, in the agent's thread; wait so long for the first."""
        try:
            job = self._queue.get(timeout=timeout_seconds)
            while True:
                job()
                job = self._queue.get_nowait()
        except queue.Empty:
            return

    def call(self, path: str, work: Callable[[], bool], timeout_seconds: float) -> bool:
        """Have something done about a bundle, and wait for what comes of it.

        Raises:
            OwnershipError: nobody would answer, or not in time; and whatever the work raises.
        """
        worker = self._worker
        if worker is None or not worker.is_alive() or worker is threading.current_thread():
            raise OwnershipError(path, "the agent is not running, or is asked from one of its own callbacks")
        done: Future[bool] = Future()
        self._queue.put(partial(_settle, done, work))
        try:
            return done.result(timeout_seconds)
        except FutureTimeoutError:
            raise OwnershipError(path, f"nothing was said within {timeout_seconds:g} s; the agent goes on") from None


def _nothing() -> None:
    """The loop around it does what is due."""


def _settle(done: "Future[bool]", work: Callable[[], bool]) -> None:
    try:
        done.set_result(work())
    except Exception as error:  # for the thread that waits
        done.set_exception(error)
