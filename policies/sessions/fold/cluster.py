"""All that is known of one cluster, folded from its readings in any order.

The result depends on the readings and their times alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from policies.observations import Observation, Outcome, in_order
from policies.sessions.fold import health, reports, sessions, sources
from policies.sessions.fold.claims import Claims
from policies.sessions.fold.nodes import OwnershipNodes
from policies.sessions.fold.session_machine import Events, Timeouts
from policies.sessions.readings import (
    MemberHealth,
    Ownership,
    Ownerships,
    Recovery,
    ZkSession,
    as_fetched,
    registration_path,
)
from policies.sessions.state import SESSIONS, Member, SessionsState, SourceRecord


class ClusterState:
    """The read models of one cluster, while one step folds readings into them.

    Args:
        state: what was remembered.
        timeouts: the lengths of time that the sessions' state machines depend on.
    """

    def __init__(self, state: SessionsState, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.members = {m.member: m for m in state.members}
        self.nodes = OwnershipNodes(state.nodes, timeouts.validity_ms)
        self.claims = Claims(state.claims)
        self.sources = {s.name: s for s in state.sources}

    def fold(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Fold readings in, and what time has brought about by `now_ms`."""
        for seen in in_order([as_fetched(each) for each in observations]):
            self._pass_time(min(seen.at_ms, now_ms))
            match seen.reading:
                case ZkSession():
                    self._session(seen, seen.reading)
                case Ownership():
                    self._node(seen, seen.reading)
                case Ownerships():
                    self._tree(seen, seen.reading)
                case Recovery():
                    self._report(seen, seen.reading)
                case MemberHealth():
                    self._health(seen, seen.reading)
        self._pass_time(now_ms)
        self.claims.contest_by_session(self.members, self.nodes)

    def _session(self, seen: Observation, reading: ZkSession) -> None:
        if reading.is_good or reading.member is None:  # that one member cannot be read says nothing of the others
            self._tried(SESSIONS, seen, good=reading.is_good)
        if reading.member is not None:
            member = self.members.get(reading.member, Member(reading.member, reading.role))
            self._moved(*sessions.fold(member, seen, reading, self.timeouts))

    def _pass_time(self, to_ms: int) -> None:
        moving = [m for m in self.members.values() if m.track is not None and m.track.moves_with_time]
        for member in moving:
            after, events = sessions.pass_time(member, to_ms, self.timeouts)
            if after is not member:
                self._moved(after, events)

    def _moved(self, member: Member, events: Events) -> None:
        self.members[member.member] = member
        self.claims.follow_session(member, events, self.nodes, self.members)

    def _node(self, seen: Observation, reading: Ownership) -> None:
        self.nodes.fold(seen, reading)
        self.claims.follow_node(reading.path, reading.owner_member, seen.at_ms, self.members)

    def _tree(self, seen: Observation, reading: Ownerships) -> None:
        good = reading.outcome is Outcome.OK
        if self._tried(reading.tree, seen, good=good) and good:
            self.nodes.fold_tree(seen, reading, map(registration_path, self.members))
            for node in reading.nodes:
                self.claims.follow_node(node.path, node.owner_member, seen.at_ms, self.members)

    def _report(self, seen: Observation, reading: Recovery) -> None:
        member = self.members.get(reading.member)
        if member is not None:
            self.members[member.member] = reports.fold(member, seen, reading)
            self.claims.follow_report(seen, reading, self.nodes, self.members)

    def _health(self, seen: Observation, reading: MemberHealth) -> None:
        member = self.members.get(reading.member, Member(reading.member))
        self.members[member.member] = health.fold(member, seen, reading, self.timeouts.validity_ms)

    def _tried(self, name: str, seen: Observation, *, good: bool) -> bool:
        """Remember an attempt to read a source; gives whether it is news."""
        before = self.sources.get(name, SourceRecord(name))
        self.sources[name] = sources.fold(before, seen, good=good, validity_ms=self.timeouts.validity_ms)
        return self.sources[name] is not before
