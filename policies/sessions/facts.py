"""The read models joined as of one moment, which is all that the rules look at; no other module joins them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from policies.decisions import Mode
from policies.sessions.decisions import SessionStatus, SessionVerdict
from policies.sessions.fleet import Budget, FleetFacts, RoleFacts, Unread, fleet_of
from policies.sessions.fold.cluster import ClusterState
from policies.sessions.freshness import Certainty
from policies.sessions.liveness import Liveness, certainty_of_loss, liveness_of
from policies.sessions.readings import BROKERS, is_bundle, registration_path
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, Claim, Member, NodeRecord, SessionTrack, SourceRecord, SpentShutdown
from policies.units import agreeing, counted_with, human_seconds, millis_of


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """One member's claim to one bundle, with the bundle's node and who else claims it."""

    claim: Claim
    node: NodeRecord | None
    """As last read, which may have been before the loss."""
    is_stale: bool
    """Whether the node was last read too long ago to count."""
    rivals: Mapping[str, str | None]
    """The other members that claim the bundle, and the session each has now."""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What holds of one member now."""

    member: Member
    """With `fleet_wide` as of now."""
    role: RoleFacts
    registration: NodeRecord | None
    """As last read."""
    claims: tuple[ClaimFacts, ...]
    """By path."""
    is_fresh: bool
    """Whether its session's last reading counts."""
    has_reported: bool
    """Whether its last report of a failed attempt to reconnect counts."""
    is_exhausted: bool
    """Whether, without a session, it has tried to reconnect often or long enough."""
    certainty: Certainty
    """How sure it is that it is without a session; of no meaning while it has one."""
    loss_evidence: tuple[str, ...]
    """The readings by which it is."""
    liveness: Liveness
    has_published: bool
    """Whether its load data is published since its session was established again."""
    evidence: tuple[str, ...]
    """The readings of its session and of its registration."""

    @property
    def name(self) -> str:
        """As it registers itself."""
        return self.member.member

    @property
    def track(self) -> SessionTrack | None:
        """Its session; None while none was ever read."""
        return self.member.track

    def is_listed_since(self, at_ms: int) -> bool:
        """Whether the cluster has listed it after a moment."""
        return self.member.health is not None and self.member.health.listed_ms > at_ms

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be expected of it for what it owned: it has a session for good, or is gone."""
        track, last = self.track, self.member.last_published
        if last is not None and last.verdict is SessionVerdict.GONE:
            return True
        ended = (SessionStatus.ESTABLISHED, SessionStatus.CLOSED)
        return track is not None and track.status in ended and not track.unsettled


@dataclass(frozen=True)
class Facts:
    """All that the rules look at."""

    settings: SessionsSettings
    now_ms: int
    members: Mapping[str, MemberFacts]
    fleet: FleetFacts
    nodes: Mapping[str, NodeRecord]
    """Of bundles and registrations, by path."""
    sources: Mapping[str, SourceRecord]
    budget: Budget

    @property
    def unread(self) -> Unread | None:
        """Why ZooKeeper cannot be read; None while it can be."""
        return self.fleet.unread

    @property
    def validity_ms(self) -> int:
        """How long a reading counts."""
        return millis_of(self.settings.validity)

    def bundles(self) -> Iterator[NodeRecord]:
        """The nodes by which bundles are owned."""
        return (node for path, node in self.nodes.items() if is_bundle(path))

    def budget_spent(self) -> str:
        """How much of the budget is spent, for a sentence."""
        if self.budget.limit == 0:
            return "`shutdown_budget` is 0"
        window, down = human_seconds(self.settings.shutdown_window.total_seconds()), sorted(self.budget.down())
        names, are = f"{', '.join(down[:3])}{' and more' if len(down) > 3 else ''}", agreeing(len(down), "is", "are")
        waits = f", and {names} {are} not back yet" if down else ""
        ordered = counted_with(self.budget.count(self.now_ms), "shutdown", "was", "were")
        return f"{ordered} ordered in {window}, where {self.budget.limit} may be{waits}"

    def orphan_ms(self, node: NodeRecord) -> int | None:
        """When an absent bundle is an orphan; None while it has an owner, or its last owner is not settled."""
        if node.exists or node.prior is None:
            return None
        if node.prior in node.path.split("/"):
            return None  # a broker's own heartbeat namespace, which bears its name: nobody else would take it
        since_ms, owner = node.changed_ms, self.members.get(node.prior)
        if owner is not None and owner.track is not None:
            ends_ms = self.orphan_ends_ms(node)
            if not owner.is_settled or (ends_ms is not None and ends_ms <= owner.track.read_ms):
                return None
            since_ms = max(since_ms, owner.track.reestablished_ms or NEVER)
        return since_ms + millis_of(self.settings.orphan_after)

    def orphan_ends_ms(self, node: NodeRecord) -> int | None:
        """When an orphan's last owner, back since, is settled; None while it is not back.

        What it has not taken by then nobody asks for: the next who does has it owned.
        """
        owner = None if node.prior is None else self.members.get(node.prior)
        track = None if owner is None else owner.track
        if track is None or track.status is not SessionStatus.ESTABLISHED or track.since_ms < node.changed_ms:
            return None
        return track.since_ms + millis_of(self.settings.settle)

    def load_data_missed_ms(self, member: MemberFacts) -> int | None:
        """When load data that a member was told to publish is missed; None where that is not watched."""
        watched = member.registration is not None or any(BROKERS.startswith(name) for name in self.sources if name)
        last = member.member.last_published
        if member.member.awaited_ms is None or member.track is None or not watched or member.has_published:
            return None
        if last is None or last.verdict is not SessionVerdict.REPUBLISH_LOAD_DATA:
            return None
        return last.published_ms + millis_of(self.settings.load_data_after)


def join(cluster: ClusterState, spent: tuple[SpentShutdown, ...], settings: SessionsSettings, now_ms: int) -> Facts:
    """What is known of a cluster, as of now.

    Args:
        cluster: its read models.
        spent: the shutdowns and restarts decided before.
        settings: those in force for it.
        now_ms: the moment.
    """
    members, nodes, is_shadow = cluster.members, cluster.nodes.by_path, settings.mode is Mode.SHADOW
    fleet = fleet_of(members.values(), cluster.sources.values(), now_ms, settings)
    of_fleet = {m.member for role in fleet.roles.values() if role.is_lost_together for m in role.lost}
    claims = _claims_by_member(cluster, now_ms - millis_of(settings.validity))
    found: dict[str, MemberFacts] = {}
    for name, member in members.items():
        if not is_shadow and member.last_published is not None and member.last_published.is_shadow:
            # Nobody was to carry that out: what still is the case is said anew.
            member = replace(member, last_published=None)
        lost = member.track is not None and member.track.is_lost
        # Once the fault was ZooKeeper's it stays ZooKeeper's, for this loss.
        if lost and (fleet.unread is not None or name in of_fleet) and not member.fleet_wide:
            member = replace(member, fleet_wide=True)
        node = nodes.get(registration_path(name))
        found[name] = _of_member(member, fleet.roles[member.role], node, tuple(claims.get(name, ())), settings, now_ms)
    spent = tuple(s for s in spent if is_shadow or not s.is_shadow)
    budget = Budget(settings.shutdown_budget, millis_of(settings.shutdown_window), spent, is_shadow)
    budget = budget.returned([s.member for s in spent if _is_back(s, members, nodes)], now_ms)
    return Facts(settings, now_ms, found, fleet, nodes, cluster.sources, budget)


def ids(*all_ids: str) -> tuple[str, ...]:
    """Those there are, each once."""
    return tuple(dict.fromkeys(id_ for id_ in all_ids if id_))


def _claims_by_member(cluster: ClusterState, oldest_ms: int) -> dict[str, list[ClaimFacts]]:
    """The claims of each member, by path; what was last read before `oldest_ms` is stale."""
    claims = sorted(cluster.claims.by_key.values(), key=lambda claim: claim.key)
    claimants: dict[str, list[str]] = {}
    for claim in claims:
        claimants.setdefault(claim.path, []).append(claim.member)
    found: dict[str, list[ClaimFacts]] = {}
    for claim in claims:
        node = cluster.nodes.get(claim.path)
        rivals = {name: _session(cluster, name) for name in claimants[claim.path] if name != claim.member}
        stale = node is not None and node.read_ms < oldest_ms
        found.setdefault(claim.member, []).append(ClaimFacts(claim, node, stale, rivals))
    return found


def _session(cluster: ClusterState, name: str) -> str | None:
    member = cluster.members.get(name)
    return None if member is None else member.session


def _of_member(
    member: Member,
    role: RoleFacts,
    node: NodeRecord | None,
    claims: tuple[ClaimFacts, ...],
    settings: SessionsSettings,
    now_ms: int,
) -> MemberFacts:
    track, validity_ms = member.track, millis_of(settings.validity)
    has_reported = now_ms - member.attempted[0] <= validity_ms
    certainty, loss_evidence = certainty_of_loss(member, now_ms)
    node_counts = node is not None and now_ms - node.read_ms <= validity_ms
    return MemberFacts(
        member,
        role,
        node,
        claims,
        is_fresh=track is not None and track.is_fresh(now_ms, validity_ms),
        has_reported=has_reported,
        is_exhausted=_is_exhausted(member, now_ms, settings, has_reported=has_reported),
        certainty=certainty,
        loss_evidence=loss_evidence,
        liveness=liveness_of(member, node, now_ms, settings),
        has_published=_has_published(member, node),
        evidence=ids(member.read_id, node.read_id if node is not None and node_counts else ""),
    )


def _is_exhausted(member: Member, now_ms: int, settings: SessionsSettings, *, has_reported: bool) -> bool:
    lost_ms = (member.track.lost_ms if member.track else None) or 0
    late = now_ms >= lost_ms + millis_of(settings.reconnect_deadline)
    return late or (has_reported and member.attempts >= settings.reconnect_limit)


def _is_back(spent: SpentShutdown, members: Mapping[str, Member], nodes: Mapping[str, NodeRecord]) -> bool:
    """Whether who was told to go down has come back since, or is gone from the fleet for good."""
    member, node = members.get(spent.member), nodes.get(registration_path(spent.member))
    if member is None:
        return True
    track, health = member.track, member.health
    if node is not None and node.exists and node.changed_ms > spent.at_ms:
        return True
    # Where registrations are watched, who has a session again is back when it is registered.
    is_established = track is not None and track.status is SessionStatus.ESTABLISHED
    if track is not None and is_established and track.since_ms > spent.at_ms:
        return node is None or node.exists
    is_registered = node is not None and node.exists
    return is_established and is_registered and health is not None and health.listed_ms > spent.at_ms


def _has_published(member: Member, node: NodeRecord | None) -> bool:
    track = member.track
    if track is None:
        return False
    if member.republished_ms >= (track.reestablished_ms or 0):
        return True
    return node is not None and node.exists and node.session is not None and node.session == track.session
