"""The worker of one cluster's decisions: takes what has arrived, does what is due, and waits for more."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event
from typing import Any, Generic

from tenacity import Retrying, stop_any, wait_random_exponential
from tenacity.stop import stop_base, stop_when_event_set

from connectors.actuation.decision_queue import DecisionQueue, Fenced


class Clock:
    """The time, and waiting in it: one thing, so that a test has both in hand."""

    def now(self) -> datetime:
        """The time of day, to compare with what decisions carry."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()

    def wait(self, event: Event, seconds: float | None) -> None:
        """Let time pass until an event is set, and no longer than so many seconds; None: without end."""
        event.wait(seconds)


SYSTEM_CLOCK = Clock()

NOT_OURS_SECONDS = 1.0
"""After so long it is asked again whether this process may act."""


def _always() -> bool:
    return True


class Worker(ABC, Generic[Fenced]):
    """Carries out one cluster's decisions. `arrived` and `wake` may be called from any thread, the rest from one."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.may_act: Callable[[], bool] = _always
        """Whether the cluster is this process's, and no other's: to be asked before each act. One that was frozen, or
        cut off, learns so before it does what is another's by now."""
        self._queue: DecisionQueue[Fenced] = DecisionQueue(clock.now, self._entered, self._refused)

    def recall(self, decision: Fenced, appended_at: datetime) -> None:
        """Learn a decision made before this start, in order; before `run`."""
        self._queue.recall(decision, appended_at)

    def arrived(self, decision: Fenced, appended_at: datetime) -> None:
        """Put in a new decision, with when Kafka took it."""
        self._queue.arrived(decision, appended_at)

    def wake(self) -> None:
        """Have `run` look up, such as at its stop event."""
        self._queue.news.set()

    def run(self, stop: Event) -> None:
        """Carry decisions out until `stop` is set (and `wake` was called)."""
        try:
            while not stop.is_set():
                self.reconcile(stop)
                # The news that came with `stop` may have been taken in already.
                if not stop.is_set():
                    self._wait(self.pause_seconds())
        finally:
            self._close()

    @abstractmethod
    def reconcile(self, stop: Event) -> None:
        """Take in what has come, and do what is due. Raises nothing: the next decision must find somebody at work."""

    @abstractmethod
    def pause_seconds(self) -> float | None:
        """Until something is due; None: not until something comes in."""

    @abstractmethod
    def _entered(self, decision: Fenced, appended_at: datetime) -> None:
        """A new decision is in force; Kafka took it then."""

    @abstractmethod
    def _refused(self, decision: Fenced, in_force: Fenced) -> None:
        """A decision came too late."""

    @abstractmethod
    def _close(self) -> None:
        """Give up all connections."""

    def _wait(self, seconds: float | None) -> None:
        """Let time pass; news cut it short."""
        self._clock.wait(self._queue.news, seconds)

    def _retrying(
        self, stop: Event, limit: stop_base, *, first_pause_seconds: float, longest_pause_seconds: float, **more: Any
    ) -> Retrying:
        """Attempts in a row, with random pauses that double, until `stop` is set or a limit reached."""
        return Retrying(
            stop=stop_any(limit, stop_when_event_set(stop)),
            wait=wait_random_exponential(multiplier=first_pause_seconds, max=longest_pause_seconds),
            sleep=self._wait,
            **more,
        )
