"""Joins the read models as of one moment into frozen facts, the only input of the rules. No other module joins them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from policies.decisions import Mode, RepeatSchedule, unique_ids
from policies.observations import Outcome
from policies.sessions import fleet
from policies.sessions.decisions import SessionStatus, SessionVerdict
from policies.sessions.fold import ClusterState
from policies.sessions.readings import NAMESPACES, named_member, registration_path
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import (
    NEVER,
    SESSIONS,
    Claim,
    Member,
    NodeRecord,
    SessionTrack,
    SourceRecord,
    SpentShutdown,
    find_replaced,
)
from policies.units import millis_of


class ClaimFacts(Struct, frozen=True, gc=False):
    """One member's claim to one bundle, with the bundle's node and the other claimants."""

    claim: Claim
    node: NodeRecord | None
    """The last reading, which may be from before the loss."""
    rivals: Mapping[str, str | None]
    """The other members that claim the bundle, each with its present session."""


class MemberFacts(Struct, frozen=True, gc=False):
    """The facts about one member."""

    member: Member
    """The folded state."""
    role: fleet.RoleFacts
    registration: NodeRecord | None
    claims: tuple[ClaimFacts, ...]
    """Sorted by path."""
    is_fresh: bool
    deadline_ms: int
    """When it counts as exhausted if it has no session by then."""
    has_failed: bool
    """Whether its process has been without a session for too long, or has failed to reconnect too often."""
    is_exhausted: bool
    """The same, unless it has time left after an outage."""
    certainty: fleet.Certainty
    """How certain it is that it is without a session; without meaning while it has one."""
    liveness: fleet.Liveness
    evidence: tuple[str, ...]
    """The readings of its session and of its registration."""

    @property
    def owned(self) -> tuple[ClaimFacts, ...]:
        """Its claims to bundles that it owned when it lost its session."""
        return tuple(claim for claim in self.claims if claim.claim.since_ms == self.member.lost_ms)

    @property
    def name(self) -> str:
        """The name under which it registers itself."""
        return self.member.member

    @property
    def track(self) -> SessionTrack | None:
        """Its session; None while no reading of it has come."""
        return self.member.track

    @property
    def has_published(self) -> bool:
        """Whether it has published load data since its session was established again."""
        track, node = self.track, self.registration
        if track is None or self.member.republished_ms >= (track.reestablished_ms or 0):
            return track is not None
        return node is not None and node.session is not None and node.session == track.session

    def is_listed_since(self, at_ms: int) -> bool:
        """Whether the cluster has listed it after this time."""
        return self.member.health is not None and self.member.health.listed_ms > at_ms

    @property
    def is_settled(self) -> bool:
        """Whether it will not take back what it owned: it has a stable session, or is gone."""
        track, last = self.track, self.member.last_published
        if last is not None and last.verdict is SessionVerdict.GONE:
            return True
        ended = (SessionStatus.ESTABLISHED, SessionStatus.CLOSED)
        return track is not None and track.status in ended and not track.unsettled


@dataclass(frozen=True)
class Facts:
    """The facts about one cluster."""

    settings: SessionsSettings
    now_ms: int
    members: Mapping[str, MemberFacts]
    roles: Mapping[str, fleet.RoleFacts]
    unread: fleet.Unread | None
    """Why ZooKeeper cannot be read; None while it can be."""
    nodes: Mapping[str, NodeRecord]
    bundles: Sequence[NodeRecord]
    sources: Mapping[str, SourceRecord]
    budget: fleet.Budget
    replaced: Mapping[str, bool]
    """Tells by the path of an absent, replaced bundle whether newer ones cover its whole range."""
    has_ownership: bool
    """Whether it is known which members own bundles. With some load managers, ZooKeeper does not show it."""

    @cached_property
    def owned_counts(self) -> Mapping[str, int]:
        """The number of bundles whose nodes name a member, by member."""
        return Counter(node.owner for node in self.bundles if node.exists and node.owner is not None)

    @cached_property
    def validity_ms(self) -> int:
        """How long a reading counts; computed once for thousands of bundles."""
        return self.settings.validity_ms

    def is_valid(self, read_ms: int) -> bool:
        """Whether a reading of this time still counts."""
        return self.now_ms - read_ms <= self.validity_ms

    @cached_property
    def schedule(self) -> RepeatSchedule:
        """When a published decision lapses: if it still applies, it is published again then."""
        return RepeatSchedule(self.settings.validity, valid_for=1)

    @cached_property
    def taken(self) -> Sequence[tuple[NodeRecord, str]]:
        """The bundles that only one member may own and another owns, each with the member that may.

        Names of one host with two ports may be names of one broker, unless both are members.
        """
        named = ((node, named_member(node.path)) for node in self.bundles if node.exists and node.owner is not None)
        return [
            (node, member)
            for node, member in named
            if member not in (None, node.owner)
            and (member in self.members or _host(member) != _host(node.owner or ""))
        ]  # fmt: skip

    def orphan_ms(self, node: NodeRecord, *, is_open: bool = False) -> int | None:
        """When an absent bundle becomes an orphan; None while it has an owner, or its last owner is not settled.

        Args:
            is_open: whether an alert reports it. Then only an owner ends that, and not another loss of its last owner.
        """
        is_own = named_member(node.path) is not None or node.prior in node.path.split("/")
        if node.prior is None or is_own or self.replaced.get(node.path):
            return None
        since_ms, owner = node.changed_ms, self.members.get(node.prior)
        if owner is not None and owner.track is not None and not is_open:
            if not owner.is_settled:
                return None
            since_ms = max(since_ms, owner.track.reestablished_ms or NEVER)
        return since_ms + millis_of(self.settings.orphan_after)

    def load_data_missed_ms(self, member: MemberFacts) -> int | None:
        """When load data that a member was ordered to publish becomes overdue; None if registrations are not read."""
        last = member.member.last_published
        if last is None or last.verdict is not SessionVerdict.REPUBLISH_LOAD_DATA:
            return None
        if member.registration is None or member.has_published:
            return None
        return last.published_ms + millis_of(self.settings.load_data_after)


def join_facts(
    cluster: ClusterState, spent: tuple[SpentShutdown, ...], settings: SessionsSettings, now_ms: int
) -> Facts:
    """Join the read models of a cluster as of now; `spent` has the shutdowns and restarts decided before."""
    members, nodes, is_shadow = cluster.members, cluster.nodes.by_path, settings.mode is Mode.SHADOW
    roles = fleet.join_roles(members.values(), now_ms, settings)
    unread = fleet.find_unread(members.values(), cluster.sources.values(), now_ms, settings)
    bundles = cluster.nodes.bundles
    replaced = find_replaced(bundles)
    is_known = _knows_ownership(cluster)
    claims = _join_claims(cluster, replaced) if is_known else {}
    sessions = cluster.sources.get(SESSIONS, SourceRecord(SESSIONS))
    found: dict[str, MemberFacts] = {}
    for name, member in members.items():
        if not is_shadow and member.last_published is not None and member.last_published.is_shadow:
            # Nobody carried out an order in shadow mode, so it is published again if it still applies.
            member = replace(member, last_published=None)
        node, role, grace_ms = nodes.get(registration_path(name)), roles[member.role], NEVER
        if member.fleet_wide:
            # Nobody could reconnect before ZooKeeper and the fleet came back.
            grace_ms = max(role.returned_ms, sessions.recovered_ms) + millis_of(settings.fleet_window)
        found[name] = _join_member(member, role, node, tuple(claims.get(name, ())), settings, now_ms, grace_ms)
    spent = tuple(s for s in spent if is_shadow or not s.is_shadow)
    budget = fleet.Budget(settings.shutdown_budget, millis_of(settings.shutdown_window), spent, is_shadow)
    budget = budget.give_back([s.member for s in spent if _is_back(s, members, nodes)], now_ms)
    return Facts(settings, now_ms, found, roles, unread, nodes, bundles, cluster.sources, budget, replaced, is_known)


def _host(member: str) -> str:
    return member.rpartition(":")[0]


def _knows_ownership(cluster: ClusterState) -> bool:
    sources = cluster.sources.values()
    trees = [s for s in sources if s.name and NAMESPACES.startswith(s.name.rstrip("/"))]
    if any(fleet.is_hidden(tree, sources) for tree in trees):
        return False
    return bool(cluster.nodes.bundles) or any(tree.outcome == Outcome.OK.value for tree in trees)


def _join_claims(cluster: ClusterState, replaced: Mapping[str, bool]) -> dict[str, list[ClaimFacts]]:
    """Return each member's claims by path, without replaced bundles."""
    found: dict[str, list[ClaimFacts]] = {}
    for path in sorted(cluster.claims.by_path.keys() - replaced.keys()):
        claims, node = cluster.claims.by_path[path], cluster.nodes.by_path.get(path)
        sessions = {name: known.session if (known := cluster.members.get(name)) else None for name in sorted(claims)}
        for name in sessions:
            rivals = {other: session for other, session in sessions.items() if other != name}
            found.setdefault(name, []).append(ClaimFacts(claims[name], node, rivals))
    return found


