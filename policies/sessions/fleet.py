"""Rules about the whole fleet: whether a loss affects everybody, and how many shutdowns may still be decided.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from msgspec.structs import replace as changed

from policies.observations import Outcome
from policies.sessions.decisions import SessionStatus
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Member, SourceRecord, SpentShutdown
from policies.units import millis_of

_GOOD = ("", Outcome.OK.value)

MOST = 0.5
"""When more have no session, those that ended theirs in order among them, most of the fleet is down."""
FEWEST = 2
"""A loss of one is never one of the fleet."""


@dataclass(frozen=True, slots=True)
class LossCount:
    """How many of a role's members are without a session, or cut off."""

    lost: int
    members: int
    ratio: float

    @property
    def needed(self) -> int:
        """How many make it a loss of the fleet."""
        # The product of the decimal ratio may lie a hair above the whole number that is meant.
        return max(FEWEST, math.ceil(self.ratio * self.members - 1e-9))

    @property
    def is_fleet_wide(self) -> bool:
        """Whether so many lost theirs that the fault is not their own."""
        return self.lost >= self.needed


@dataclass(frozen=True)
class RoleFacts:
    """The members of a role that count: those read lately, and those last read as without a session.

    Counting who was lost and is unread since errs on the side of nobody being shut down.
    """

    members: tuple[Member, ...]
    """But for those that ended theirs in order."""
    ratio: float
    closed: int = 0
    """How many ended theirs in order and have not come back."""
    unread: int = 0
    """How many more there are that had a session when they were last read, which is too long ago."""

    @cached_property
    def lost(self) -> tuple[Member, ...]:
        """Those without a session now, since whenever; who recovered is none of them."""
        return tuple(m for m in self.members if m.track is not None and m.track.is_lost)

    @cached_property
    def cut_off(self) -> tuple[Member, ...]:
        """Those whose connection is lost: of a fleet that is cut off at once, not all sessions expire at once."""
        lost = SessionStatus.CONNECTION_LOST
        return tuple(m for m in self.members if m.track is not None and m.track.status is lost)

    @property
    def count(self) -> LossCount:
        """How many are without a session or cut off now, in whatever order and pace that came."""
        return LossCount(len(self.lost) + len(self.cut_off), len(self.members), self.ratio)

    @property
    def is_lost_together(self) -> bool:
        """Whether some are without a session, and that is a loss of the fleet."""
        return bool(self.lost) and self.count.is_fleet_wide

    @property
    def is_known_lost_together(self) -> bool:
        """The same, for who is to be told so: that others are not read any more is no loss of theirs."""
        everyone = LossCount(len(self.lost) + len(self.cut_off), len(self.members) + self.unread, self.ratio)
        return bool(self.lost) and everyone.is_fleet_wide

    @property
    def may_lose_another(self) -> bool:
        """Whether one may be shut down: neither is it a loss of the fleet, nor is most of the fleet down."""
        down, everyone = self.count.lost + self.closed, len(self.members) + self.closed
        return not self.count.is_fleet_wide and (down < FEWEST or down <= max(MOST, self.ratio) * everyone)

    def without(self, names: Collection[str]) -> "RoleFacts":
        """The same, when these members are forgotten."""
        return replace(self, members=tuple(m for m in self.members if m.member not in names))


