"""Reports what an actuator did, once: as an event in the audit topic and as a log line."""

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


PublishAudit = Callable[[str, bytes], None]
"""Hands an event (key, value) over for the audit; does not block."""
Metrics = TypeVar("Metrics", bound="FailingMetric")
PacedT = TypeVar("PacedT", bound="PacedMetric")
Observed = TypeVar("Observed")
"""What an actuator finds and tells besides the outcome."""


class ActionError(Exception):
    """It cannot be done now, and was not; the message says why in one short line, without a secret."""


class UnknownOutcomeError(ActionError):
    """No good answer to an action: it may have been done or not. The next look tells."""


class CommonOutcome(StrEnum):
    """The outcomes that all actuators have; each has them in an enum of its own, too, beside what is particular."""

    DONE = "done"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    SHADOW = "shadow"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ActionResult(Generic[Observed]):
    """What came of an attempt."""

    outcome: StrEnum
    detail: str | None = None
    observed: Observed | None = None


class FailingMetric:
    """A metric of its own name for each actuator: whether something of a cluster cannot be carried out."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str) -> None:
        self._failing = Gauge(name, documentation, ("cluster",), registry=registry)

    def failing(self, cluster: str, *, yes: bool) -> None:
        """Whether something of a cluster cannot be carried out."""
        self._failing.labels(cluster).set(yes)


class PacedMetric(FailingMetric):
    """The same of an actuator that does a bounded number of actions a minute: whether that holds any back."""

    def __init__(self, registry: CollectorRegistry, name: str, documentation: str) -> None:
        super().__init__(registry, name, documentation)
        self._held = Gauge(
            f"{name.removesuffix('_failing')}_held",
            "1 while decisions wait because as many actions were done within a minute as ever are.",
            ("cluster",),
            registry=registry,
        )

    def held(self, cluster: str, *, yes: bool) -> None:
        """Whether decisions of a cluster wait."""
        self._held.labels(cluster).set(yes)


class AuditLog(Generic[Metrics]):
    """What is said of one cluster. What was said last of a thing need not be said again.

    Args:
        cluster: its name.
        publish: takes each event.
        metrics: where it is counted; shared by all clusters.
    """

    levels: ClassVar[dict[str, str]]
    """Of the log lines, by outcome; `info` for those that are not named."""

    def __init__(self, cluster: str, publish: PublishAudit, metrics: Metrics) -> None:
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


class DecisionReports(AuditLog[PacedT], ABC, Generic[ActionableT, Observed, PacedT]):
    """Says what became of one cluster's decisions; each outcome of a subject when it is new."""

    levels: ClassVar[dict[str, str]] = {CommonOutcome.FAILED: "error"}

    def held(self, *, yes: bool) -> None:
        """Show whether decisions wait because too much was done within a minute."""
        self._metrics.held(self._cluster, yes=yes)

    def found(self, decision: ActionableT, result: ActionResult[Observed], *, attempt: int, at: datetime) -> None:
        """Say that a decision was dealt with, or could not be in so many attempts."""
        is_new = self._is_new(decision.subject, self._news(decision, result))
        if is_new or result.outcome == CommonOutcome.DONE:
            self._emit(decision, result, attempt, at)

    def superseded(self, decision: ActionableT, in_force: ActionableT, at: datetime) -> None:
        """Say that a decision is not carried out (any further), as another one is in force."""
        detail = f"sequence {in_force.sequence} is in force: {in_force.verdict}"
        self._emit(decision, ActionResult(CommonOutcome.SUPERSEDED, detail), 1, at)

    @abstractmethod
    def _news(self, decision: ActionableT, result: ActionResult[Observed]) -> object:
        """What makes a result differ from the one before about the same subject."""

    @abstractmethod
    def _event(
        self, decision: ActionableT, result: ActionResult[Observed], attempt: int, at: datetime
    ) -> ActuatorEvent:
        """What is to be said."""

    @abstractmethod
    def _count(self, decision: ActionableT, result: ActionResult[Observed]) -> None:
        """Have the metrics show it."""

    def _emit(self, decision: ActionableT, result: ActionResult[Observed], attempt: int, at: datetime) -> None:
        self._count(decision, result)
        self._write(decision.verdict, result.outcome, self._event(decision, result, attempt, at), at)
