"""The read models of one cluster, folded from its readings in any order.

The result depends on the readings and their times alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.sessions.decisions import SessionEvent
from policies.sessions.fleet import is_failure, join_roles
from policies.sessions.fold import members
from policies.sessions.fold.claims import Claims
from policies.sessions.fold.nodes import OwnershipNodes
from policies.sessions.fold.session_machine import Events, Timeouts
from policies.sessions.readings import (
    MemberHealth,
    OwnedNode,
    Ownership,
    Ownerships,
    Recovery,
    ZkSession,
    date_back,
    registration_path,
)
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Member, SessionsState, SourceRecord
from policies.units import millis_of

_BEGINS_LOSS = frozenset({SessionEvent.CONNECTION_LOST, SessionEvent.SESSION_LOST})
_ENDS_LOSS = frozenset({SessionEvent.RECONNECTED, SessionEvent.CLOSED})

_BEGINS_PROCESS = frozenset({SessionEvent.SESSION_REESTABLISHED, SessionEvent.JOINED})

_KINDS = (MemberHealth, Ownership, Recovery, ZkSession, Ownerships)
"""The order in which readings of one instant are folded."""
MOST_MEMBERS = 10_000
MOST_NODES = 200_000
MOST_SOURCES = 100
"""The bounds of a cluster's state, far above real fleets: readings beyond them are refused."""