@dataclass(frozen=True, slots=True)
class Unread:
    """Why ZooKeeper counts as unreadable, and the observations that say so."""

    reason: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What holds of all members together."""

    roles: Mapping[str, RoleFacts]
    unread: Unread | None
    """Why ZooKeeper cannot be read; None while it can be."""

    def without(self, names: Collection[str]) -> "FleetFacts":
        """The same, when these members are forgotten."""
        if not names:
            return self
        return replace(self, roles={name: role.without(names) for name, role in self.roles.items()})


def fleet_of(
    members: Collection[Member], sources: Collection[SourceRecord], now_ms: int, settings: SessionsSettings
) -> FleetFacts:
    """What holds of all members together as of now."""
    return FleetFacts(_roles(members, now_ms, settings), _unread(members, sources, now_ms, settings))


def _roles(members: Iterable[Member], now_ms: int, settings: SessionsSettings) -> dict[str, RoleFacts]:
    of_role: dict[str, list[Member]] = {}
    for member in members:
        of_role.setdefault(member.role, []).append(member)
    validity_ms = millis_of(settings.validity)
    return {
        role: RoleFacts(
            tuple(m for m in found if _counts(m, now_ms, validity_ms)),
            settings.fleet_ratio,
            closed=sum(map(_is_closed, found)),
            unread=sum(_is_unread(m, now_ms, validity_ms) for m in found),
        )
        for role, found in of_role.items()
    }


def _is_closed(member: Member) -> bool:
    return member.track is not None and member.track.status is SessionStatus.CLOSED


def _is_unread(member: Member, now_ms: int, validity_ms: int) -> bool:
    return member.track is not None and not _is_closed(member) and not _counts(member, now_ms, validity_ms)


def _counts(member: Member, now_ms: int, validity_ms: int) -> bool:
    track = member.track
    if track is None or _is_closed(member):
        return False
    return track.is_lost or track.is_fresh(now_ms, validity_ms)


def _unread(
    members: Iterable[Member], sources: Collection[SourceRecord], now_ms: int, settings: SessionsSettings
) -> Unread | None:
    """Why ZooKeeper cannot be read; None while it can be.

    It cannot when the last attempt on the sessions, on a tree or on any member failed; and when nothing has been read
    of the sessions for `validity`.
    """
    validity_ms = millis_of(settings.validity)
    attempts = [(s.tried_ms, s.tried_id, s.outcome, s.name == SESSIONS) for s in sources if has_failed(s, sources)]
    attempts += [(m.tried_ms, m.tried_id, m.outcome, False) for m in members if m.outcome not in _GOOD]
    failed = [
        (at_ms, id_, outcome)
        for at_ms, id_, outcome, counts_for_ever in attempts
        if counts_for_ever or now_ms - at_ms <= validity_ms
    ]
    if failed:
        newest = sorted(failed, reverse=True)
        fresh = (id_ for at_ms, id_, _ in newest if id_ and now_ms - at_ms <= validity_ms)
        return Unread(newest[0][2], tuple(dict.fromkeys(fresh)))
    sessions = next((s for s in sources if s.name == SESSIONS), None)
    if sessions is not None and sessions.read_ms != NEVER and now_ms - sessions.read_ms > validity_ms:
        return Unread("silence", (sessions.read_id,))
    return None


def has_failed(source: SourceRecord, sources: Iterable[SourceRecord]) -> bool:
    """Whether the last attempt on a source failed, and no part of it was read since."""
    if source.outcome in _GOOD:
        return False
    below = f"{source.name}/"
    return source.name == SESSIONS or not any(s.name.startswith(below) and s.read_ms > source.tried_ms for s in sources)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many shutdowns and restarts were decided, and may still be.

    At most `limit` members are down by our word at any time, and at most as many orders are given within any
    `window_ms`.
    """

    limit: int
    window_ms: int
    spent: tuple[SpentShutdown, ...]
    is_shadow: bool = False
    """Whether what is decided now is published only."""

    def down(self) -> frozenset[str]:
        """Who was told to go down, and is not back."""
        return frozenset(s.member for s in self.spent if s.back_ms == NEVER)

    def count(self, now_ms: int) -> int:
        """How many orders count now."""
        return len(self.left_over(now_ms))

    def has_left(self, now_ms: int) -> bool:
        """Whether one more may be decided now."""
        return max(len(self._recent(now_ms)), len(self.down())) < self.limit

    def spend(self, member: str, now_ms: int) -> "Budget":
        """What is left when one was decided for a member."""
        return replace(self, spent=(*self.spent, SpentShutdown(now_ms, member, is_shadow=self.is_shadow)))

    def returned(self, members: Collection[str], now_ms: int) -> "Budget":
        """The same, when these members are found back, or gone for good."""
        if not self.down().intersection(members):
            return self
        spent = (changed(s, back_ms=now_ms) if s.back_ms == NEVER and s.member in members else s for s in self.spent)
        return replace(self, spent=tuple(spent))

    def left_over(self, now_ms: int) -> tuple[SpentShutdown, ...]:
        """What still counts, and is to be remembered."""
        return tuple(s for s in self.spent if s.back_ms == NEVER or self._is_recent(s, now_ms))

    def free_ms(self, now_ms: int) -> int | None:
        """When time alone frees the next one; None when one is free, or time alone frees none."""
        if self.limit == 0 or self.has_left(now_ms) or len(self.down()) >= self.limit:
            return None
        return sorted(s.at_ms for s in self.spent)[-self.limit] + self.window_ms

    def _recent(self, now_ms: int) -> list[SpentShutdown]:
        return [s for s in self.spent if self._is_recent(s, now_ms)]

    def _is_recent(self, spent: SpentShutdown, now_ms: int) -> bool:
        return now_ms - spent.at_ms < self.window_ms
