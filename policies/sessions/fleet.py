"""Rules about the whole fleet: whether a loss is fleet-wide, and how many shutdowns the budget still allows.

A fault of ZooKeeper looks like a loss of many sessions, and to shut those members down would turn it into an outage. So
nobody is shut down while many members of a role are without a session, or while ZooKeeper cannot be read.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace as update

from policies.observations import Outcome
from policies.sessions.decisions import SessionReason, SessionStatus
from policies.sessions.readings import SessionState
from policies.sessions.settings import IN_A_ROW_MS, SHORTEST_INTERVAL_MS, SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Member, NodeRecord, SourceRecord, SpentShutdown
from policies.units import millis_of

_GOOD = ("", Outcome.OK.value)

MOST = 0.5
"""If a larger share has no session, including sessions closed in order, most of the fleet is down."""
FEWEST = 2
"""The loss of a single session is never fleet-wide."""


@dataclass(frozen=True)
class RoleFacts:
    """The members of one role: those with a valid reading, and those last read as without a session.

    A member that was lost and has not been read since counts as lost, because the safe error is to shut nobody down.
    """

    members: tuple[Member, ...]
    """Without those that closed their session in order."""
    ratio: float
    closed: int = 0
    """The number of members that closed their session in order and have not come back."""
    unread: int = 0
    """The number of further members that had a session by their last reading, which is stale."""

    @cached_property
    def lost(self) -> tuple[Member, ...]:
        """The members without a session now."""
        return tuple(m for m in self.members if m.track is not None and m.track.is_lost)

    @cached_property
    def cut_off(self) -> tuple[Member, ...]:
        """The members whose connection is lost. If a fleet is cut off at once, its sessions expire one by one."""
        lost = SessionStatus.CONNECTION_LOST
        return tuple(m for m in self.members if m.track is not None and m.track.status is lost)

    @property
    def losses(self) -> int:
        """The number of members without a session or cut off now, in whatever order they were lost."""
        return len(self.lost) + len(self.cut_off)

    @property
    def fewest_fleet_wide(self) -> int:
        """The number of members without a session or cut off that makes their loss fleet-wide."""
        return self._fewest_of(len(self.members))

    @property
    def _fewest_with_unread(self) -> int:
        return self._fewest_of(len(self.members) + self.unread)

    def _fewest_of(self, members: int) -> int:
        # The product of a decimal ratio may lie slightly above the intended whole number.
        return max(FEWEST, math.ceil(self.ratio * members - 1e-9))

    @property
    def is_lost_together(self) -> bool:
        """Whether some members are without a session, and that loss is fleet-wide."""
        return bool(self.lost) and self.losses >= self.fewest_fleet_wide

    @property
    def is_known_lost_together(self) -> bool:
        """The same if unread members count as having a session, for alerts: a stale reading is no loss."""
        return bool(self.lost) and self.losses >= self._fewest_with_unread

    @property
    def may_be_lost_together(self) -> bool:
        """The same if unread members count as lost, which they may be."""
        return self.losses + self.unread >= self._fewest_with_unread

    @cached_property
    def returned_ms(self) -> int:
        """When the last of its members was established again; `NEVER` if none was."""
        return max((m.track.reestablished_ms or NEVER for m in self.members if m.track is not None), default=NEVER)

    @cached_property
    def may_lose_another(self) -> bool:
        """Whether one more may be shut down: the loss is not fleet-wide, and most of the fleet is up."""
        down, everyone = self.losses + self.closed, len(self.members) + self.closed
        is_mostly_up = down < FEWEST or down <= max(MOST, self.ratio) * everyone
        return self.losses < self.fewest_fleet_wide and is_mostly_up


@dataclass(frozen=True, slots=True)
class Unread:
    """Why ZooKeeper counts as unreadable, and the observations behind that."""

    reason: str
    evidence: tuple[str, ...]


def join_roles(members: Iterable[Member], now_ms: int, settings: SessionsSettings) -> dict[str, RoleFacts]:
    """Join the members of each role as of now."""
    counting: dict[str, list[Member]] = {}
    closed, unread = Counter[str](), Counter[str]()
    for member in members:
        role, track = member.role, member.track
        known = counting.setdefault(role, [])
        if track is not None and track.status is SessionStatus.CLOSED:
            closed[role] += 1
        elif track is not None and (track.is_lost or track.is_fresh(now_ms, settings.validity_ms)):
            known.append(member)
        elif track is not None:
            unread[role] += 1
    ratio = settings.fleet_ratio
    return {role: RoleFacts(tuple(found), ratio, closed[role], unread[role]) for role, found in counting.items()}


def find_unread(
    members: Iterable[Member], sources: Collection[SourceRecord], now_ms: int, settings: SessionsSettings
) -> Unread | None:
    """Return why ZooKeeper cannot be read; None while it can be.

    It cannot be read if the last attempt on the sessions, on a tree or on any member failed, or if there has been no
    reading of the sessions for `validity`. A failure counts for `validity`; one on the sessions until the next success.
    The reason is that of the sessions, if they failed: collectors fail for different reasons, one after the other.
    """
    validity_ms = settings.validity_ms
    failed = [
        (s.outcome, s.tried_ms, s.tried_id)
        for s in sorted(sources, key=lambda s: s.name)
        if has_failed(s, sources) and (s.name == SESSIONS or now_ms - s.tried_ms <= validity_ms)
    ]
    failed += sorted(
        (m.outcome, m.tried_ms, m.tried_id)
        for m in members
        if m.outcome not in _GOOD and now_ms - m.tried_ms <= validity_ms
    )
    if failed:
        newest = sorted((at_ms, id_) for _, at_ms, id_ in failed if now_ms - at_ms <= validity_ms)
        return Unread(failed[0][0], tuple(dict.fromkeys(id_ for _, id_ in reversed(newest))))
    sessions = next((s for s in sources if s.name == SESSIONS), None)
    if sessions is not None and sessions.read_ms != NEVER and now_ms - sessions.read_ms > validity_ms:
        return Unread("silence", (sessions.read_id,))
    return None


def has_failed(source: SourceRecord, sources: Iterable[SourceRecord]) -> bool:
    """Whether the last attempt on a source failed, and no part of it was read since."""
    return is_failure(source.name, source.outcome) and not _has_read_part(source, sources)


def is_failure(name: str, outcome: str) -> bool:
    """Whether an outcome is a fault of ZooKeeper's; a tree that is too large, or not kept in ZooKeeper, is none."""
    return outcome not in _GOOD and (name == SESSIONS or outcome != Outcome.UNSUPPORTED.value)


