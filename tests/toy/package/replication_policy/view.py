"""The metrics of the replication policy."""

from collections.abc import Iterator
from dataclasses import dataclass

from connectors.views import DECISION_STALE, Family, FoldingView, Sample
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


@dataclass
class _Cluster:
    """The state of one cluster."""

    reading: LastReading | None = None

    def take(self, seen: Observation) -> None:
        self.reading = fold(self.reading, [seen])


class ReplicationView(FoldingView[_Cluster]):
    """The present picture of all clusters."""

    families: tuple[Family, ...] = (UNDER_REPLICATED,)

    def __init__(self, settings: ReplicationSettings) -> None:
        super().__init__(max(each.validity for each in settings.everywhere()), lambda _: _Cluster())
        self._decisions: dict[str, ReplicationDecision] = {}

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

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """The picture at a moment."""
        for name, cluster in sorted(self._clusters.items()):
            if cluster.reading is not None:
                yield Sample(UNDER_REPLICATED, (name,), cluster.reading.under_replicated)
        for name, decision in sorted(self._decisions.items()):
            yield Sample(DECISION_STALE, (NAME, name), float(now_ms >= to_millis(decision.valid_until)))
