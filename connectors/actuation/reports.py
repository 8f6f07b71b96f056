"""What an actuator did, said once: as an event for the audit, and as a line in the log."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Gauge

from connectors.actuation.decision_queue import TaskT
from policies.actuator_events import ActuatorEvent
from policies.wire import actuator_event

_log = structlog.get_logger(__name__)


Metrics = TypeVar("Metrics", bound="FailingMetric")
Seen = TypeVar("Seen")
"""What an actuator finds and tells besides the outcome."""


class ActionError(Exception):
    """It cannot be done now, and was not; the message says why in one short line, without a secret."""


class UnknownOutcomeError(ActionError):
    """No good answer to an action: it may have been done or not. The next look tells."""


class Ending(StrEnum):
    """The outcomes that all actuators have; each has them in an enum of its own, too, beside what is particular."""

    DONE = "done"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    SHADOW = "shadow"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding(Generic[Seen]):
    """What came of an attempt."""

    outcome: StrEnum
    detail: str | None = None
    seen: Seen | None = None


class FailingMetric:
    """A metric of its own name for each actuator: whether something of a cluster cannot be carried out."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str) -> None:
        self._failing = Gauge(name, documentation, ("cluster",), registry=registry)

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether something of a cluster cannot be carried out."""
        self._failing.labels(cluster).set(yes)


class AuditLog(Generic[Metrics]):
    """What is said of one cluster. What was said last of a thing need not be said again.

    Args:
        cluster: its name.
        publish: hands an event (key, value) over for the audit; must not block.
        metrics: where it is counted; shared by all clusters.
    """

    levels: ClassVar[dict[str, str]]
    """Of the log lines, by outcome; `info` for those that are not named."""

    def __init__(self, cluster: str, publish: Callable[[str, bytes], None], metrics: Metrics) -> None:
        self._cluster = cluster
        self._publish = publish
        self._metrics = metrics
        self._last: dict[Hashable, object] = {}

    def failing(self, *, yes: bool) -> None:
        """Show whether something of the cluster cannot be carried out."""
        self._metrics.failing(self._cluster, yes=yes)

    def _is_new(self, about: Hashable, news: object) -> bool:
        """Whether this is not what was said last about a thing; from now on it is."""
        if about in self._last and self._last[about] == news:
            return False
        self._last[about] = news
        return True

    def _write(self, what: str, outcome: str, event: ActuatorEvent, at: datetime) -> None:
        fields = event.model_dump(mode="json", exclude={"outcome"}, exclude_none=True)
        getattr(_log, self.levels.get(outcome, "info"))(f"{what} {outcome}", **fields)
        self._publish(self._cluster, actuator_event(event, id=str(uuid.uuid4()), at=at))


class DecisionReports(AuditLog[Metrics], ABC, Generic[TaskT, Seen, Metrics]):
    """Says what became of one cluster's decisions; each outcome of a subject when it is new."""

    levels: ClassVar[dict[str, str]] = {Ending.FAILED: "error"}

    def found(self, decision: TaskT, finding: Finding[Seen], *, attempt: int, at: datetime) -> None:
        """Say that a decision was dealt with, or could not be in so many attempts."""
        is_new = self._is_new(decision.subject, self._news(decision, finding))
        if is_new or finding.outcome == Ending.DONE:
            self._emit(decision, finding, attempt, at)

    def superseded(self, decision: TaskT, in_force: TaskT, at: datetime) -> None:
        """Say that a decision is not carried out (any further), as another one is in force."""
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._emit(decision, Finding(Ending.SUPERSEDED, detail), 1, at)

    @abstractmethod
    def _news(self, decision: TaskT, finding: Finding[Seen]) -> object:
        """What makes a finding differ from the one before about the same subject."""

    @abstractmethod
    def _event(self, decision: TaskT, finding: Finding[Seen], attempt: int, at: datetime) -> ActuatorEvent:
        """What is to be said."""

    @abstractmethod
    def _count(self, decision: TaskT, finding: Finding[Seen]) -> None:
        """Have the metrics show it."""

    def _emit(self, decision: TaskT, finding: Finding[Seen], attempt: int, at: datetime) -> None:
        self._count(decision, finding)
        self._write(decision.verdict, finding.outcome, self._event(decision, finding, attempt, at), at)
