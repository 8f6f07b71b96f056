"""Metrics of the isolation policy: the registered bookies, and the bookies that each namespace may use.

The bookies are those of the last readings. Values about namespaces come from their latest decisions alone, so that
metrics never disagree with decisions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from connectors.views import Decided, Family, PolicyDetail, PolicyView, Sample
from policies.bookie_readings import BookieRacks, Bookies
from policies.decisions import Decision
from policies.isolation.decisions import QUARANTINE_GROUP, Placement
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import Presence
from policies.observations import Observation, Outcome

BOOKIES = Family(
    "headgate_bookies",
    "Bookies by state (writable, read_only, offline) and by whether they are in a group. A bookie in the quarantine "
    "group alone counts as not assigned.",
    ("cluster", "state", "assigned"),
)
UNASSIGNED = Family(
    "headgate_unassigned_bookie",
    "1 for each writable bookie without a group, quarantined ones included.",
    ("cluster", "bookie"),
)
CANDIDATES = Family(
    "headgate_namespace_candidates",
    "Bookies that the namespace may use now; the tier shows how far it must reach to find enough.",
    ("cluster", "namespace", "tier"),
)
HEADROOM = Family(
    "headgate_namespace_headroom",
    "Further losses of bookies until the next tier; 0 if the namespace cannot place its data.",
    ("cluster", "namespace"),
)
LEAK = Family(
    "headgate_isolation_leak",
    "Bookies that the cluster lets the namespace use although the promise forbids them.",
    ("cluster", "namespace"),
)


@dataclass(slots=True)
class _IsolatedCluster:
    """The last good readings of one cluster."""

    bookies: Bookies | None = None
    grouped: frozenset[str] | None = None
    """The bookies in a group other than the quarantine group; None while no groups have been read."""

    def take(self, seen: Observation) -> None:
        """Take a reading; one that failed leaves the last good one."""
        reading = seen.reading
        if isinstance(reading, Bookies) and reading.outcome is Outcome.OK:
            self.bookies = reading
        elif isinstance(reading, BookieRacks) and reading.outcome in (Outcome.OK, Outcome.ABSENT):
            members = (names for group, names in (reading.groups or {}).items() if group != QUARANTINE_GROUP)
            self.grouped = frozenset().union(*members)

    def states(self) -> dict[str, Presence]:
        """Return the state of each bookie that is registered, has a cookie, or is in a group; none while unknown."""
        if self.bookies is None or self.grouped is None:
            return {}
        offline = dict.fromkeys((*self.bookies.known, *self.grouped), Presence.OFFLINE)
        read_only = dict.fromkeys((each.bookie for each in self.bookies.read_only), Presence.READ_ONLY)
        return offline | read_only | dict.fromkeys((each.bookie for each in self.bookies.writable), Presence.WRITABLE)

    def unassigned(self) -> list[str]:
        """Return the writable bookies without a group."""
        states, grouped = self.states(), self.grouped or ()
        return sorted(name for name, state in states.items() if state is Presence.WRITABLE and name not in grouped)


class IsolationView(PolicyView[_IsolatedCluster]):
    """The present state of all clusters."""

    families: tuple[Family, ...] = (BOOKIES, UNASSIGNED, CANDIDATES, HEADROOM, LEAK)
    of_decisions: tuple[Family, ...] = (CANDIDATES, HEADROOM, LEAK)

    def __init__(self, settings: IsolationSettings) -> None:
        longest = max(each.validity for each in settings.everywhere())
        super().__init__(longest, lambda _: _IsolatedCluster(), _show)

    def decide(self, decision: Decision, before: Decision | None, *, live: bool) -> bool:  # noqa: ARG002 - none counts
        """Return whether a placement has a cause."""
        return isinstance(decision, Placement) and bool(decision.evidence)

    def samples(self, now_ms: int, decided: Decided) -> Iterator[Sample]:  # noqa: ARG002 - no time matters
        """Yield the samples of all clusters and namespaces."""
        for name, cluster, decisions in self.states(decided):
            if cluster.bookies is not None:
                yield from _bookie_samples(name, cluster)
            for placement in decisions:
                if isinstance(placement, Placement):
                    labels = (name, placement.namespace)
                    yield Sample(CANDIDATES, (*labels, placement.tier.value), placement.candidate_count or 0)
                    yield Sample(HEADROOM, labels, placement.headroom)
                    yield Sample(LEAK, labels, placement.leak_count or 0)


def _bookie_samples(cluster: str, read: _IsolatedCluster) -> Iterator[Sample]:
    grouped = read.grouped or ()
    counts = Counter((state, bookie in grouped) for bookie, state in read.states().items())
    for state in Presence:
        for assigned in (True, False):
            yield Sample(BOOKIES, (cluster, state.value, str(assigned).lower()), counts[state, assigned])
    yield from (Sample(UNASSIGNED, (cluster, bookie), 1.0) for bookie in read.unassigned())


# The isolation policy on the status page: unassigned bookies, and the placement of namespaces.

SHOWN_NAMES = 8


class IsolationDetail(PolicyDetail):
    """Registered bookies, and the placement of namespaces."""

    template: ClassVar[str] = str(Path(__file__).with_name("detail.html"))

    bookies: dict[str, int] = Field(description="Number of bookies by state: writable, read_only, offline.")
    unassigned_count: int = Field(description="Number of writable bookies without a group.")
    unassigned: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")
    namespaces: dict[str, int] = Field(description="Number of namespaces by the verdict on their placement.")
    leaking_count: int = Field(description="Number of namespaces that may use bookies which the promise forbids.")
    leaking: tuple[str, ...] = Field(description=f"The first {SHOWN_NAMES} of them.")


def _show(cluster: _IsolatedCluster, decisions: Sequence[Decision], *_: object) -> IsolationDetail | None:
    placements = [each for each in decisions if isinstance(each, Placement)]
    if cluster.bookies is None and not placements:
        return None
    counts, unassigned = Counter(cluster.states().values()), cluster.unassigned()
    leaking = sorted(each.namespace for each in placements if each.leak_count)
    return IsolationDetail(
        bookies={} if cluster.bookies is None else {state.value: counts[state] for state in Presence},
        unassigned_count=len(unassigned),
        unassigned=tuple(unassigned[:SHOWN_NAMES]),
        namespaces=dict(Counter(placement.verdict.value for placement in placements).most_common()),
        leaking_count=len(leaking),
        leaking=tuple(leaking[:SHOWN_NAMES]),
    )
