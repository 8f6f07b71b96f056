"""The state of a cluster at one moment: its bookies, groups and namespaces, and which of these readings are fresh.

This is the only place where readings of registrations, groups and affinity are joined.
"""

from dataclasses import dataclass
from datetime import datetime

from policies.decisions import EVIDENCE_LIMIT
from policies.isolation.membership import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import NEVER, BookieClusterState, ReadingStatus
from policies.units import millis_of, to_millis


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """Everything a verdict on one cluster rests on."""

    cluster: str
    now: datetime
    now_ms: int
    settings: IsolationSettings
    known: BookieClusterState
    membership: BookieMembership
    """As the last good readings have it."""
    confirmed: BookieMembership
    """The same with the bookies that one reading alone has lacked: what is alarming only counts when it is sure."""
    quarantined: frozenset[str]
    """The bookies in the quarantine group, whatever else they are in."""
    stale: dict[str, ReadingStatus]
    """The readings whose last good one no longer counts, by name."""
    evidence: tuple[str, ...]
    """The good readings that all of this rests on, the newest first."""

    @property
    def registrations_fresh(self) -> bool:
        """Whether bookies and groups are known by valid readings."""
        return "bookies" not in self.stale and "racks" not in self.stale

    @property
    def all_fresh(self) -> bool:
        """Whether the namespaces are, too: without them nobody can say what a quarantine would do."""
        return not self.stale


def facts_as_of(now: datetime, cluster: str, known: BookieClusterState, settings: IsolationSettings) -> IsolationFacts:
    """What is the case at a moment, by what is known."""
    now_ms, validity_ms, membership = to_millis(now), millis_of(settings.validity), known.membership()
    stale = {
        name: status
        for name, status in known.statuses.items()
        if status.read_ms == NEVER or now_ms - status.read_ms >= validity_ms
    }
    return IsolationFacts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=known,
        membership=membership,
        confirmed=known.confirmed_membership(membership),
        quarantined=membership.quarantined(),
        stale=stale,
        evidence=_evidence(known),
    )


def _evidence(known: BookieClusterState) -> tuple[str, ...]:
    newest = sorted(known.statuses.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    return tuple(dict.fromkeys(status.read_id for status in newest if status.read_id))[:EVIDENCE_LIMIT]