def is_relapsing(source: SourceRecord) -> bool:
    """Whether attempts on a source fail and succeed in turn, and it was not read without a failure for `settle`."""
    return source.doubt is not None and source.doubt.turns > 1


def is_hidden(source: SourceRecord, sources: Iterable[SourceRecord]) -> bool:
    """Whether the last attempt on a tree found no owners there, or too many, and no part was read since."""
    is_unsupported = source.name != SESSIONS and source.outcome == Outcome.UNSUPPORTED.value
    return is_unsupported and not _has_read_part(source, sources)


def _has_read_part(source: SourceRecord, sources: Iterable[SourceRecord]) -> bool:
    """Whether a part of a tree was read since the last attempt on the whole."""
    below = f"{source.name}/"
    return source.name != SESSIONS and any(s.name.startswith(below) and s.read_ms > source.tried_ms for s in sources)


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of shutdowns and restarts.

    At most `limit` members are down by an order at any time, and at most `limit` orders are given in any `window_ms`.
    """

    limit: int
    window_ms: int
    spent: tuple[SpentShutdown, ...]
    is_shadow: bool = False
    """Whether this step's orders are in shadow mode."""

    def down(self) -> frozenset[str]:
        """The members that were ordered down and are not back."""
        return frozenset(s.member for s in self.spent if s.back_ms == NEVER)

    def has_left(self, now_ms: int) -> bool:
        """Whether one more order is allowed now."""
        recent = sum(self._is_recent(s, now_ms) for s in self.spent)
        return max(recent, len(self.down())) < self.limit

    def spend(self, member: str, now_ms: int) -> "Budget":
        """Return the budget after one more order."""
        return replace(self, spent=(*self.spent, SpentShutdown(now_ms, member, is_shadow=self.is_shadow)))

    def give_back(self, members: Collection[str], now_ms: int) -> "Budget":
        """Return the budget after these members came back, or are gone for good."""
        if not self.down().intersection(members):
            return self
        spent = (update(s, back_ms=now_ms) if s.back_ms == NEVER and s.member in members else s for s in self.spent)
        return replace(self, spent=tuple(spent))

    def left_over(self, now_ms: int) -> tuple[SpentShutdown, ...]:
        """The orders that still count."""
        return tuple(s for s in self.spent if s.back_ms == NEVER or self._is_recent(s, now_ms))

    def free_ms(self, now_ms: int) -> int | None:
        """When time alone allows the next order; None if one is allowed now, or time alone allows none."""
        if self.has_left(now_ms) or len(self.down()) >= self.limit:
            return None
        return sorted(s.at_ms for s in self.spent)[-self.limit] + self.window_ms

    def _is_recent(self, spent: SpentShutdown, now_ms: int) -> bool:
        return now_ms - spent.at_ms < self.window_ms


