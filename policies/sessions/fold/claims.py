"""Derives claims: the bundles a member owned when it lost its session, and bundles that two members believe they own.

Claims are derived from the other read models, which are only read here.
"""

from collections.abc import Collection, Iterable, Mapping

from policies.observations import Observation
from policies.sessions.decisions import SessionEvent
from policies.sessions.fold.nodes import OwnershipNodes
from policies.sessions.fold.session_machine import Events
from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult, is_bundle, named_member
from policies.sessions.state import Claim, Member, NodeRecord, SessionTrack


class Claims:
    """The claims by bundle and member, while one step changes them."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self.by_key = {claim.key: claim for claim in claims}
        self._claimants: dict[str, set[str]] = {}
        for path, member in self.by_key:
            self._claimants.setdefault(path, set()).add(member)

    def follow_session(self, member: Member, events: Events, nodes: OwnershipNodes, members: Collection[str]) -> None:
        """Apply a member's session events: after a loss it claims what it owned, after an orderly end nothing."""
        for event in events:
            if event is SessionEvent.SESSION_LOST and member.track is not None:
                self._claim_owned(member.member, member.track, nodes, members)
            elif event in (SessionEvent.CLOSED, SessionEvent.JOINED):
                self.drop_of(member.member)

    def drop_of(self, member: str) -> None:
        """Drop the claims of a member whose process is gone."""
        for claim in [claim for claim in self.by_key.values() if claim.member == member]:
            self._drop(claim)

    def follow_node(self, path: str, owner: str | None, at_ms: int, members: Collection[str]) -> None:
        """If other members claim a bundle, the owner named by its node claims it, too."""
        claimants = self._claimants.get(path)
        if claimants and owner is not None and owner not in claimants and owner in members:
            self._add(Claim(path, owner, at_ms))

    def follow_report(
        self, seen: Observation, reading: Recovery, nodes: OwnershipNodes, members: Collection[str]
    ) -> None:
        """Apply a member's report that it owns a bundle again, or that it has unloaded one."""
        path, member = reading.path, reading.member
        if reading.result is not RecoveryResult.OK or path is None:
            return
        claim = self.by_key.get((path, member))
        if reading.action is RecoveryAction.RE_OWN and is_bundle(path):
            node = nodes.by_path.get(path)
            # The node contradicts the report, so both the member and the owner it names claim the bundle.
            if node is not None and node.exists and node.owner not in (None, member) and node.read_ms <= seen.at_ms:
                if claim is None:
                    self._add(Claim(path, member, seen.at_ms))
                self.follow_node(path, node.owner, seen.at_ms, members)
        elif reading.action is RecoveryAction.UNLOAD and claim and seen.at_ms >= claim.since_ms:
            self._drop(claim)

    def contest_by_session(self, members: Mapping[str, Member], nodes: OwnershipNodes) -> None:
        """If a node names one member but belongs to the session of another, both claim the bundle."""
        holders: dict[str | None, str] = {m.session: m.member for m in members.values() if m.session is not None}
        for node in [n for n in nodes.bundles() if holders.get(n.session, n.owner) != n.owner and n.exists]:
            # A process may register under several names with one session.
            if (owner := node.owner) is None or owner not in members or members[owner].session == node.session:
                continue
            for member in (holders[node.session], owner):
                if (node.path, member) not in self.by_key:
                    self._add(Claim(node.path, member, node.read_ms))

    def _claim_owned(self, member: str, track: SessionTrack, nodes: OwnershipNodes, members: Collection[str]) -> None:
        """Claim all bundles the member owned when it was last connected.

        Another member may have taken some of them before the loss was noticed.
        """
        lost_ms = track.lost_ms or 0
        for node in nodes.find_bundles(member):
            if _has_owned(member, node, track.connected_ms):
                self._add(Claim(node.path, member, lost_ms))
                if node.exists:
                    self.follow_node(node.path, node.owner, node.read_ms, members)

    def _add(self, claim: Claim) -> None:
        if named_member(claim.path) is not None:
            return  # a member takes its own at each start, and no other may
        self.by_key[claim.key] = claim
        self._claimants.setdefault(claim.path, set()).add(claim.member)

    def _drop(self, claim: Claim) -> None:
        del self.by_key[claim.key]
        self._claimants[claim.path].discard(claim.member)


def _has_owned(member: str, node: NodeRecord, connected_ms: int | None) -> bool:
    has_lapsed = node.prior == member and connected_ms is not None and node.changed_ms >= connected_ms
    # While the node's value is unreadable, its last known owner still owns the bundle.
    owner = node.prior if node.exists and node.owner is None else node.owner
    return owner == member or has_lapsed
