"""Joins the read models of a cluster as of now: bookies, groups, namespaces, and which of these readings are fresh.

This is the only place where readings of registrations, groups and affinity are joined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from policies.confirmation import Doubt, find_missing
from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.isolation.placement import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState, BookieState, Presence, ReadingStatus
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
    """The believed bookies and groups."""
    quarantined: frozenset[str]
    """The bookies in the quarantine group, also those in another group, too."""
    missing: Mapping[str, int]
    """The registered bookies that the last reading lacks, each with the time of the first reading without it."""
    doubted: Mapping[str, Doubt]
    """The bookies that readings of registrations disagree about, or that a single one showed."""
    is_settled: bool
    """Whether all readings are valid, nothing is doubted but new bookies, members of groups, and namespaces, and no
    member of a group and no affinity has left within `settle`."""
    notable: tuple[BookieState, ...]
    """The bookies that are not simply writable members of a group: few in a healthy cluster."""
    portless: Mapping[str, str]
    """The registered bookies whose host a group lists without the port, so that the entry fits no bookie."""
    stale: dict[str, ReadingStatus]
    """The kinds of readings without a valid good one, by name."""
    evidence: tuple[str, ...]
    """The ids of the good readings behind these facts, newest first."""

    def may_order(self, bookie: str) -> bool:
        """Whether a quarantine of this bookie rests on nothing doubted. A new one counts when it was read twice."""
        own = self.doubted.get(bookie)
        return self.is_settled and (own is None or own.may_be_acted_on(self.known.bookies_status.read_ms))

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
    now_ms, validity_ms = to_millis(now), millis_of(settings.validity)
    stale = {name: status for name, status in known.statuses.items() if now_ms - status.read_ms >= validity_ms}
    membership = known.membership()
    newest = sorted(known.statuses.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    missing = find_missing(known.bookies_doubts)
    notable = tuple(
        b
        for b in known.bookies
        if not (b.assigned and b.takes_data and b.joined_in_place_ms is None) or b.bookie in missing
    )
    return IsolationFacts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=known,
        membership=membership,
        quarantined=membership.quarantined(),
        missing=missing,
        doubted={doubt.name: doubt for doubt in known.bookies_doubts},
        is_settled=not stale
        and now_ms >= known.changed_ms + millis_of(settings.settle)
        and all(doubt.is_new and doubt.shown is not None for doubt in known.bookies_doubts)
        and all(doubt.is_new and not doubt.is_contradicted for doubt in (*known.racks_doubts, *known.affinity_doubts)),
        notable=notable,
        portless=_find_portless(notable),
        stale=stale,
        evidence=unique_ids(*(status.read_id for status in newest))[:EVIDENCE_LIMIT],
    )


def _find_portless(notable: Sequence[BookieState]) -> Mapping[str, str]:
    """Return the rack entry without port by bookie: `bk0` for `bk0:3181`, if no bookie `bk0` ever registered."""
    entries = {b.bookie for b in notable if b.assigned and b.never_joined and ":" not in b.bookie}
    if not entries:
        return {}
    split = ((b.bookie, *b.bookie.rpartition(":")) for b in notable if b.presence is not Presence.OFFLINE)
    return {bookie: host for bookie, host, _, port in split if host in entries and port.isdecimal()}
