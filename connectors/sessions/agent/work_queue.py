"""Jobs from other threads for the agent's thread, in order."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from connectors.sessions.agent.callbacks import OwnershipError


class WorkQueue:
    """A queue of jobs for one thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None

    def run_in(self, worker: threading.Thread) -> None:
        """Set the thread that calls `run`."""
        self._worker = worker

    def put(self, job: Callable[[], None]) -> None:
        """Add a job; never blocks."""
        self._queue.put(job)

    def wake(self) -> None:
        """End the wait of `run`, so that the thread checks for due work."""
        self._queue.put(lambda: None)

    def run(self, timeout_seconds: float) -> None:
        """Run all jobs, and wait up to a time for the first one."""
        try:
            job = self._queue.get(timeout=timeout_seconds)
            while True:
                job()
                job = self._queue.get_nowait()
        except queue.Empty:
            return

    def call(self, path: str, work: Callable[[], bool], timeout_seconds: float) -> bool:
        """Run a job about a bundle in the agent's thread, and return its result.

        Raises:
            OwnershipError: the agent is not running, or the job took too long. Exceptions of the job are raised, too.
        """
        worker = self._worker
        if worker is None or not worker.is_alive() or worker is threading.current_thread():
            raise OwnershipError(path, "the agent is not running, or was called from one of its own callbacks")
        done: Future[bool] = Future()
        self._queue.put(partial(_settle, done, work))
        try:
            return done.result(timeout_seconds)
        except FutureTimeoutError:
            raise OwnershipError(path, f"not done within {timeout_seconds:g} s; the agent continues") from None


def _settle(done: "Future[bool]", work: Callable[[], bool]) -> None:
    try:
        done.set_result(work())
    except Exception as error:  # raised in the waiting thread
        done.set_exception(error)
