"""Reports the outcomes of an actuator, each once: as an event in the audit topic and as a log line."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Gauge

from connectors.actuation.decision_queue import ActionableT
from policies.actuator_events import ActuatorEvent
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)

STATE_REPEATED_SECONDS = 60.0
"""The time after which an actuator's unchanged reading is published again."""

PublishAudit = Callable[[str, bytes], None]
"""Publishes an event (key, value) to the audit topic, without blocking."""
Metrics = TypeVar("Metrics", bound="FailingMetric")
PacedT = TypeVar("PacedT", bound="PacedMetric")
Observed = TypeVar("Observed")
"""What an actuator found, in addition to the outcome."""


class ActionError(Exception):
    """An action cannot be done now, and was not done. The message gives the reason in one line without secrets."""


class UnknownOutcomeError(ActionError):
    """An action got no clear answer: it may have been done or not. The next attempt finds out."""


class CommonOutcome(StrEnum):
    """The outcomes that all actuators have; each actuator's own enum repeats them and adds its own."""

    DONE = "done"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    SHADOW = "shadow"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ActionResult(Generic[Observed]):
    """The result of an attempt."""

    outcome: StrEnum
    detail: str | None = None
    observed: Observed | None = None


class FailingMetric:
    """Shows for each cluster whether decisions cannot be carried out; each actuator gives it a name."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str) -> None:
        self.failing = Gauge(name, documentation, ("cluster",), registry=registry)


class PacedMetric(FailingMetric):
    """Shows in addition whether the limit of actions within a minute holds decisions back."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str) -> None:
        super().__init__(registry, name, documentation)
        self.held = Gauge(
            f"{name.removesuffix('_failing')}_held",
            "1 while decisions wait because the limit of actions within a minute is reached.",
            ("cluster",),
            registry=registry,
        )


class AuditLog(Generic[Metrics]):
    """Reports about one cluster. A report that repeats the last one about the same thing can be left out."""

    levels: ClassVar[dict[str, str]] = {"unchanged": "debug", "refused": "warning", "failed": "error"}
    """The levels of the log lines, by outcome; `info` for others."""

    def __init__(self, cluster: str, publish: PublishAudit, metrics: Metrics) -> None:
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._last: dict[Hashable, object] = {}

    def set_failing(self, *, yes: bool) -> None:
        """Show whether decisions of the cluster cannot be carried out."""
        self._metrics.failing.labels(self._cluster).set(yes)

    def _is_new(self, about: Hashable, content: object) -> bool:
        """Return whether the content differs from the last one about the same thing, and remember it."""
        if about in self._last and self._last[about] == content:
            return False
        self._last[about] = content
        return True

    def _forget_successes(self) -> None:
        """Let the next success be reported even if nothing had to be done: until then the last report is a failure."""
        self._last = {about: content for about, content in self._last.items() if _is_failure(content)}

    def _write(self, action: str, outcome: str, event: ActuatorEvent, at: datetime) -> None:
        fields = event.model_dump(mode="json", exclude={"outcome"}, exclude_none=True)
        getattr(_log, self.levels.get(outcome, "info"))(f"{action} {outcome}", **fields)
        self._publish(self._cluster, actuator_event(event, id=str(uuid.uuid4()), at=at))


class DecisionReports(AuditLog[PacedT], ABC, Generic[ActionableT, Observed, PacedT]):
    """Reports the outcomes of one cluster's decisions, each outcome of a subject when it is new."""

    def set_held(self, *, yes: bool) -> None:
        """Show whether the limit of actions within a minute holds decisions back."""
        self._metrics.held.labels(self._cluster).set(yes)

    def report(self, decision: ActionableT, result: ActionResult[Observed], *, attempt: int, at: datetime) -> None:
        """Report the result of a decision if it is new, after this number of attempts."""
        is_new = self._is_new(decision.subject, self._content(decision, result))
        if is_new or result.outcome == CommonOutcome.DONE:
            self._emit(decision, result, attempt, at)

    def report_superseded(self, decision: ActionableT, in_force: ActionableT, at: datetime) -> None:
        """Report that a decision is not carried out (any further) because another one is in force."""
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._emit(decision, ActionResult(CommonOutcome.SUPERSEDED, detail), 1, at)

    @abstractmethod
    def _content(self, decision: ActionableT, result: ActionResult[Observed]) -> object:
        """Return the part of a result by which it is compared with the last one about the same subject."""

    @abstractmethod
    def _event(
        self, decision: ActionableT, result: ActionResult[Observed], attempt: int, at: datetime
    ) -> ActuatorEvent:
        """Return the event to publish."""

    @abstractmethod
    def _count(self, decision: ActionableT, result: ActionResult[Observed]) -> None:
        """Update the metrics."""

    def _emit(self, decision: ActionableT, result: ActionResult[Observed], attempt: int, at: datetime) -> None:
        self._count(decision, result)
        self._write(decision.verdict, result.outcome, self._event(decision, result, attempt, at), at)


def _is_failure(content: object) -> bool:
    return isinstance(content, tuple) and content[:1] == (CommonOutcome.FAILED,)