# Members whose process contradicts their session: dead, alive without a registration, or not listed.
#
# A member is brought down only if readings are certain (`Certainty`): recent, taken after the event, two in a row.

INTERVALS = 2
"""A reading is fresh for this many of its own intervals."""


class Certainty(Enum):
    """How certain the readings behind a shutdown or restart are, least certain first."""

    STALE = "stale"
    """The last reading is too old: what it showed may be over."""
    ONCE = "once"
    """Only one reading since the event shows it; the next may contradict it."""
    SURE = "sure"
    """The last two readings show it. They are in a row, both were taken after the event, and the last is fresh."""


class ReadingPair(Struct, frozen=True, gc=False):
    """The last two readings of one thing, which agree."""

    read_ms: int
    before_ms: int
    """The time of the reading before; `NEVER` if there was none."""
    event_ms: int
    """Both readings must have been taken after this event."""
    timeout_ms: int
    """T of the member; no older reading is fresh."""

    @property
    def interval_ms(self) -> int:
        """The time between the two readings, at most T."""
        gap_ms = self.timeout_ms if self.before_ms == NEVER else self.read_ms - self.before_ms
        return min(max(gap_ms, SHORTEST_INTERVAL_MS), self.timeout_ms)

    def judge_certainty(self, now_ms: int) -> Certainty:
        """Return how certain these readings are as of now."""
        if now_ms - self.read_ms >= min(INTERVALS * self.interval_ms, self.timeout_ms):
            return Certainty.STALE
        is_in_a_row = self.before_ms != NEVER and self.read_ms - self.before_ms <= IN_A_ROW_MS
        return Certainty.SURE if is_in_a_row and self.before_ms >= self.event_ms else Certainty.ONCE


class Absence(Struct, frozen=True, gc=False):
    """A member whose health endpoint answers healthy is not registered, or not listed."""

    gone_ms: int
    due_ms: int
    """When it has been absent for longer than any member that came back by itself; may be past."""
    certainty: Certainty
    read_ms: int
    """The time of the oldest of the last readings that show it."""


class Liveness(Struct, frozen=True, gc=False):
    """The state of a member's process, by its health endpoint and its registration."""

    is_dead: bool
    """Its process has refused connections since it was last connected, and its session has expired, or it has none."""
    unregistered: Absence | None
    """Its health endpoint answers healthy, and it has no registration; None if that is not known."""
    unlisted: Absence | None
    """It has a session again and is registered, but the cluster has not listed it since."""
    is_registered: bool
    is_no_zombie: bool
    """It is registered, unwell by its own answer, dead, or closed."""
    is_unstable: bool
    """Its registration comes and goes, or collectors disagree about it. Then nothing is concluded from it."""
    is_restless: bool
    """Its process dies and starts in turn, or collectors disagree about it. Then it is not declared dead."""


