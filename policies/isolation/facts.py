"""Joins the read models of a cluster as of now: bookies, groups, namespaces, and which of these readings are fresh.

This is the only place where readings of registrations, groups and affinity are joined.
"""

from dataclasses import dataclass
from datetime import datetime

from policies.decisions import EVIDENCE_LIMIT
from policies.isolation.membership import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import NEVER, BookieClusterState, Presence, ReadingStatus
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
    """The membership by the last good readings."""
    confirmed: BookieMembership
    """The same, with the bookies that are missing from only one reading so far. Alerts rest on it, because a second
    reading may show those bookies again."""
    quarantined: frozenset[str]
    """The bookies in the quarantine group, including those that are in another group, too."""
    stale: dict[str, ReadingStatus]
    """The kinds of readings without a valid good one, by name."""
    evidence: tuple[str, ...]
    """The ids of the good readings behind these facts, newest first."""

    @property
    def has_fresh_registrations(self) -> bool:
        """Whether the readings of bookies and groups are valid."""
        return "bookies" not in self.stale and "racks" not in self.stale

    @property
    def is_fresh(self) -> bool:
        """Whether all readings are valid. Without the namespaces, the effect of a quarantine is unknown."""
        return not self.stale


def join_facts(now: datetime, cluster: str, known: BookieClusterState, settings: IsolationSettings) -> IsolationFacts:
    """Join the read models of a cluster as of now."""
    now_ms, validity_ms, membership = to_millis(now), millis_of(settings.validity), known.membership()
    stale = {
        name: status
        for name, status in known.statuses.items()
        if status.read_ms == NEVER or now_ms - status.read_ms >= validity_ms
    }
    missing = {b.bookie for b in known.bookies if b.presence is Presence.WRITABLE and b.missing_ms is not None}
    confirmed = BookieMembership(membership.writable | missing, membership.groups) if missing else membership
    newest = sorted(known.statuses.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    return IsolationFacts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=known,
        membership=membership,
        confirmed=confirmed,
        quarantined=membership.quarantined(),
        stale=stale,
        evidence=tuple(dict.fromkeys(status.read_id for status in newest if status.read_id))[:EVIDENCE_LIMIT],
    )
