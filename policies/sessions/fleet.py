"""Rules about the whole fleet: whether a loss is fleet-wide, and how many shutdowns the budget still allows.

A fault of ZooKeeper looks like a loss of many sessions, and to shut those members down would turn it into an outage. So
nobody is shut down while many members of a role are without a session, or while ZooKeeper cannot be read.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec.structs import replace as update

from policies.comparison import Comparison, Relation
from policies.observations import Outcome
from policies.sessions.decisions import SessionStatus
from policies.sessions.readings import NAMESPACES
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Member, SourceRecord, SpentShutdown
from policies.units import millis_of

_GOOD = ("", Outcome.OK.value)

MOST = 0.5
"""If a larger share has no session, including sessions closed in order, most of the fleet is down."""
FEWEST = 2
"""The loss of a single session is never fleet-wide."""


def compare_losses(lost: int, members: int, ratio: float) -> Comparison:
    """Compare the members without a session or cut off with the number that makes their loss fleet-wide."""
    # The product of a decimal ratio may lie slightly above the intended whole number.
    return Comparison(lost, Relation.AT_LEAST, max(FEWEST, math.ceil(ratio * members - 1e-9)))


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

    @cached_property
    def longest_timeout_ms(self) -> int:
        """The largest T of its members."""
        return max((m.timeout_ms for m in self.members), default=0)

    @cached_property
    def losses(self) -> Comparison:
        """The members without a session or cut off now, in whatever order they were lost."""
        return compare_losses(len(self.lost) + len(self.cut_off), len(self.members), self.ratio)

    @property
    def is_lost_together(self) -> bool:
        """Whether some members are without a session, and that loss is fleet-wide."""
        return bool(self.lost) and self.losses.holds

    @property
    def is_known_lost_together(self) -> bool:
        """The same if unread members count as having a session, for alerts: a stale reading is no loss."""
        members = len(self.members) + self.unread
        return bool(self.lost) and compare_losses(len(self.lost) + len(self.cut_off), members, self.ratio).holds

    @property
    def may_be_lost_together(self) -> bool:
        """The same if unread members count as lost, which they may be."""
        members, lost = len(self.members) + self.unread, len(self.lost) + len(self.cut_off) + self.unread
        return compare_losses(lost, members, self.ratio).holds

    @cached_property
    def returned_ms(self) -> int:
        """When the last of its members was established again; `NEVER` if none was."""
        return max((m.track.reestablished_ms or NEVER for m in self.members if m.track is not None), default=NEVER)

    @cached_property
    def may_lose_another(self) -> bool:
        """Whether one more may be shut down: the loss is not fleet-wide, and most of the fleet is up."""
        down, everyone = self.losses.value + self.closed, len(self.members) + self.closed
        return not self.losses.holds and (down < FEWEST or down <= max(MOST, self.ratio) * everyone)


@dataclass(frozen=True, slots=True)
class Unread:
    """Why ZooKeeper counts as unreadable, and the observations behind that."""

    reason: str
    evidence: tuple[str, ...]


def join_roles(members: Iterable[Member], now_ms: int, settings: SessionsSettings) -> dict[str, RoleFacts]:
    """Join the members of each role as of now."""
    by_role: dict[str, list[Member]] = {}
    for member in members:
        by_role.setdefault(member.role, []).append(member)
    return {role: _join_role(found, now_ms, settings) for role, found in by_role.items()}


def _join_role(members: Iterable[Member], now_ms: int, settings: SessionsSettings) -> RoleFacts:
    counting: list[Member] = []
    closed = unread = 0
    for member in members:
        track = member.track
        if track is None:
            continue
        if track.status is SessionStatus.CLOSED:
            closed += 1
        elif track.is_lost or track.is_fresh(now_ms, millis_of(settings.validity)):
            counting.append(member)
        else:
            unread += 1
    return RoleFacts(tuple(counting), settings.fleet_ratio, closed, unread)


def find_unread(
    members: Iterable[Member], sources: Collection[SourceRecord], now_ms: int, settings: SessionsSettings
) -> Unread | None:
    """Return why ZooKeeper cannot be read; None while it can be.

    It cannot be read if the last attempt on the sessions, on a tree or on any member failed, or if there has been no
    reading of the sessions for `validity`. A failure counts for `validity`; one on the sessions until the next success.
    The reason is that of the sessions, if they failed: collectors fail for different reasons, one after the other.
    """
    validity_ms = millis_of(settings.validity)
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
        newest = sorted((at_ms, id_) for _, at_ms, id_ in failed if id_ and now_ms - at_ms <= validity_ms)
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


def is_relapsing(source: SourceRecord, settings: SessionsSettings) -> bool:
    """Whether attempts on a source fail and succeed in turn, and it was not read without a failure for `settle`."""
    return source.relapsed_ms != NEVER and source.read_ms < source.relapsed_ms + millis_of(settings.settle)


def is_ownership_hidden(sources: Collection[SourceRecord]) -> bool:
    """Whether the last attempt on the bundles' tree found that ZooKeeper does not show their owners."""
    return any(is_hidden(tree, sources) for tree in find_bundle_trees(sources))


def is_hidden(source: SourceRecord, sources: Iterable[SourceRecord]) -> bool:
    """Whether the last attempt on a tree found no owners there, or too many, and no part was read since."""
    is_unsupported = source.name != SESSIONS and source.outcome == Outcome.UNSUPPORTED.value
    return is_unsupported and not _has_read_part(source, sources)


def find_bundle_trees(sources: Iterable[SourceRecord]) -> Iterator[SourceRecord]:
    """Yield the trees that contain all bundles."""
    return (source for source in sources if source.name and NAMESPACES.startswith(source.name.rstrip("/")))


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
        if self.limit == 0 or self.has_left(now_ms) or len(self.down()) >= self.limit:
            return None
        return sorted(s.at_ms for s in self.spent)[-self.limit] + self.window_ms

    def _is_recent(self, spent: SpentShutdown, now_ms: int) -> bool:
        return now_ms - spent.at_ms < self.window_ms
