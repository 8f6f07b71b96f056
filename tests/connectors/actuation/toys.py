"""A kind of decision, its worker and its reports, for no purpose but to be tested."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry
from tenacity import stop_after_attempt

from connectors.actuation.decision_worker import DecisionWorker
from connectors.actuation.reports import ActionResult, CommonOutcome, DecisionReports, PacedMetric
from policies.actuator_events import ActuatorEvent
from policies.decisions import Mode
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock

CLUSTER = "payments"


@dataclass(frozen=True)
class Toy:
    """Decided at noon; valid for five minutes."""

    event_type: ClassVar[str] = "example.toy.v1"
    sequence: int = 1
    verdict: str = "do"
    subject: str = "a"
    cluster: str = CLUSTER
    mode: Mode = Mode.ACTIVE
    decided_at: datetime = NOON
    expires_at: datetime | None = NOON + timedelta(minutes=5)

    @property
    def decision_id(self) -> str:
        return f"{self.cluster}/{self.subject}/{self.sequence}"


class ToyEvent(ActuatorEvent):
    """What became of one."""

    event_type: ClassVar[str] = "headgate.toy.v1"
    source: ClassVar[str] = "headgate/actuator/toy"
    about: str
    sequence: int
    outcome: str
    attempt: int
    detail: str | None = None

    def subject(self) -> str:
        return f"{self.cluster}/{self.about}"


class ToyReports(DecisionReports[Toy, str, PacedMetric]):
    def _content(self, decision: Toy, result: ActionResult[str]) -> object:
        return result

    def _event(self, decision: Toy, result: ActionResult[str], attempt: int, at: datetime) -> ToyEvent:
        return ToyEvent(
            cluster=self._cluster, about=decision.subject, sequence=decision.sequence, outcome=result.outcome,
            attempt=attempt, detail=result.detail,
        )  # fmt: skip

    def _count(self, decision: Toy, result: ActionResult[str]) -> None:
        """A toy has no metrics."""


@dataclass
class Published:
    """The audit, and whether the metric says that something fails."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    events: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        self.events.append(json.loads(value))

    @property
    def outcomes(self) -> list[str]:
        return [event["data"]["outcome"] for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return dict(self.events[-1]["data"])

    @property
    def failing(self) -> float | None:
        return self.registry.get_sample_value("toy_failing", {"cluster": CLUSTER})

    def reports(self) -> ToyReports:
        return ToyReports(CLUSTER, self.publish, PacedMetric(self.registry, "toy_failing", "Whether it fails."))


class ToyWorker(DecisionWorker[Toy, str]):
    """Does as it is told by `next_results`: the one for the next attempt first; done when there is none left."""

    wanted = frozenset({"do"})
    series = stop_after_attempt(2)

    def __init__(self, published: Published, clock: VirtualClock, grace: timedelta = timedelta(0)) -> None:
        super().__init__(CLUSTER, published.reports(), clock, grace)
        self.next_results: list[Exception | Callable[[], None]] = []
        self.attempts: list[tuple[str, bool]] = []
        """The subject of each attempt, and whether an earlier one may have done it."""
        self.acts: list[str] = []
        """What attempts are made for."""
        self.is_closed = False

    def _attempt(self, decision: Toy, stop: Event) -> ActionResult[str] | None:
        self.attempts.append((decision.subject, self._is_unsure(decision)))
        result = self.next_results.pop(0) if self.next_results else None
        if isinstance(result, Exception):
            raise result
        if result is not None:
            result()
        if self._is_held(decision):
            return None
        self.acts.append(decision.subject)
        return ActionResult(CommonOutcome.DONE)

    def _close(self) -> None:
        self.is_closed = True


def expired(toy: Toy) -> Toy:
    return replace(toy, expires_at=NOON)
