"""Folds readings into small read models; there are no rules here.

`ClusterState` holds all read models and routes each reading to one of them: the members (sessions, health, reports),
the nodes (bundles and registrations) or the sources. Then `Claims` derives which member claims which bundle: it reads
the other models, and none of them reads it.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from policies.confirmation import Doubt, follow
from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.sessions.decisions import SessionEvent
from policies.sessions.fleet import is_failure, join_roles
from policies.sessions.readings import (
    LEADER,
    MemberHealth,
    NodeKind,
    OwnedNode,
    Ownership,
    Ownerships,
    Recovery,
    RecoveryAction,
    RecoveryResult,
    ZkSession,
    date_back,
    is_bundle,
    named_member,
    registration_path,
)
from policies.sessions.session_machine import Events, add_events, fold_health, fold_report, fold_session, pass_time
from policies.sessions.settings import IN_A_ROW_MS, SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Claim, Member, NodeRecord, SessionsState, SourceRecord

# Folds the znodes by which members own bundles and register themselves: the last good reading of each.


class OwnershipNodes:
    """The nodes by path, while one step changes them."""

    def __init__(self, nodes: Iterable[NodeRecord], settings: SessionsSettings) -> None:
        self.by_path = {n.path: n for n in nodes}
        self._settings = settings

    @cached_property
    def bundles(self) -> list[NodeRecord]:
        """The nodes that stand for bundles."""
        return [node for path, node in self.by_path.items() if is_bundle(path)]

    @cached_property
    def by_owner(self) -> dict[str | None, list[NodeRecord]]:
        """The bundles that each member owns, or was the last to own."""
        found: dict[str | None, list[NodeRecord]] = {}
        for node in self.bundles:
            for owner in {node.owner, node.prior}:
                found.setdefault(owner, []).append(node)
        return found

    def fold(self, seen: Observation, reading: Ownership) -> None:
        """Fold in a reading of one node; a failed one changes nothing."""
        if reading.outcome is Outcome.OK:
            self._forget_derived()
            self._record(reading, seen.at_ms, seen.id)

    def fold_tree(
        self, seen: Observation, reading: Ownerships, expected: Iterable[str], failed_ms: int = NEVER
    ) -> None:
        """Fold in a complete reading of a tree: known and `expected` paths that it does not list are absent.

        Args:
            failed_ms: the last failed attempt to read the tree.
        """
        self._forget_derived()
        at_ms, id_ = seen.at_ms, seen.id  # the time is computed once, not for each of 9,000 nodes
        for node in reading.nodes:
            self._record(node, at_ms, id_)
        listed = {node.path for node in reading.nodes}
        below = f"{reading.tree.rstrip('/')}/"
        for path in expected:
            if path not in listed and path.startswith(below):
                self.by_path.setdefault(path, NodeRecord(path, NEVER, "", exists=False, changed_ms=at_ms))
        for path in self.by_path.keys() - listed:
            if path.startswith(below):
                self._record_absence(self.by_path[path], at_ms, id_, failed_ms)

    def drop(self, paths: Iterable[str]) -> None:
        """Forget nodes."""
        for path in paths:
            del self.by_path[path]
        self._forget_derived()

    def _forget_derived(self) -> None:
        for name in ("bundles", "by_owner"):
            self.__dict__.pop(name, None)

    def _record(self, node: OwnedNode, at_ms: int, id_: str) -> None:
        path, kind, owner = node.path, node.kind, node.owner_member
        if kind is NodeKind.LEADER or (kind is None and path == LEADER):
            return
        last = self.by_path.get(path) or NodeRecord(path, NEVER, "", exists=False, changed_ms=at_ms)
        if not node.exists:
            self._record_absence(last, at_ms, id_)
            return
        if (at_ms, id_) <= (last.read_ms, last.read_id):
            return
        changed_ms, prior, doubt = last.changed_ms, last.prior, last.doubt
        if doubt is not None or owner != last.owner or not last.exists:
            doubt = self._doubt(last, owner or path, at_ms)
        if not last.exists:
            changed_ms = at_ms
        elif owner != last.owner:
            changed_ms = changed_ms if owner is None else at_ms
            # The last owner other than the present one; while the value is unreadable, the last known owner.
            prior = prior if last.owner is None else last.owner
        # The arguments have the order of the fields: keywords cost a third of a step with 9,000 nodes.
        self.by_path[path] = NodeRecord(
            path, at_ms, id_, True, node.ephemeral, owner, node.session, node.czxid, node.version,  # noqa: FBT003
            changed_ms, prior if prior != owner else None, last.unreadable_times + 1 if owner is None else 0,
            last.read_ms if at_ms > last.read_ms else last.before_ms, doubt,
        )  # fmt: skip

    def _record_absence(self, last: NodeRecord, at_ms: int, id_: str, failed_ms: int = NEVER) -> None:
        if (at_ms, id_) <= (last.read_ms, last.read_id):
            return
        owner = last.owner if last.exists and last.owner is not None else last.prior
        # While ZooKeeper could not be read, a member could not register itself, so it has its time after that.
        longest_ms = self._settings.validity_ms if failed_ms <= last.read_ms else IN_A_ROW_MS
        has_gap = last.read_ms != NEVER and at_ms - last.read_ms > longest_ms and not is_bundle(last.path)
        changed_ms = at_ms if last.exists or has_gap else last.changed_ms
        # Two readings of one moment count as one.
        before_ms = last.read_ms if at_ms > last.read_ms else last.before_ms
        self.by_path[last.path] = NodeRecord(
            last.path, at_ms, id_, exists=False, changed_ms=changed_ms, prior=owner,
            before_ms=before_ms, doubt=self._doubt(last, None, at_ms),
        )  # fmt: skip

    def _doubt(self, last: NodeRecord, owner: str | None, at_ms: int) -> Doubt | None:
        """Return the doubt about a node after a reading of its owner; None: it has no node."""
        if last.read_ms == NEVER:
            return None
        before = (last.owner or last.path) if last.exists else None
        return follow(last.doubt, before, owner, at_ms, self._settings.settle_ms)


class Claims:
    """The bundles that a member owned when it lost its session, or that two members believe they own."""

    def __init__(self, claims: Iterable[Claim], members: Mapping[str, Member], nodes: OwnershipNodes) -> None:
        self._members = members
        self._nodes = nodes
        self.by_path: dict[str, dict[str, Claim]] = {}
        """The claims, by path and member."""
        for claim in claims:
            self.by_path.setdefault(claim.path, {})[claim.member] = claim

    def follow_session(self, member: Member, events: Events) -> None:
        """Apply a member's session events: after an orderly end it claims nothing.

        After a loss it claims all bundles it owned when it was last connected. Another member may have taken some of
        them before the loss was noticed.
        """
        track = member.track
        for event in events:
            if event is SessionEvent.SESSION_LOST and track is not None:
                for node in self._nodes.by_owner.get(member.member, ()):
                    if _has_owned(member.member, node, track.connected_ms):
                        self._add(Claim(node.path, member.member, track.lost_ms or 0))
                        self.follow_node(node.path, node.owner if node.exists else None, node.read_ms)
            elif event in (SessionEvent.CLOSED, SessionEvent.JOINED):
                self.drop_of(member.member)

    def drop_of(self, member: str) -> None:
        """Drop the claims of a member whose process is gone."""
        for claims in self.by_path.values():
            claims.pop(member, None)

    def follow_node(self, path: str, owner: str | None, at_ms: int) -> None:
        """If other members claim a bundle, the owner named by its node claims it, too."""
        claims = self.by_path.get(path)
        if claims and owner is not None and owner not in claims and owner in self._members:
            self._add(Claim(path, owner, at_ms))

    def follow_report(self, seen: Observation, reading: Recovery) -> None:
        """Apply a member's report that it owns a bundle again, or that it has unloaded one."""
        path, member, at_ms = reading.path, reading.member, seen.at_ms
        if reading.result is not RecoveryResult.OK or path is None:
            return
        claims = self.by_path.get(path, {})
        if reading.action is RecoveryAction.RE_OWN and is_bundle(path):
            node = self._nodes.by_path.get(path)
            # The node contradicts the report, so both the member and the owner it names claim the bundle.
            if node is not None and node.exists and node.owner not in (None, member) and node.read_ms <= at_ms:
                if member not in claims:
                    self._add(Claim(path, member, at_ms))
                self.follow_node(path, node.owner, at_ms)
        elif reading.action is RecoveryAction.UNLOAD and member in claims and at_ms >= claims[member].since_ms:
            del claims[member]

    def contest_by_session(self) -> None:
        """If a node names one member but belongs to the session of another, both claim the bundle."""
        members = self._members
        holders: dict[str | None, str] = {m.session: m.member for m in members.values() if m.session is not None}
        for node in [n for n in self._nodes.bundles if holders.get(n.session, n.owner) != n.owner]:
            # A process may register under several names with one session.
            if (owner := node.owner) is None or owner not in members or members[owner].session == node.session:
                continue
            for member in (holders[node.session], owner):
                if member not in self.by_path.get(node.path, ()):
                    self._add(Claim(node.path, member, node.read_ms))

    def _add(self, claim: Claim) -> None:
        # A member takes its own heartbeat bundle at each start, and no other may. A process that is gone takes nothing.
        if named_member(claim.path) is None and self._members[claim.member].died_ms == NEVER:
            self.by_path.setdefault(claim.path, {})[claim.member] = claim


