"""The worker of one cluster: receives decisions, does the work that is due, and waits."""

import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from queue import SimpleQueue
from threading import Event
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Gauge
from tenacity import Retrying, stop_any, wait_random_exponential
from tenacity.stop import stop_base, stop_when_event_set

from policies.decisions import Decision, Fence
from policies.observations import ActuatorEvent
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

Fenced = TypeVar("Fenced", bound=Decision)
ActionableT = TypeVar("ActionableT", bound=Decision)
"""A decision that asks for one action: its verdict."""

NOT_OURS_SECONDS = 1.0
"""Time between two checks of `may_act` while this process may not act."""


class Clock:
    """The time, and waiting. A test replaces both by one object."""

    def now(self) -> datetime:
        """Return the time of day, to compare with the times in decisions."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return time.monotonic()

    def wait(self, event: Event, seconds: float | None) -> None:
        """Wait until an event is set, at most for some seconds; None: without limit."""
        event.wait(seconds)


SYSTEM_CLOCK = Clock()


class ActionRate:
    """Limits the actions within any window: it bounds the harm of a wrong or forged decision."""

    def __init__(self, most: int, clock: Callable[[], float], window_seconds: float = 60.0) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self._acted_at: deque[float] = deque(maxlen=most)

    def wait_seconds(self) -> float:
        """Return the time until the next action is allowed; 0 if one is allowed now."""
        if len(self._acted_at) != self._acted_at.maxlen:
            return 0.0
        return max(0.0, self._acted_at[0] + self._window_seconds - self._clock())

    def count_action(self) -> None:
        """Count an action that is done now."""
        self._acted_at.append(self._clock())


# Reports outcomes, each once: as an event in the audit topic and as a log line.

AGAIN_SECONDS = 5.0
"""Pause after a series of attempts that failed."""
PublishAudit = Callable[[str, bytes], None]
"""Publishes an event (key, value) to the audit topic, without blocking."""
MetricsT = TypeVar("MetricsT", bound="ActuatorMetrics")


class CommonOutcome(StrEnum):
    """The outcomes that all actuators have; each actuator's own enum repeats them and adds its own."""

    DONE = "done"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    SHADOW = "shadow"
    FAILED = "failed"


class ActuatorMetrics:
    """Shows for each cluster whether decisions cannot be carried out; each actuator gives it a name.

    Args:
        is_paced: whether it shows, too, that the limit of actions within a minute holds decisions back.
    """

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str, *, is_paced: bool = False) -> None:
        self.failing = Gauge(name, documentation, ("cluster",), registry=registry)
        if is_paced:
            self.held = Gauge(
                f"{name.removesuffix('_failing')}_held",
                "1 while decisions wait because the limit of actions within a minute is reached.",
                ("cluster",),
                registry=registry,
            )


