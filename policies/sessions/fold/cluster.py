"""The read models of one cluster, folded from its readings in any order.

The result depends on the readings and their times alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.sessions.fold import members
from policies.sessions.fold.claims import Claims
from policies.sessions.fold.nodes import OwnershipNodes
from policies.sessions.fold.session_machine import Events, Timeouts
from policies.sessions.readings import (
    MemberHealth,
    Ownership,
    Ownerships,
    Recovery,
    ZkSession,
    date_back,
    registration_path,
)
from policies.sessions.state import SESSIONS, Member, SessionsState, SourceRecord

MOST_MEMBERS = 10_000
MOST_NODES = 200_000
MOST_SOURCES = 100
"""The bounds of a cluster's state, far above real fleets: readings beyond them are refused."""


class ClusterState:
    """The read models of one cluster, while one step folds readings into them.

    Args:
        state: the state before the step.
        timeouts: the timeouts of the session state machine.
    """

    def __init__(self, state: SessionsState, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.members = {m.member: m for m in state.members}
        self.nodes = OwnershipNodes(state.nodes, timeouts.validity_ms)
        self.claims = Claims(state.claims)
        self.sources = {s.name: s for s in state.sources}
        self.refused: dict[str, str] = {}
        """By observation id: the bound for which it is refused."""

    def fold(self, observations: Sequence[Observation], now_ms: int) -> None:
        """Fold the observations in, and apply the passing of time up to `now_ms`."""
        for seen in sort_observations([date_back(each) for each in observations]):
            self._pass_time(min(seen.at_ms, now_ms))
            if (why := self._find_excess(seen.reading)) is not None:
                self.refused[seen.id] = why
                continue
            match seen.reading:
                case ZkSession():
                    self._fold_session(seen, seen.reading)
                case Ownership() as node:
                    self.nodes.fold(seen, node)
                    self.claims.follow_node(node.path, node.owner_member, seen.at_ms, self.members)
                case Ownerships():
                    self._fold_tree(seen, seen.reading)
                case Recovery() as report if report.member in self.members:
                    self.members[report.member] = members.fold_report(self.members[report.member], seen, report)
                    self.claims.follow_report(seen, report, self.nodes, self.members)
                case MemberHealth() as health:
                    member = self.members.get(health.member, Member(health.member))
                    validity_ms = self.timeouts.validity_ms
                    self.members[health.member] = members.fold_health(member, seen, health, validity_ms)
        self._pass_time(now_ms)
        self.claims.contest_by_session(self.members, self.nodes)

    def _find_excess(self, reading: Reading) -> str | None:
        """The bound that the reading would exceed; None if there is room for it."""
        match reading:
            case ZkSession(member=str(member)) | MemberHealth(member=member):
                is_full = len(self.members) >= MOST_MEMBERS and member not in self.members
                return f"more than {MOST_MEMBERS} members" if is_full else None
            case Ownership(path=path):
                paths = {path}
            case Ownerships(nodes=nodes):
                if len(self.sources) >= MOST_SOURCES and reading.tree not in self.sources:
                    return f"more than {MOST_SOURCES} trees"
                paths = {node.path for node in nodes}
            case _:
                return None
        new = len(paths - self.nodes.by_path.keys())
        return f"more than {MOST_NODES} nodes" if new and len(self.nodes.by_path) + new > MOST_NODES else None

    def _fold_session(self, seen: Observation, reading: ZkSession) -> None:
        if reading.is_good or reading.member is None:  # a failure to read one member says nothing about the others
            self._fold_attempt(SESSIONS, seen, good=reading.is_good)
        if reading.member is not None:
            member = self.members.get(reading.member, Member(reading.member, reading.role))
            self._update(*members.fold_session(member, seen, reading, self.timeouts))

    def _fold_tree(self, seen: Observation, reading: Ownerships) -> None:
        good = reading.outcome is Outcome.OK
        if self._fold_attempt(reading.tree, seen, good=good) and good:
            self.nodes.fold_tree(seen, reading, map(registration_path, self.members))
            for node in reading.nodes:
                self.claims.follow_node(node.path, node.owner_member, seen.at_ms, self.members)

    def _fold_attempt(self, name: str, seen: Observation, *, good: bool) -> bool:
        """Record an attempt to read a source. Returns False for a repeated or older one."""
        before = self.sources.get(name, SourceRecord(name))
        self.sources[name] = fold_source(before, seen, good=good, validity_ms=self.timeouts.validity_ms)
        return self.sources[name] is not before

    def _pass_time(self, to_ms: int) -> None:
        moving = [m for m in self.members.values() if m.track is not None and m.track.moves_with_time]
        for member in moving:
            after, events = members.pass_time(member, to_ms, self.timeouts)
            if after is not member:
                self._update(after, events)

    def _update(self, member: Member, events: Events) -> None:
        self.members[member.member] = member
        self.claims.follow_session(member, events, self.nodes, self.members)


def fold_source(source: SourceRecord, seen: Observation, *, good: bool, validity_ms: int) -> SourceRecord:
    """Return the record of a source after an attempt to read it; the same record if the attempt is not newer."""
    if (seen.at_ms, seen.id) <= (source.tried_ms, source.tried_id):
        return source
    outcome = seen.reading.outcome.value
    source = replace(source, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome)
    if not good:
        return source
    since_ms = source.since_ms if seen.at_ms - source.read_ms <= validity_ms else seen.at_ms
    return replace(source, read_ms=seen.at_ms, read_id=seen.id, since_ms=since_ms)
