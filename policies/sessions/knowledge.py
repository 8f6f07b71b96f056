"""What is known of a cluster's sessions and of what its members own: readings folded in, in whatever order they come.

The result depends on the readings and their times alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.observations import Observation, Outcome, in_order
from policies.sessions import member as machine
from policies.sessions.decision import OwnershipVerdict, SessionEvent, Status
from policies.sessions.member import Patience, Seen
from policies.sessions.nodes import FORGET_MS, Nodes, is_bundle
from policies.sessions.readings import (
    BROKERS,
    MemberHealth,
    Ownership,
    Ownerships,
    Recovery,
    RecoveryAction,
    RecoveryResult,
    ZkSession,
)
from policies.sessions.state import NEVER, Claim, Health, Member, SessionsState, Source

SESSIONS = ""
"""The name of the source that stands for the sessions as a whole."""

_HOLDS_A_SESSION = frozenset({Status.ESTABLISHED, Status.CONNECTION_LOST})


def registration(member: str) -> str:
    """The path of a member's registration."""
    return f"{BROKERS}/{member}"


class Knowledge:
    """Everything known, while one step works on it.

    Args:
        state: what was remembered.
        patience: the lengths of time that the sessions' state machines depend on.
    """

    def __init__(self, state: SessionsState, patience: Patience) -> None:
        self.patience = patience
        self.members = {m.member: m for m in state.members}
        self.nodes = Nodes(state.nodes)
        self.claims = {(c.path, c.member): c for c in state.claims}
        self.sources = {s.name: s for s in state.sources}
        self._of_member: dict[str, list[Claim]] = {}
        self._claimants: dict[str, set[str]] = {}
        for path, member in self.claims:
            self._claimants.setdefault(path, set()).add(member)

    def observe(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Fold readings in, and what time has brought about by `now_ms`."""
        for seen in in_order(tuple(observations)):
            self._pass_time(min(seen.at_ms, now_ms))
            match seen.reading:
                case ZkSession():
                    self._session(seen, seen.reading)
                case Ownership():
                    self.nodes.observe(seen, seen.reading)
                    if (owner := seen.reading.owner_member) is not None:
                        self._contest(seen.reading.path, owner, seen.at_ms)
                case Ownerships():
                    self._tree(seen, seen.reading)
                case Recovery():
                    self._recovery(seen, seen.reading)
                case MemberHealth():
                    self._health(seen, seen.reading)
        self._pass_time(now_ms)

    def index(self) -> None:
        """Sort the claims by member: from now on only `release` and `tidy` change whose they are."""
        self._of_member = {}
        for key in sorted(self.claims):
            self._of_member.setdefault(key[1], []).append(self.claims[key])

    def claims_of(self, member: str) -> list[Claim]:
        """What a member claims, by path, as of the last `index`."""
        return self._of_member.get(member, [])

    def contest_by_session(self) -> None:
        """A node that names one member and belongs to the session of another is claimed by both."""
        holders = {
            m.track.session: m.member
            for m in self.members.values()
            if m.track is not None and m.track.session is not None and m.track.status in _HOLDS_A_SESSION
        }
        for node in self.nodes.bundles():
            holder = holders.get(node.session) if node.exists and node.session else None
            if holder is not None and node.owner in self.members and node.owner != holder:
                for member in (holder, node.owner):
                    if (node.path, member) not in self.claims:
                        self._claim(Claim(node.path, member, node.read_ms))

    def tidy(self, now_ms: int, validity_ms: int) -> None:
        """Forget claims that are over, members that nobody lists any more, and nodes that have long been absent."""
        newest_ms = self.sources[SESSIONS].read_ms if SESSIONS in self.sources else NEVER
        for known in list(self.members.values()):
            # Who was lost with the fleet still counts for it: the others are not alone because he is unread.
            of_fleet = known.fleet_wide and known.track is not None and known.track.status is Status.SESSION_LOST
            patience_ms = max(validity_ms, FORGET_MS) if of_fleet else validity_ms
            if known.track is not None and newest_ms - known.seen_ms > patience_ms:
                del self.members[known.member]
        contested = {path for path, claimants in self._claimants.items() if len(claimants) > 1}
        for (path, member), claim in list(self.claims.items()):
            if self._is_over(claim, path in contested, now_ms, validity_ms):
                self._drop(path, member)
        self.index()
        self.nodes.forget(now_ms, {path for path, _ in self.claims})

    def _is_over(self, claim: Claim, contested: bool, now_ms: int, validity_ms: int) -> bool:
        member = self.members.get(claim.member)
        if member is None or member.track is None:
            return True
        if claim.said is not None and claim.said.verdict is OwnershipVerdict.UNLOAD:
            # Nobody reported that it is done: what is told is told, and by then it has lapsed.
            return not member.recovering and now_ms >= claim.said.said_ms + validity_ms
        return not contested and not member.recovering and member.track.status is Status.ESTABLISHED

    def update(self, member: Member) -> None:
        """Put what is now known of a member in place of what was."""
        self.members[member.member] = member

    def _pass_time(self, to_ms: int) -> None:
        for known in list(self.members.values()):
            if known.track is not None and (known.track.disconnected_ms is not None or known.track.unsettled):
                track, events = machine.pass_time(known.track, to_ms, self.patience)
                if track is not known.track:
                    self._moved(replace(known, track=track), events)

    def _session(self, seen: Observation, reading: ZkSession) -> None:
        good = reading.outcome is Outcome.OK and reading.state is not None
        self._tried(SESSIONS, seen, good=good, counts=good or reading.member is None)
        if reading.member is None:
            return
        known = self.members.get(reading.member, Member(reading.member, reading.role))
        if (seen.at_ms, seen.id) <= (known.tried_ms, known.tried_id):
            return
        known = replace(known, tried_ms=seen.at_ms, tried_id=seen.id, outcome=reading.outcome.value, seen_ms=seen.at_ms)
        if not good or reading.state is None:
            self.update(known)
            return
        said = Seen(seen.at_ms, reading.state, reading.session, reading.timeout_ms)
        before = known.track
        track, events = (
            machine.begin(said, self.patience) if before is None else machine.observe(before, said, self.patience)
        )
        if track is before:
            self.update(known)
        else:
            self._moved(replace(known, track=track, role=reading.role, read_id=seen.id), events)

    def _moved(self, member: Member, events: tuple[SessionEvent, ...]) -> None:
        """A member's session after a transition, with what follows for its claims and its recovery."""
        for event in events:
            member = self._after(member, event)
        self.update(replace(member, events=(*member.events, *events)[-8:]) if events else member)

    def _after(self, member: Member, event: SessionEvent) -> Member:
        track = member.track
        assert track is not None  # noqa: S101 - only a session makes events
        if event is SessionEvent.SESSION_LOST:
            self._claim_all(member.member, track.lost_ms or 0, track.connected_ms)
            return replace(member, attempts=0, fleet_wide=False, recovering=False, awaited_ms=None)
        if event is SessionEvent.SESSION_REESTABLISHED:
            return replace(member, recovering=True, attempts=0, fleet_wide=False)
        if event in (SessionEvent.CLOSED, SessionEvent.JOINED):
            self.release(member.member)
            return replace(member, attempts=0, fleet_wide=False, recovering=False, awaited_ms=None)
        return member

    def release(self, member: str) -> None:
        """A member is gone: its bundles are free for others."""
        for path, _ in [key for key in self.claims if key[1] == member]:
            self._drop(path, member)
        self._of_member.pop(member, None)

    def _claim_all(self, member: str, lost_ms: int, connected_ms: int | None) -> None:
        """What it owned when it was last connected: others may have taken it before its loss was noticed."""
        for node in self.nodes.bundles_of(member):
            lapsed = node.prior == member and connected_ms is not None and node.changed_ms >= connected_ms
            # While a value cannot be read, the bundle is still its last known owner's.
            owner = node.prior if node.exists and node.owner is None else node.owner
            if owner == member or lapsed:
                claim = self.claims.get((node.path, member), Claim(node.path, member, lost_ms))
                self._claim(replace(claim, since_ms=lost_ms, said=None))
                if node.exists and node.owner is not None:
                    self._contest(node.path, node.owner, node.read_ms)

    def _contest(self, path: str, owner: str, at_ms: int) -> None:
        """A bundle that others claim as well as the member it names: that one's claim is a claim like theirs."""
        claimants = self._claimants.get(path)
        if claimants and owner not in claimants and owner in self.members:
            self._claim(Claim(path, owner, at_ms))

    def _claim(self, claim: Claim) -> None:
        self.claims[claim.path, claim.member] = claim
        self._claimants.setdefault(claim.path, set()).add(claim.member)

    def _drop(self, path: str, member: str) -> None:
        del self.claims[path, member]
        self._claimants[path].discard(member)

    def _tree(self, seen: Observation, reading: Ownerships) -> None:
        good = reading.outcome is Outcome.OK
        if not self._tried(reading.tree, seen, good=good) or not good:
            return
        self.nodes.observe_tree(seen, reading, [registration(member) for member in self.members])
        for node in reading.nodes:
            if node.path in self._claimants and node.owner_member is not None:
                self._contest(node.path, node.owner_member, seen.at_ms)

    def _tried(self, name: str, seen: Observation, *, good: bool, counts: bool = True) -> bool:
        """Remember an attempt to read a source; gives whether it is news."""
        known = self.sources.get(name, Source(name))
        if not counts or (seen.at_ms, seen.id) <= (known.tried_ms, known.tried_id):
            return False
        outcome = seen.reading.outcome.value
        known = replace(known, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome)
        self.sources[name] = replace(known, read_ms=seen.at_ms, read_id=seen.id) if good else known
        return True

    def _recovery(self, seen: Observation, reading: Recovery) -> None:
        known = self.members.get(reading.member)
        if known is None:
            return
        ok = reading.result is RecoveryResult.OK
        match reading.action:
            case RecoveryAction.RECONNECT if not ok and (seen.at_ms, seen.id) > known.attempted:
                # What came before the loss counts for the loss before.
                track = known.track
                if track is not None and track.status is Status.SESSION_LOST and seen.at_ms >= track.since_ms:
                    attempts = max(known.attempts + 1, reading.attempt)
                    known = replace(known, attempts=attempts, attempted=(seen.at_ms, seen.id))
            case RecoveryAction.RE_OWN if ok and reading.path is not None and is_bundle(reading.path):
                self._re_owned(reading.member, reading.path, seen.at_ms)
            case RecoveryAction.UNLOAD if ok and reading.path is not None:
                self._unloaded(reading.member, reading.path)
            case RecoveryAction.REPUBLISH_LOAD_DATA if ok:
                known = replace(known, republished_ms=max(known.republished_ms, seen.at_ms))
        self.update(replace(known, seen_ms=max(known.seen_ms, seen.at_ms)))

    def _re_owned(self, member: str, path: str, at_ms: int) -> None:
        """It says that it owns a bundle: a claim, unless the node says so too."""
        node = self.nodes.get(path)
        if node is not None and node.exists and node.owner not in (None, member) and node.read_ms <= at_ms:
            if (path, member) not in self.claims:
                self._claim(Claim(path, member, at_ms))
            self._contest(path, node.owner or "", at_ms)

    def _unloaded(self, member: str, path: str) -> None:
        claim = self.claims.get((path, member))
        if claim is not None and claim.said is not None and claim.said.verdict is OwnershipVerdict.UNLOAD:
            self._drop(path, member)

    def _health(self, seen: Observation, reading: MemberHealth) -> None:
        known = self.members.get(reading.member, Member(reading.member))
        if known.health is None or (seen.at_ms, seen.id) > (known.health.at_ms, known.health.id):
            well = reading.outcome is Outcome.OK and reading.healthy is True
            down_ms = (known.health.down_ms if known.health else NEVER) if well else seen.at_ms
            health = Health(seen.at_ms, seen.id, reading.outcome.value, reading.healthy, reading.listed, down_ms)
            self.update(replace(known, health=health, seen_ms=max(known.seen_ms, seen.at_ms)))