def _join_member(
    member: Member,
    role: fleet.RoleFacts,
    node: NodeRecord | None,
    claims: tuple[ClaimFacts, ...],
    settings: SessionsSettings,
    now_ms: int,
    grace_ms: int,
) -> MemberFacts:
    track, validity_ms = member.track, settings.validity_ms
    deadline_ms = member.begun_ms + millis_of(settings.reconnect_deadline)
    has_failed = now_ms >= deadline_ms or member.attempts >= settings.reconnect_limit
    node_id = node.read_id if node is not None and now_ms - node.read_ms <= validity_ms else ""
    is_fresh = track is not None and track.is_fresh(now_ms, validity_ms)
    return MemberFacts(
        member, role, node, claims, is_fresh, max(deadline_ms, grace_ms), has_failed,
        has_failed and now_ms >= grace_ms, fleet.judge_loss(member, now_ms),
        fleet.judge_liveness(member, node, now_ms, settings), unique_ids(member.read_id, node_id),
    )  # fmt: skip


def has_restarted(member: Member, node: NodeRecord | None, at_ms: int) -> bool:
    """Whether readings show a new process of the member since then: by its session, registration or health."""
    track, health = member.track, member.health
    if track is not None and (track.reestablished_ms or NEVER) > at_ms:
        return True
    if node is not None and node.exists and node.changed_ms > at_ms:
        return True
    return health is not None and health.recovered_ms > at_ms


def _is_back(spent: SpentShutdown, members: Mapping[str, Member], nodes: Mapping[str, NodeRecord]) -> bool:
    """Whether a member that was ordered down has come back since, or is gone from the fleet for good."""
    member, node = members.get(spent.member), nodes.get(registration_path(spent.member))
    if member is None or has_restarted(member, node, spent.at_ms):
        return True
    track, health = member.track, member.health
    is_registered = node is not None and node.exists
    is_established = track is not None and track.status is SessionStatus.ESTABLISHED
    # If registrations are watched, a member with a session again is back once it is registered.
    if track is not None and is_established and track.since_ms > spent.at_ms:
        return node is None or is_registered
    return is_established and is_registered and health is not None and health.listed_ms > spent.at_ms
