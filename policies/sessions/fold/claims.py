"""Who claims which bundle: what a member owned when it lost its session, and what two members both believe they own.

Claims are derived from the other read models, which are read here and never written.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from policies.observations import Observation
from policies.sessions.decisions import OwnershipVerdict, SessionEvent
from policies.sessions.fold.nodes import OwnershipNodes
from policies.sessions.fold.session_machine import Events
from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult, is_bundle
from policies.sessions.state import Claim, Member, NodeRecord, SessionTrack


class Claims:
    """The claims by bundle and member, while one step works on them."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self.by_key = {claim.key: claim for claim in claims}
        self._claimants: dict[str, set[str]] = {}
        for path, member in self.by_key:
            self._claimants.setdefault(path, set()).add(member)

    def follow_session(self, member: Member, events: Events, nodes: OwnershipNodes, members: Collection[str]) -> None:
        """What happened to a member's session: a loss makes claims of what it owned, an orderly end frees it."""
        for event in events:
            if event is SessionEvent.SESSION_LOST and member.track is not None:
                self._claim_all(member.member, member.track, nodes, members)
            elif event in (SessionEvent.CLOSED, SessionEvent.JOINED):
                self._release(member.member)

    def follow_node(self, path: str, owner: str | None, at_ms: int, members: Collection[str]) -> None:
        """A bundle that others claim as well as the member its node names: that one's claim is a claim like theirs."""
        claimants = self._claimants.get(path)
        if claimants and owner is not None and owner not in claimants and owner in members:
            self._claim(Claim(path, owner, at_ms))

    def follow_report(
        self, seen: Observation, reading: Recovery, nodes: OwnershipNodes, members: Collection[str]
    ) -> None:
        """A member says that it owns a bundle again, or that it has let go of one."""
        if reading.result is not RecoveryResult.OK or reading.path is None:
            return
        if reading.action is RecoveryAction.RE_OWN and is_bundle(reading.path):
            self._re_owned(reading.member, reading.path, nodes.get(reading.path), seen.at_ms, members)
        elif reading.action is RecoveryAction.UNLOAD:
            claim = self.by_key.get((reading.path, reading.member))
            if claim is not None and claim.verdict is OwnershipVerdict.UNLOAD:
                self._drop(claim)

    def contest_by_session(self, members: Mapping[str, Member], nodes: OwnershipNodes) -> None:
        """A node that names one member and belongs to the session of another is claimed by both."""
        holders = {m.session: m.member for m in members.values() if m.session is not None}
        for node in nodes.bundles():
            holder = holders.get(node.session) if node.exists and node.session else None
            if holder is None or node.owner is None or node.owner not in members or node.owner == holder:
                continue
            for member in (holder, node.owner):
                if (node.path, member) not in self.by_key:
                    self._claim(Claim(node.path, member, node.read_ms))

    def _claim_all(self, member: str, track: SessionTrack, nodes: OwnershipNodes, members: Collection[str]) -> None:
        """What it owned when it was last connected: others may have taken it before its loss was noticed."""
        lost_ms = track.lost_ms or 0
        for node in nodes.bundles_of(member):
            if _owned_by(member, node, track.connected_ms):
                claim = self.by_key.get((node.path, member), Claim(node.path, member, lost_ms))
                self._claim(replace(claim, since_ms=lost_ms, last_published=None))
                if node.exists:
                    self.follow_node(node.path, node.owner, node.read_ms, members)

    def _re_owned(self, member: str, path: str, node: NodeRecord | None, at_ms: int, members: Collection[str]) -> None:
        """It says that it owns a bundle: a claim, unless the node says so too."""
        if node is not None and node.exists and node.owner not in (None, member) and node.read_ms <= at_ms:
            if (path, member) not in self.by_key:
                self._claim(Claim(path, member, at_ms))
            self.follow_node(path, node.owner, at_ms, members)

    def _release(self, member: str) -> None:
        for claim in [claim for claim in self.by_key.values() if claim.member == member]:
            self._drop(claim)

    def _claim(self, claim: Claim) -> None:
        self.by_key[claim.key] = claim
        self._claimants.setdefault(claim.path, set()).add(claim.member)

    def _drop(self, claim: Claim) -> None:
        del self.by_key[claim.key]
        self._claimants[claim.path].discard(claim.member)


def _owned_by(member: str, node: NodeRecord, connected_ms: int | None) -> bool:
    lapsed = node.prior == member and connected_ms is not None and node.changed_ms >= connected_ms
    # While a value cannot be read, the bundle is still its last known owner's.
    owner = node.prior if node.exists and node.owner is None else node.owner
    return owner == member or lapsed