def judge_liveness(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Liveness:
    """Return the state of a member's process; `node` is its registration by the last reading."""
    oldest_ms, health, track = now_ms - settings.validity_ms, member.health, member.track
    # Readings contradict each other about the process of a member without a session.
    is_alone = (track is not None and track.is_lost) or has_no_protection(member, node)
    is_restless = health is not None and health.doubt is not None and health.doubt.is_in_turn and is_alone
    is_dead = _is_dead(member, node, oldest_ms) and not is_restless
    is_registered = node is not None and node.exists and node.read_ms >= oldest_ms
    is_closed = track is not None and track.status is SessionStatus.CLOSED
    is_unstable = node is not None and node.is_in_turn
    valid = health if health is not None and health.at_ms >= oldest_ms else None
    is_unwell = valid is not None and (valid.has_refused_twice() or valid.healthy is False)
    may_be_absent = valid is not None and valid.outcome == Outcome.OK.value and not is_unstable
    unregistered = _find_unregistered(member, node, now_ms, settings) if may_be_absent and not is_closed else None
    unlisted = _find_unlisted(member, node, now_ms, settings) if may_be_absent and is_registered else None
    is_no_zombie = is_registered or is_closed or is_dead or is_unwell or is_unstable
    return Liveness(is_dead, unregistered, unlisted, is_registered, is_no_zombie, is_unstable, is_restless)


def has_no_protection(member: Member, node: NodeRecord | None) -> bool:
    """Whether a member is registered by a node that outlives every session, and is known to have no session."""
    is_lasting, track = node is not None and node.exists and not node.ephemeral, member.track
    return is_lasting and (track is None or track.status in (SessionStatus.CLOSED, SessionStatus.SESSION_LOST))


def _is_dead(member: Member, node: NodeRecord | None, oldest_ms: int) -> bool:
    track, health, last = member.track, member.health, member.last_published
    if health is None:
        return False
    if has_no_protection(member, node):
        return health.at_ms >= oldest_ms and health.has_refused_twice()
    if track is None or not (track.is_lost and track.state is SessionState.EXPIRED):
        return False
    is_published = last is not None and last.reason is SessionReason.UNREACHABLE
    return (is_published or health.at_ms >= oldest_ms) and health.has_refused_twice(track.connected_ms or 0)


def _find_unregistered(
    member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings
) -> Absence | None:
    health, oldest_ms = member.health, now_ms - settings.validity_ms
    if node is None or node.exists or health is None or not health.healthy:
        return None
    if node.read_ms < oldest_ms or health.at_ms < node.changed_ms:
        return None
    # A process that was down or without a session in the meantime could not register itself earlier.
    reestablished_ms = member.track.reestablished_ms if member.track else None
    since_ms = max(node.changed_ms, health.down_ms, health.started_ms, reestablished_ms or 0)
    readings = (
        ReadingPair(node.read_ms, node.before_ms, node.changed_ms, member.timeout_ms),
        ReadingPair(health.at_ms, health.before_ms, max(node.changed_ms, health.down_ms + 1), member.timeout_ms),
    )
    return _join_absence(since_ms, readings, now_ms, settings)


def _find_unlisted(member: Member, node: NodeRecord | None, now_ms: int, settings: SessionsSettings) -> Absence | None:
    """Lists of brokers lag, sometimes by minutes, so a member has as long to be listed as a zombie to register."""
    track, health = member.track, member.health
    if track is None or track.reestablished_ms is None or track.status is not SessionStatus.ESTABLISHED:
        return None
    if node is None or health is None or health.listed is not False:
        return None
    back_ms = max(track.reestablished_ms, node.changed_ms)
    if health.listed_ms >= track.reestablished_ms or health.at_ms < back_ms:
        return None
    since_ms = max(back_ms, health.unlisted_ms)
    readings = (
        ReadingPair(track.read_ms, track.before_ms, track.reestablished_ms, member.timeout_ms),
        ReadingPair(node.read_ms, node.before_ms, back_ms, member.timeout_ms),
        ReadingPair(health.at_ms, health.before_ms, since_ms, member.timeout_ms),
    )
    return _join_absence(since_ms, readings, now_ms, settings)


def _join_absence(gone_ms: int, readings: tuple[ReadingPair, ...], now_ms: int, settings: SessionsSettings) -> Absence:
    found = {each.judge_certainty(now_ms) for each in readings}
    least = next(c for c in Certainty if c in found)
    due_ms = gone_ms + millis_of(settings.zombie_after)
    return Absence(gone_ms, due_ms, least, min(each.read_ms for each in readings))


def judge_loss(member: Member, now_ms: int) -> Certainty:
    """Return how certain it is that a member is without a session, by the readings of its session since then."""
    track = member.track
    if track is None:
        return Certainty.STALE
    pair = ReadingPair(track.read_ms, track.before_ms, member.begun_ms, track.timeout_ms)
    return pair.judge_certainty(now_ms)