class ClusterState:
    """The read models of one cluster, while one step folds readings into them."""

    def __init__(self, state: SessionsState, settings: SessionsSettings) -> None:
        self._settings = settings
        self.timeouts = Timeouts(millis_of(settings.settle), millis_of(settings.validity))
        self.members = {m.member: m for m in state.members}
        self._has_new_losses = False
        self._moving = {m.member for m in state.members if m.track is not None and m.track.moves_with_time}
        self.nodes = OwnershipNodes(state.nodes, self.timeouts)
        self.claims = Claims(state.claims)
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
                    self.claims.follow_node(node.path, node.owner_member, seen.at_ms, self.members)
                case Ownerships():
                    self._fold_tree(seen, seen.reading)
                case Recovery() as report if report.member in self.members:
                    self.members[report.member] = members.fold_report(self.members[report.member], seen, report)
                    self.claims.follow_report(seen, report, self.nodes, self.members)
                case MemberHealth() as health:
                    member = self.members.get(health.member, Member(health.member))
                    self.members[health.member] = members.fold_health(member, seen, health, self.timeouts)
        self._pass_time(now_ms)
        self.claims.contest_by_session(self.members, self.nodes)
        for member in [m for m in self.members.values() if m.died_ms != NEVER] if self.claims.by_key else ():
            self.claims.drop_of(member.member)

    def _find_excess(self, reading: Reading) -> str | None:
        """The bound that the reading would exceed; None if there is room for it."""
        nodes: tuple[OwnedNode, ...] = ()
        match reading:
            case ZkSession(member=str(member)) | MemberHealth(member=member):
                is_full = len(self.members) >= MOST_MEMBERS and member not in self.members
                return f"more than {MOST_MEMBERS} members" if is_full else None
            case Ownership() as node:
                nodes = (node,)
            case Ownerships(nodes=nodes):
                if len(self.sources) >= MOST_SOURCES and reading.tree not in self.sources:
                    return f"more than {MOST_SOURCES} trees"
        room = MOST_NODES - len(self.nodes.by_path)
        if len(nodes) <= room or len({node.path for node in nodes} - self.nodes.by_path.keys()) <= max(room, 0):
            return None
        return f"more than {MOST_NODES} nodes"

    def _fold_session(self, seen: Observation, reading: ZkSession) -> None:
        if reading.is_good or reading.member is None:  # a failure to read one member says nothing about the others
            self._fold_attempt(SESSIONS, seen, good=reading.is_good)
        elif reading.outcome is not Outcome.OK:
            self._note_failure(SESSIONS, seen.at_ms)
        if reading.member is not None:
            member = self.members.get(reading.member, Member(reading.member, reading.role))
            self._update(*members.fold_session(member, seen, reading, self.timeouts), seen.at_ms)

    def _fold_tree(self, seen: Observation, reading: Ownerships) -> None:
        good = reading.outcome is Outcome.OK
        if self._fold_attempt(reading.tree, seen, good=good) and good:
            failed_ms = self.sources[reading.tree].failed_ms
            self.nodes.fold_tree(seen, reading, map(registration_path, self.members), failed_ms)
            if self.claims.by_key:
                at_ms = seen.at_ms
                for node in reading.nodes:
                    self.claims.follow_node(node.path, node.owner_member, at_ms, self.members)

    def _fold_attempt(self, name: str, seen: Observation, *, good: bool) -> bool:
        """Record an attempt to read a source. Returns False for a repeated or older one."""
        before = self.sources.get(name, SourceRecord(name))
        self.sources[name] = after = fold_source(before, seen, good=good, validity_ms=self.timeouts.validity_ms)
        if is_failure(name, seen.reading.outcome.value):
            self._note_failure(name, seen.at_ms)
        return after is not before

    def _note_failure(self, name: str, at_ms: int) -> None:
        """Record when a source, or a part of it, could not be read, even if it has been read since."""
        source = self.sources.get(name, SourceRecord(name))
        if at_ms > source.failed_ms:
            recovered_ms = source.read_ms if source.read_ms > at_ms else source.recovered_ms
            # The source had failed lately, and was read since.
            has_relapsed = source.recovered_ms >= source.failed_ms > at_ms - self.timeouts.settle_ms
            relapsed_ms = at_ms if has_relapsed else source.relapsed_ms
            self.sources[name] = replace(source, failed_ms=at_ms, recovered_ms=recovered_ms, relapsed_ms=relapsed_ms)

    def _pass_time(self, to_ms: int) -> None:
        for name in sorted(self._moving & self.members.keys()):
            member = self.members[name]
            after, events = members.pass_time(member, to_ms, self.timeouts)
            if after is not member:
                self._update(after, events, to_ms)

    def _update(self, member: Member, events: Events, at_ms: int) -> None:
        if self._has_new_losses and _ENDS_LOSS.intersection(events):
            self._mark_fleet_wide(at_ms)
        self._has_new_losses = self._has_new_losses or not _BEGINS_LOSS.isdisjoint(events)
        self.members[member.member] = member
        if member.track is not None and member.track.moves_with_time:
            self._moving.add(member.member)
        else:
            self._moving.discard(member.member)
        self.claims.follow_session(member, events, self.nodes, self.members)
        if member.died_ms != NEVER:
            self.claims.drop_of(member.member)
            if not _BEGINS_PROCESS.isdisjoint(events):
                self.members[member.member] = replace(member, died_ms=NEVER)

    def _mark_fleet_wide(self, at_ms: int) -> None:
        """Mark the members that are lost together before one of them comes back, however readings are batched."""
        self._has_new_losses = False
        for role in join_roles(self.members.values(), at_ms, self._settings).values():
            for member in role.lost if role.is_lost_together else ():
                if not member.fleet_wide:
                    self.members[member.member] = replace(member, fleet_wide=True)


def fold_source(source: SourceRecord, seen: Observation, *, good: bool, validity_ms: int) -> SourceRecord:
    """Return the record of a source after an attempt to read it; the same record if the attempt is not newer."""
    if (seen.at_ms, seen.id) <= (source.tried_ms, source.tried_id):
        return source
    outcome = seen.reading.outcome.value
    if not good:
        return replace(source, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome)
    return replace(
        source,
        read_ms=seen.at_ms,
        read_id=seen.id,
        tried_ms=seen.at_ms,
        tried_id=seen.id,
        outcome=outcome,
        since_ms=source.since_ms if seen.at_ms - source.read_ms <= validity_ms else seen.at_ms,
        recovered_ms=seen.at_ms if source.recovered_ms < source.failed_ms else source.recovered_ms,
    )
