"""A snapshot of the loop: metric values and the decisions in force at one moment.

The status page and its API take all their data from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from connectors.views.metric_families import Family, Sample
from policies.decisions import Alert, Decision
from policies.effects import InForce
from policies.settings import PolicySettings

Kind = TypeVar("Kind", bound=Decision)

MAX_RECENT_DECISIONS = 100
"""Number of recent decisions on the status page."""


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """One policy in one cluster."""

    policy: str
    cluster: str
    settings: PolicySettings
    """The settings in force for the cluster."""
    samples: Sequence[Sample] = ()
    """The policy's metrics with this cluster as a label."""
    decisions: Sequence[Decision] = ()
    """The decisions in force, by kind and subject."""
    in_force: InForce | None = None
    """The wanted and the set values; None if the policy has no actuator for the cluster."""

    def values(self, family: Family) -> dict[tuple[str, ...], float]:
        """Return the samples of a family by their labels without ``cluster``."""
        at = family.labels.index("cluster")
        return {(*s.labels[:at], *s.labels[at + 1 :]): s.value for s in self.samples if s.family is family}

    def value(self, family: Family) -> float | None:
        """Return the sample of a family whose only label is ``cluster``; None if it has none."""
        return self.values(family).get(())

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """Return the decisions of a kind."""
        return [decision for decision in self.decisions if isinstance(decision, kind)]


class AnswersStatus(BaseModel):
    """Whether and how fast the loop answers the canary, from its reading to its decision."""

    model_config = ConfigDict(frozen=True)

    latest_seconds: float | None = Field(description="Latency of the last answer; null before the first.")
    unanswered_seconds: float = Field(description="Age of the reading that waits for its answer; 0 if none waits.")
    silent: bool = Field(description="Whether that age is above the limit: the loop is dead or far behind.")


@dataclass(frozen=True, slots=True)
class LoopSnapshot:
    """The whole loop."""

    at: datetime
    behind: str | None = "nothing was read yet"
    """Why the snapshot is older than the present; None if it is not."""
    problem: str | None = None
    """Why no new records can be read; None if they can."""
    policies: Sequence[PolicySnapshot] = ()
    """Sorted by cluster and policy."""
    alerts: Sequence[Alert] = ()
    """The firing alerts, by severity and then the newest first."""
    recent_decisions: Sequence[Decision] = ()
    """The last decisions and alerts that changed anything, the newest first."""
    answers: AnswersStatus | None = None
    """None if there is no canary."""
    unwatched: frozenset[tuple[str, str]] = frozenset()
    """The policies and clusters whose heartbeat is stale."""
