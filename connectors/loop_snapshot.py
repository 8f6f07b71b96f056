"""A snapshot of the loop at one moment: metric values and the decisions in force.

Everything that displays the loop (the status page, its API) takes its data from here and derives nothing itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from connectors.metric_families import Family, Sample
from policies.decisions import Alert, Decision
from policies.settings import PolicySettings

Kind = TypeVar("Kind", bound=Decision)

SHOWN_NEWS = 100
"""So many of the last decisions are kept for who looks at the status page."""


@dataclass(frozen=True, slots=True)
class PolicyPicture:
    """One policy in one cluster."""

    policy: str
    cluster: str
    settings: PolicySettings
    """In force for the cluster."""
    samples: Sequence[Sample] = ()
    """Its metrics that are about the cluster."""
    decisions: Sequence[Decision] = ()
    """In force, by kind and subject."""

    def values(self, family: Family) -> dict[tuple[str, ...], float]:
        """The samples of a family by their labels but for the cluster."""
        at = family.labels.index("cluster")
        return {(*s.labels[:at], *s.labels[at + 1 :]): s.value for s in self.samples if s.family is family}

    def value(self, family: Family) -> float | None:
        """The one sample of a family that has no label but the cluster."""
        return self.values(family).get(())

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """The decisions of a kind."""
        return [decision for decision in self.decisions if isinstance(decision, kind)]


@dataclass(frozen=True, slots=True)
class LoopAnswers:
    """Whether and how soon the loop answers the canary."""

    latest_seconds: float | None
    """How long its last answer took; None: there was none yet."""
    unanswered_seconds: float
    """For how long an answer has been waited for; 0: for none."""
    is_silent: bool
    """Whether that is too long."""


@dataclass(frozen=True, slots=True)
class LoopPicture:
    """The whole loop."""

    at: datetime
    behind: str | None = "nothing was read yet"
    """Why this is not the present; None: it is."""
    problem: str | None = None
    """Why nothing new can be read; None: it can."""
    policies: Sequence[PolicyPicture] = ()
    """By cluster and policy."""
    alerts: Sequence[Alert] = ()
    """Those that fire, the gravest and newest first."""
    news: Sequence[Decision] = ()
    """The last decisions and alerts that changed anything, the newest first."""
    answers: LoopAnswers | None = None
    """None: there is no canary."""
    unwatched: frozenset[tuple[str, str]] = frozenset()
    """The policies and clusters whose decisions nobody keeps up any more."""