def _has_owned(member: str, node: NodeRecord, connected_ms: int | None) -> bool:
    has_lapsed = node.prior == member and connected_ms is not None and node.changed_ms >= connected_ms
    # While the node's value is unreadable, its last known owner still owns the bundle.
    owner = node.prior if node.exists and node.owner is None else node.owner
    return owner == member or has_lapsed


# The result depends on the readings and their times alone, not on their order within a batch or on repetition.

_BEGINS_LOSS = frozenset({SessionEvent.CONNECTION_LOST, SessionEvent.SESSION_LOST})
_ENDS_LOSS = frozenset({SessionEvent.RECONNECTED, SessionEvent.CLOSED})

_BEGINS_PROCESS = frozenset({SessionEvent.SESSION_REESTABLISHED, SessionEvent.JOINED})

_KINDS = (MemberHealth, Ownership, Recovery, ZkSession, Ownerships)
"""The order in which readings of one instant are folded."""
MOST_MEMBERS = 10_000
MOST_NODES = 200_000
MOST_SOURCES = 100
"""The bounds of a cluster's state, far above real fleets: readings beyond them are refused."""
FORGET_MS = 3_600_000
"""A node that has been absent for this long is forgotten, with the alerts about it."""
_READ = "read"


class ClusterState:
    """The read models of one cluster, while one step folds readings into them."""

    def __init__(self, state: SessionsState, settings: SessionsSettings) -> None:
        self._settings = settings
        self.members = {m.member: m for m in state.members}
        self._has_new_losses = False
        self._down = {spent.member for spent in state.spent if spent.back_ms == NEVER}
        self._moving = {m.member for m in state.members if m.track is not None and m.track.moves_with_time}
        self.nodes = OwnershipNodes(state.nodes, self._settings)
        self.claims = Claims(state.claims, self.members, self.nodes)
        self.sources = {s.name: s for s in state.sources}
        self.refused: dict[str, str] = {}
        """The refused observations by id, each with the bound that it exceeds."""

    def fold(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Fold the observations in, and apply the passing of time up to `now_ms`."""
        for seen in sort_observations([date_back(each) for each in observations], kinds=_KINDS):
            self._pass_time(min(seen.at_ms, now_ms))
            if (why := self._find_excess(seen.reading)) is not None:
                self.refused[seen.id] = why
                continue
            match seen.reading:
                case ZkSession():
                    self._fold_session(seen, seen.reading)
                case Ownership() as node:
                    self.nodes.fold(seen, node)
                    self.claims.follow_node(node.path, node.owner_member, seen.at_ms)
                case Ownerships():
                    self._fold_tree(seen, seen.reading)
                case Recovery() as report if report.member in self.members:
                    self.members[report.member] = fold_report(self.members[report.member], seen, report)
                    self.claims.follow_report(seen, report)
                case MemberHealth() as health:
                    member = self.members.get(health.member, Member(health.member))
                    self.members[health.member] = after = fold_health(member, seen, health, self._settings)
                    if after.died_ms != NEVER:
                        self.claims.drop_of(health.member)
        self._pass_time(now_ms)
        self._forget(now_ms)
        self._mark_fleet_wide(now_ms)
        self.claims.contest_by_session()

    def _find_excess(self, reading: Reading) -> str | None:
        """The bound that the reading would exceed; None if there is room for it."""
        nodes: tuple[OwnedNode, ...] = ()
        match reading:
            case ZkSession(member=str(member)) | MemberHealth(member=member) if member not in self.members:
                return f"more than {MOST_MEMBERS} members" if len(self.members) >= MOST_MEMBERS else None
            case Ownerships(tree=tree) if tree not in self.sources and len(self.sources) >= MOST_SOURCES:
                return f"more than {MOST_SOURCES} trees"
            case Ownership() as node:
                nodes = (node,)
            case Ownerships(nodes=nodes):
                pass
        room = max(MOST_NODES - len(self.nodes.by_path), 0)
        is_full = len(nodes) > room and len({node.path for node in nodes} - self.nodes.by_path.keys()) > room
        return f"more than {MOST_NODES} nodes" if is_full else None

    def _fold_session(self, seen: Observation, reading: ZkSession) -> None:
        if reading.is_good or reading.member is None:  # a failure to read one member says nothing about the others
            self._fold_attempt(SESSIONS, seen, good=reading.is_good)
        elif reading.outcome is not Outcome.OK:
            self._note_failure(SESSIONS, seen.at_ms)
        if reading.member is not None:
            member = self.members.get(reading.member, Member(reading.member, reading.role))
            self._update(*fold_session(member, seen, reading, self._settings), seen.at_ms)

    def _fold_tree(self, seen: Observation, reading: Ownerships) -> None:
        good = reading.outcome is Outcome.OK
        if self._fold_attempt(reading.tree, seen, good=good) and good:
            failed_ms = self.sources[reading.tree].failed_ms
            self.nodes.fold_tree(seen, reading, map(registration_path, self.members), failed_ms)
            if self.claims.by_path:
                at_ms = seen.at_ms
                for node in reading.nodes:
                    self.claims.follow_node(node.path, node.owner_member, at_ms)

    def _fold_attempt(self, name: str, seen: Observation, *, good: bool) -> bool:
        """Record an attempt to read a source. Returns False for a repeated or older one."""
        source, at_ms = self.sources.get(name, SourceRecord(name)), seen.at_ms
        is_new = (at_ms, seen.id) > (source.tried_ms, source.tried_id)
        if is_new and good:
            since_ms = source.since_ms if at_ms - source.read_ms <= self._settings.validity_ms else at_ms
            recovered_ms = at_ms if source.recovered_ms < source.failed_ms else source.recovered_ms
            doubt = follow(source.doubt, _READ, _READ, at_ms, self._settings.settle_ms)
            source = replace(
                source, read_ms=at_ms, read_id=seen.id, since_ms=since_ms, recovered_ms=recovered_ms, doubt=doubt
            )
        if is_new:
            outcome = seen.reading.outcome.value
            self.sources[name] = replace(source, tried_ms=at_ms, tried_id=seen.id, outcome=outcome)
        if is_failure(name, seen.reading.outcome.value):
            self._note_failure(name, at_ms)
        return is_new

    def _note_failure(self, name: str, at_ms: int) -> None:
        """Record when a source, or a part of it, could not be read, even if it has been read since."""
        source = self.sources.get(name, SourceRecord(name))
        if at_ms > source.failed_ms:
            recovered_ms = source.read_ms if source.read_ms > at_ms else source.recovered_ms
            doubt = follow(source.doubt, _READ, None, at_ms, self._settings.settle_ms)
            self.sources[name] = replace(source, failed_ms=at_ms, recovered_ms=recovered_ms, doubt=doubt)

    def _pass_time(self, to_ms: int) -> None:
        for name in sorted(self._moving & self.members.keys()):
            member = self.members[name]
            if (track := member.track) is not None:
                after, events = pass_time(track, to_ms, self._settings)
                if after is not track:
                    self._update(add_events(replace(member, track=after), events), events, to_ms)

    def _update(self, member: Member, events: Events, at_ms: int) -> None:
        if self._has_new_losses and _ENDS_LOSS.intersection(events):
            self._mark_fleet_wide(at_ms)  # before one of those that are lost together comes back
        self._has_new_losses = self._has_new_losses or not _BEGINS_LOSS.isdisjoint(events)
        self.members[member.member] = member
        if member.track is not None and member.track.moves_with_time:
            self._moving.add(member.member)
        else:
            self._moving.discard(member.member)
        self.claims.follow_session(member, events)
        if not _BEGINS_PROCESS.isdisjoint(events):
            self.members[member.member] = replace(member, died_ms=NEVER)

    def _forget(self, now_ms: int) -> None:
        """Forget members that are gone, nodes that have been absent for an hour, and sources that nobody reads."""
        sessions = self.sources.get(SESSIONS, SourceRecord(SESSIONS))
        for name in find_forgotten(self.members.values(), sessions, self._settings.validity_ms, self._down):
            del self.members[name]
            self.claims.drop_of(name)
        needed = {registration_path(name) for name in self.members}
        needed |= {path for path, claims in self.claims.by_path.items() if claims}
        absent = [node for node in self.nodes.by_path.values() if not node.exists and node.path not in needed]
        if gone := [node.path for node in absent if node.read_ms - node.changed_ms >= FORGET_MS]:
            self.nodes.drop(gone)
        for name, source in [*self.sources.items()]:
            if name != SESSIONS and now_ms - source.tried_ms >= FORGET_MS:
                del self.sources[name]

    def _mark_fleet_wide(self, at_ms: int) -> None:
        """Mark the lost members whose loss is fleet-wide; it remains so until they have a session again."""
        self._has_new_losses = False
        for role in join_roles(self.members.values(), at_ms, self._settings).values():
            for member in role.lost:
                if not member.fleet_wide and (role.is_lost_together or self._was_unread(member)):
                    self.members[member.member] = replace(member, fleet_wide=True)

    def _was_unread(self, member: Member) -> bool:
        """Whether a source could not be read when a member lost its session, or since its last connection."""
        track, validity_ms = member.track, self._settings.validity_ms
        if track is None or track.lost_ms is None:
            return False
        since_ms = track.lost_ms - validity_ms if track.connected_ms is None else track.connected_ms
        return any(source.was_unread(since_ms, track.lost_ms, validity_ms) for source in self.sources.values())


def find_forgotten(
    members: Collection[Member], sessions: SourceRecord, validity_ms: int, down: Container[str] = ()
) -> frozenset[str]:
    """Return the members that no reading names any more, though the cluster's sessions are read without a gap.

    A member whose session was never read is forgotten if others were asked for their health since, and it was not.
    The members in `down` were ordered down and are not back.
    """
    asked_ms = max((m.health.before_ms for m in members if m.health is not None), default=NEVER)
    patience_ms = max(validity_ms, FORGET_MS)

    def is_forgotten(member: Member) -> bool:
        if member.track is None:
            return asked_ms - member.seen_ms > patience_ms
        # A member without a session counts in the fleet for longer: if it is unread, the others are not more alone.
        is_kept = member.member in down or member.track.is_lost
        unseen_ms = sessions.read_ms - max(member.seen_ms, sessions.since_ms)
        return unseen_ms > (patience_ms if is_kept else validity_ms)

    return frozenset(m.member for m in members if is_forgotten(m))
