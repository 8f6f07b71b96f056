"""The metrics of the replication policy."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from connectors.views.metric_families import Family, Histogram, Sample
from connectors.views.policy_view import DECISION_STALE, by_cluster
from policies.decisions import Decision
from policies.observations import Observation
from policies.units import to_millis

from .decisions import ReplicationDecision
from .fold import fold
from .policy import NAME
from .settings import ReplicationSettings
from .state import LastReading

UNDER_REPLICATED = Family(
    "headgate_under_replicated_partitions",
    "Partitions with fewer in-sync replicas than replicas, when last read.",
    ("cluster",),
)


class ReplicationView:
    """The present picture of all clusters."""

    families: tuple[Family, ...] = (UNDER_REPLICATED,)
    of_decisions: tuple[Family, ...] = ()
    histograms: tuple[Histogram, ...] = ()

    def __init__(self, settings: ReplicationSettings) -> None:
        self._settings = settings
        self._readings: dict[str, LastReading | None] = {}
        self._decisions: dict[str, ReplicationDecision] = {}

    @property
    def history(self) -> timedelta:
        """As far back as a reading counts anywhere."""
        return max(settings.validity for settings in self._settings.everywhere())

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings in as the policy does."""
        for cluster, readings in by_cluster(observations):
            self._readings[cluster] = fold(self._readings.get(cluster), readings)

    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Take a cluster's next decision."""
        if not isinstance(decision, ReplicationDecision):
            return False
        before = self._decisions.get(decision.cluster)
        self._decisions[decision.cluster] = decision
        return before is not None and before.evidence != decision.evidence and before.verdict != decision.verdict

    def forget(self, key: str) -> None:
        """Drop the cluster whose decision was deleted."""
        self._decisions.pop(key, None)

    def forget_cluster(self, cluster: str) -> None:
        """Drop the cluster of which nothing is left."""
        self._readings.pop(cluster, None)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """The picture at a moment."""
        for cluster, reading in sorted(self._readings.items()):
            if reading is not None:
                yield Sample(UNDER_REPLICATED, (cluster,), reading.under_replicated)
        for cluster, decision in sorted(self._decisions.items()):
            yield Sample(DECISION_STALE, (NAME, cluster), float(now_ms >= to_millis(decision.valid_until)))
