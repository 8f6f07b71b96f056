"""Joins the read models of a cluster as of now: bookies, groups, namespaces, and which of these readings are fresh.

This is the only place where readings of registrations, groups and affinity are joined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from policies.decisions import EVIDENCE_LIMIT, unique_ids
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.isolation.placement import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import (
    BookieClusterState,
    BookieState,
    Cohort,
    Presence,
    ReadingStatus,
    affinity_namespace,
    collect_cohorts,
    collect_groups,
    split_group_member,
)
from policies.units import millis_of, to_millis


@dataclass(frozen=True, slots=True)
class Picture:
    """The bookies, groups and namespaces of a cluster, as far as some readings are trusted."""

    membership: BookieMembership
    cohorts: tuple[Cohort, ...]


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """Everything a verdict on one cluster rests on."""

    cluster: str
    now: datetime
    now_ms: int
    settings: IsolationSettings
    known: BookieClusterState
    read: Picture
    """The cluster by the last believed readings: placements rest on it, since brokers act on it."""
    for_alerts: Picture
    """The same, with everything that only the last reading lacks: the next one may show it again."""
    quarantined: frozenset[str]
    """The bookies in the quarantine group, also those in another group, too, and those that one reading lacks there."""
    notable: tuple[BookieState, ...]
    """The bookies that are not simply writable members of a group: few in a healthy cluster."""
    portless: Mapping[str, str]
    """The registered bookies whose host a group lists without the port, so that the entry fits no bookie."""
    stale: dict[str, ReadingStatus]
    """The kinds of readings without a valid good one, by name."""
    disputed: dict[str, tuple[str, ...]]
    """The kinds of readings about which two collectors disagree, with the collectors' names."""
    evidence: tuple[str, ...]
    """The ids of the good readings behind these facts, newest first."""

    @property
    def membership(self) -> BookieMembership:
        """The membership by the last believed readings."""
        return self.read.membership

    def doubtful_bookies(self) -> frozenset[str]:
        """The bookies that are in no group by the last reading, and in one by confirmed readings.

        Strangers that are most of a reading are doubtful, too: it may be a reading of another cluster.
        """
        if self.for_alerts is self.read:
            return frozenset()
        left = frozenset(split_group_member(key)[1] for key in self.known.groups_pending.missing_names())
        strangers = self.membership.writable - self.for_alerts.membership.writable
        return left - self.membership.grouped() | strangers

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
    read = Picture(known.membership(), known.cohorts)
    absent = map(split_group_member, known.groups_pending.missing_names())
    left = frozenset(bookie for group, bookie in absent if group == QUARANTINE_GROUP)
    newest = sorted(known.statuses.values(), key=lambda s: (s.read_ms, s.read_id), reverse=True)
    notable = tuple(b for b in known.bookies if not (b.assigned and b.takes_data and b.joined_in_place_ms is None))
    return IsolationFacts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=known,
        read=read,
        for_alerts=_join_for_alerts(known, read),
        quarantined=read.membership.quarantined() | left,
        notable=notable,
        portless=_find_portless(notable),
        stale=stale,
        disputed={
            name: pending.disputed_by for name, pending in known.disputes() if pending.is_disputed(now_ms, validity_ms)
        },
        evidence=unique_ids(*(status.read_id for status in newest))[:EVIDENCE_LIMIT],
    )


def _find_portless(notable: Sequence[BookieState]) -> Mapping[str, str]:
    """Return the rack entry without port by bookie: `bk0` for `bk0:3181`, if no bookie `bk0` ever registered."""
    entries = {b.bookie for b in notable if b.assigned and b.never_joined and ":" not in b.bookie}
    if not entries:
        return {}
    split = ((b.bookie, *b.bookie.rpartition(":")) for b in notable if b.presence is not Presence.OFFLINE)
    return {bookie: host for bookie, host, _, port in split if host in entries and port.isdecimal()}


def _join_for_alerts(known: BookieClusterState, read: Picture) -> Picture:
    """Return the cluster with everything that only the last reading lacks."""
    if all(pending.is_empty for _, pending in known.disputes()):
        return read
    registered = known.registered()
    missing = {b.bookie for b in known.bookies if b.presence is Presence.WRITABLE and b.missing_ms is not None}
    # A bookie in a group is no stranger: a fleet that comes back is believed at once.
    strangers = registered - known.bookies_pending.keep_missing(registered) - read.membership.grouped()
    cohorts = read.cohorts
    if not known.affinity_pending.is_empty:
        cohorts = collect_cohorts(_keep_affinities(known, known.affinities()))
    groups = _list_groups(known, known.groups_pending.keep_missing(known.group_members()))
    return Picture(BookieMembership(read.membership.writable - strangers | missing, groups), cohorts)


def _keep_affinities(known: BookieClusterState, read: frozenset[str]) -> frozenset[str]:
    """Return one affinity of each namespace: the confirmed one if the last reading lacks or changes it.

    New namespaces do not count while they are more than half of the reading, which may be of another cluster.
    """
    missing, new = known.affinity_pending.missing_names(), known.affinity_pending.new_names()
    restored = frozenset(map(affinity_namespace, missing))
    unchanged = frozenset(key for key in read if affinity_namespace(key) not in restored)
    new = frozenset(key for key in new if affinity_namespace(key) not in restored)
    return missing | (unchanged - new if 2 * len(new) > len(read) else unchanged)


def _list_groups(known: BookieClusterState, members: frozenset[str]) -> Mapping[str, frozenset[str]] | None:
    """Return these members by group, and the groups that were read without any member."""
    if known.groups is None and known.groups_pending.is_empty:
        return None
    return {group: frozenset[str]() for group, _ in known.groups or ()} | collect_groups(members)
