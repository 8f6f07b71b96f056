"""The interface of a policy's metrics module for the exporter; `PolicyConnectors.view` names it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from connectors.metric_families import Family, Histogram, Sample
from policies.decisions import Decision
from policies.observations import Observation

DECISION_STALE = Family(
    "headgate_decision_stale",
    "1 when the last decision is past its validity without a successor: the loop is dead and the fallback applies.",
    ("policy", "cluster"),
)
"""One family for all policies whose decisions have an end."""


class PolicyView(Protocol):
    """The present picture of one policy: folds what was observed and decided, and says it in samples.

    Called under a lock, with each decision once and in order of its sequence.
    """

    families: tuple[Family, ...]
    """All it may give samples of."""
    of_decisions: tuple[Family, ...]
    """Those of them that tell what was decided last, labelled by ``cluster``: left out once nobody keeps that up."""
    histograms: tuple[Histogram, ...]
    """What it counts by size besides, if anything; each is shown once it has a value."""

    @property
    def history(self) -> timedelta:
        """How far back its observations matter to a picture that is built anew."""
        ...

    def observe(self, observations: Sequence[Observation]) -> None:
        """Fold readings in, in whatever order they come."""
        ...

    def decide(self, decision: Decision, *, live: bool) -> bool:
        """Take a decision newer than the last of its key.

        Args:
            decision: of this policy; alerts go elsewhere.
            live: false for one that was there before the exporter had caught up: no counter may count it, or a
                restart would look like an event.

        Returns:
            Whether it names evidence, and the first is the observation that caused it, so that its latency means
            something.
        """
        ...

    def forget(self, key: str) -> None:
        """The decision of this record key was deleted from its topic."""
        ...

    def forget_cluster(self, cluster: str) -> None:
        """The last decision about a cluster was deleted: it is watched no longer."""
        ...

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """The picture at a moment."""
        ...


def by_cluster(observations: Iterable[Observation]) -> Iterator[tuple[str, list[Observation]]]:
    """The observations of each cluster, as its own policy sees them."""
    found: defaultdict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        found[observation.reading.cluster].append(observation)
    yield from found.items()
