"""What a policy contributes to the exporter: its metrics (`PolicyView`) and its section of the status page."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar

from prometheus_client import Histogram
from pydantic import BaseModel, ConfigDict

from connectors.views.loop_snapshot import PolicySnapshot
from connectors.views.metric_families import Family, Sample
from policies.decisions import Decision
from policies.observations import Observation

StateT = TypeVar("StateT")
DECISION_STALE = Family(
    "headgate_decision_stale",
    "1 when the last decision is past its validity without a successor: the loop is dead and the fallback applies.",
    ("policy", "cluster"),
)
"""One family for all policies whose decisions expire."""


class PolicyView(ABC):
    """Folds the readings and decisions of one policy, and returns their present state as samples.

    The exporter calls it under a lock, with each decision once and in the order of sequences.
    """

    families: tuple[Family, ...]
    """Every family of its samples."""
    of_decisions: tuple[Family, ...] = ()
    """The families that show the latest decision of a ``cluster``; the exporter omits them when it is not renewed."""
    histograms: tuple[Histogram, ...] = ()
    """Exposed once they have a value."""
    history: timedelta = timedelta(0)
    """The age of the oldest reading that a new exporter needs."""

    def observe(self, observations: Sequence[Observation]) -> None:  # noqa: B027 - some show decisions only
        """Fold readings, in any order."""

    @abstractmethod
    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Fold a decision that is newer than the last one of its key.

        Args:
            decision: a decision of this policy, never an alert.
            live: False if the decision is older than the exporter's start. Counters must not count such a decision,
                or a restart would look like an event.

        Returns:
            True if the first reading of the evidence caused the decision, so that its latency is meaningful.
        """

    @abstractmethod
    def forget(self, key: str) -> None:
        """Drop the decision of a record key: a tombstone deleted it."""

    @abstractmethod
    def forget_cluster(self, cluster: str) -> None:
        """Drop a cluster: its last decision was deleted, because it is not watched any more."""

    @abstractmethod
    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the samples of this moment."""


class FoldingView(PolicyView, Generic[StateT]):
    """Folds the readings of each cluster as a step of the policy does.

    Args:
        history: the age of the oldest reading that still counts in any cluster.
        make: makes the state of a new cluster from its name.
    """

    def __init__(self, history: timedelta, make: Callable[[str], StateT]) -> None:
        self.history = history
        self._make = make
        self._clusters: dict[str, StateT] = {}

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings by cluster."""
        found: defaultdict[str, list[Observation]] = defaultdict(list)
        for observation in observations:
            found[observation.reading.cluster].append(observation)
        for name, readings in found.items():
            self._fold(self._cluster(name), readings)

    @abstractmethod
    def _fold(self, cluster: StateT, readings: Sequence[Observation]) -> None:
        """Fold readings of one cluster into its state."""

    def _cluster(self, name: str) -> StateT:
        """Return the state of a cluster, made when its name first occurs."""
        if name not in self._clusters:
            self._clusters[name] = self._make(name)
        return self._clusters[name]

    def forget_cluster(self, cluster: str) -> None:
        """Drop the cluster."""
        self._clusters.pop(cluster, None)


class PolicyDetail(BaseModel):
    """A policy's section of a cluster on the status page and in its API."""

    model_config = ConfigDict(frozen=True)

    def charted(self) -> Mapping[str, float]:
        """Return the values to chart over the last hour, by name: a few, always the same names."""
        return {}


@dataclass(frozen=True, slots=True)
class DetailKind:
    """The model of a policy's section, the function that builds it, and its template."""

    model: type[PolicyDetail]
    build: Callable[[PolicySnapshot], PolicyDetail | None]
    """Returns None if the section has no content for the cluster."""
    template: Path | None = None
    """A Jinja template with the variables of `page/templates/policy.html`; None: that one, for the API has the rest."""
