"""Metrics of the isolation policy: which bookies are registered, and where each namespace's data may lie.

Knowledge about bookies comes from the policy's own code, fed with the same readings. Values about namespaces come from
their last decisions alone, so that metrics never disagree with decisions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from connectors.metric_families import Family, Histogram, Sample
from connectors.policy_view import by_cluster
from policies.decisions import Decision
from policies.isolation.decisions import Placement
from policies.isolation.fold import fold
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState, BookieState, Presence
from policies.observations import Observation

BOOKIES = Family(
    "headgate_bookies",
    "Bookies by state (writable, read_only, offline) and by whether they are in a group; one that is in the quarantine "
    "group alone is not assigned.",
    ("cluster", "state", "assigned"),
)
UNASSIGNED = Family(
    "headgate_unassigned_bookie",
    "1 for each writable bookie that nobody put into a group, the quarantined ones included.",
    ("cluster", "bookie"),
)
CANDIDATES = Family(
    "headgate_namespace_candidates",
    "How many bookies the namespace may use now; the tier says how far it must reach to find enough.",
    ("cluster", "namespace", "tier"),
)
HEADROOM = Family(
    "headgate_namespace_headroom",
    "How many more losses until the next tier; 0 when the namespace cannot place its data.",
    ("cluster", "namespace"),
)
LEAK = Family(
    "headgate_isolation_leak",
    "How many bookies the cluster lets the namespace use that the promise forbids.",
    ("cluster", "namespace"),
)


@dataclass(slots=True)
class _IsolatedCluster:
    """What is shown of one cluster."""

    settings: IsolationSettings
    known: BookieClusterState = field(default_factory=BookieClusterState)


class IsolationView:
    """The present picture of all clusters.

    Args:
        settings: the policy's block.
    """

    families: tuple[Family, ...] = (BOOKIES, UNASSIGNED, CANDIDATES, HEADROOM, LEAK)
    of_decisions: tuple[Family, ...] = (CANDIDATES, HEADROOM, LEAK)
    histograms: tuple[Histogram, ...] = ()

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._clusters: dict[str, _IsolatedCluster] = {}
        self._placements: dict[str, Placement] = {}

    @property
    def history(self) -> timedelta:
        """As far back as a reading counts anywhere."""
        return max(settings.validity for settings in self._settings.everywhere())

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings in as one step of the policy does."""
        for name, readings in by_cluster(observations):
            if name not in self._clusters:
                self._clusters[name] = _IsolatedCluster(self._settings.for_cluster(name))
            cluster = self._clusters[name]
            cluster.known = fold(cluster.known, readings, cluster.settings)

    def decide(self, decision: Decision, *, live: bool) -> bool:  # noqa: ARG002 - nothing here is counted
        """Take a namespace's next placement."""
        if not isinstance(decision, Placement):
            return False
        self._placements[decision.record_key()] = decision
        return bool(decision.evidence)

    def forget(self, key: str) -> None:
        """Drop the namespace whose decision was deleted."""
        self._placements.pop(key, None)

    def forget_cluster(self, cluster: str) -> None:
        """Drop all that is shown of it."""
        self._clusters.pop(cluster, None)

    def samples(self, now_ms: int) -> Iterator[Sample]:  # noqa: ARG002 - a placement holds until the next one
        """Every series of every cluster and namespace."""
        for name, cluster in sorted(self._clusters.items()):
            yield from _of_bookies(name, cluster.known.bookies)
        for _, placement in sorted(self._placements.items()):
            yield from _of_placement(placement)


def _of_bookies(cluster: str, bookies: Sequence[BookieState]) -> Iterator[Sample]:
    counts = Counter((b.presence, bool(b.assigned)) for b in bookies if b.assigned is not None)
    for state in Presence:
        for assigned in (True, False):
            yield Sample(BOOKIES, (cluster, state.value, str(assigned).lower()), counts[state, assigned])
    for bookie in bookies:
        if bookie.presence is Presence.WRITABLE and bookie.assigned is False:
            yield Sample(UNASSIGNED, (cluster, bookie.bookie), 1.0)


def _of_placement(placement: Placement) -> Iterator[Sample]:
    labels = (placement.cluster, placement.namespace)
    yield Sample(CANDIDATES, (*labels, placement.tier.value), _count(placement.candidate_count, placement.candidates))
    yield Sample(HEADROOM, labels, placement.headroom)
    yield Sample(LEAK, labels, _count(placement.leak_count, placement.leak))


def _count(told: int | None, listed: Sequence[str]) -> int:
    """Lists are cut; older decisions say no count."""
    return len(listed) if told is None else told