class AuditLog(Generic[MetricsT]):
    """Reports about one cluster. A report that repeats the last one about the same thing can be left out.

    Args:
        levels: further levels of log lines, by outcome; `info` for others.
    """

    def __init__(
        self, cluster: str, publish: PublishAudit, metrics: MetricsT, levels: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._levels = {"unchanged": "debug", "refused": "warning", "failed": "error", **levels}
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._last: dict[Hashable, object] = {}

    def show(self, *, failing: bool | None = None, held: bool | None = None) -> None:
        """Show whether decisions cannot be carried out, or wait for the limit of actions; None: as before."""
        if failing is not None:
            self._metrics.failing.labels(self._cluster).set(failing)
        if held is not None:
            self._metrics.held.labels(self._cluster).set(held)

    def is_new(self, about: Hashable, content: object) -> bool:
        """Return whether the content differs from the last one about the same thing, and remember it."""
        if about in self._last and self._last[about] == content:
            return False
        self._last[about] = content
        return True

    def write(self, action: str, outcome: str, event: ActuatorEvent, at: datetime) -> None:
        """Publish a report, and log it."""
        fields = event.model_dump(mode="json", exclude={"outcome"}, exclude_none=True)
        getattr(_log, self._levels.get(outcome, "info"))(f"{action} {outcome}", **fields)
        self._publish(self._cluster, actuator_event(event, id=str(uuid.uuid4()), at=at))


class Worker(ABC, Generic[Fenced]):
    """Carries out one cluster's decisions. `receive` and `wake` may be called from any thread, the rest from one.

    Each subject has at most one decision in force. `policies.decisions` defines which decision supersedes another;
    repeated and late ones have no effect.
    """

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.may_act: Callable[[], bool] = lambda: True
        """Whether this process, and no other, may act on the cluster. It is asked before each action, because a process
        that was frozen or cut off may have lost the cluster to another one meanwhile."""
        self._inbox: SimpleQueue[tuple[Fenced, datetime]] = SimpleQueue()
        self._received = Event()
        self._in_force: dict[str, Fenced] = {}
        """By subject, expired or not."""
        self._fence: Fence[str] = Fence()

    def recall(self, decision: Fenced, appended_at: datetime) -> bool:
        """Process a decision from before this start. Call it in order of the topic, and before `run`.

        Returns whether it is in force now.
        """
        return self._enter(decision, appended_at)

    def receive(self, decision: Fenced, appended_at: datetime) -> None:
        """Queue a new decision, with the append time of its record."""
        self._inbox.put((decision, appended_at))
        self._received.set()

    def wake(self) -> None:
        """End a wait of `run`, so that it checks its stop event."""
        self._received.set()

    def _enter(self, decision: Fenced, appended_at: datetime) -> bool:
        if not self._fence.passes(decision.subject, decision, appended_at):
            return False
        self._in_force[decision.subject] = decision
        return True

    def _read_inbox(self) -> None:
        """Fence all received decisions."""
        self._received.clear()
        while not self._inbox.empty():
            decision, appended_at = self._inbox.get()
            before = self._in_force.get(decision.subject)
            if self._enter(decision, appended_at):
                self._accept(decision, appended_at)
            elif before is None:
                _log.warning("a decision is not credible", subject=decision.subject, sequence=decision.sequence)
            elif before.decision_id != decision.decision_id:
                self._reject(decision, before)

    def run(self, stop: Event) -> None:
        """Carry out decisions until `stop` is set and `wake` was called."""
        try:
            while not stop.is_set():
                self.reconcile(stop)
                # `reconcile` may have cleared the event that `wake` set together with `stop`.
                if not stop.is_set():
                    self._wait(self.pause_seconds())
        finally:
            self._close()

    @abstractmethod
    def reconcile(self, stop: Event) -> None:
        """Process received decisions, and do the work that is due. Raises nothing: later decisions need this thread."""

    @abstractmethod
    def pause_seconds(self) -> float | None:
        """Return the time until work is due; None if it is due only after a new decision."""

    @abstractmethod
    def _accept(self, decision: Fenced, appended_at: datetime) -> None:
        """Handle a new decision that is in force from now on."""

    @abstractmethod
    def _reject(self, decision: Fenced, in_force: Fenced) -> None:
        """Handle a decision that the fence has rejected."""

    @abstractmethod
    def _close(self) -> None:
        """Close all connections."""

    def _wait(self, seconds: float | None) -> None:
        """Wait; a received decision ends it early."""
        self._clock.wait(self._received, seconds)

    def _retrying(
        self, stop: Event, limit: stop_base, *, first_pause_seconds: float, longest_pause_seconds: float, **more: Any
    ) -> Retrying:
        """Return attempts with random pauses that double, until `stop` is set or the limit is reached."""
        return Retrying(
            stop=stop_any(limit, stop_when_event_set(stop)),
            wait=wait_random_exponential(multiplier=first_pause_seconds, max=longest_pause_seconds),
            sleep=self._wait,
            **more,
        )
