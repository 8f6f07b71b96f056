"""What holds of the whole fleet: whether a loss is one of all, and how many shutdowns may still be decided.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from policies.observations import Outcome
from policies.sessions.decisions import SessionStatus
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, SESSIONS, Member, SourceRecord, SpentShutdown
from policies.units import millis_of

FEWEST = 2
"""A loss of one is never one of the fleet."""


@dataclass(frozen=True, slots=True)
class LossCount:
    """How many of a role's members lost their sessions."""

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
    """The members of a role that count: those read lately that have not left in order, and those last read as lost.

    Counting who was lost and is unread since errs on the side of nobody being shut down.
    """

    members: tuple[Member, ...]
    ratio: float
    window_ms: int

    @cached_property
    def losses_ms(self) -> list[int]:
        """When each of them last lost its session, sorted."""
        return sorted(m.track.lost_ms for m in self.members if m.track is not None and m.track.lost_ms is not None)

    @property
    def lost(self) -> tuple[Member, ...]:
        """Those without a session now, since whenever."""
        return tuple(m for m in self.members if m.track is not None and m.track.is_lost)

    def lost_now(self) -> LossCount:
        """How many are without a session now."""
        return LossCount(len(self.lost), len(self.members), self.ratio)

    def lost_together(self, member: Member) -> LossCount:
        """How many lost their sessions within `fleet_window` of a member's own loss, that member among them."""
        lost_ms = member.track.lost_ms if member.track else None
        first = 0 if lost_ms is None else bisect_right(self.losses_ms, lost_ms - self.window_ms)
        last = 0 if lost_ms is None else bisect_left(self.losses_ms, lost_ms + self.window_ms)
        return LossCount(last - first, len(self.members), self.ratio)

    def lost_with_the_fleet(self) -> frozenset[str]:
        """The members without a session whose loss is one of the fleet."""
        return frozenset(m.member for m in self.lost if self.lost_together(m).is_fleet_wide)

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
        counting = of_role.setdefault(member.role, [])
        if _counts(member, now_ms, millis_of(settings.validity)):
            counting.append(member)
    ratio, window_ms = settings.fleet_ratio, millis_of(settings.fleet_window)
    return {role: RoleFacts(tuple(counting), ratio, window_ms) for role, counting in of_role.items()}


def _counts(member: Member, now_ms: int, validity_ms: int) -> bool:
    track = member.track
    if track is None or track.status is SessionStatus.CLOSED:
        return False
    return track.is_lost or track.is_fresh(now_ms, validity_ms)


def _unread(
    members: Iterable[Member], sources: Iterable[SourceRecord], now_ms: int, settings: SessionsSettings
) -> Unread | None:
    """Why ZooKeeper cannot be read; None while it can be.

    It cannot when the last attempt on the sessions, on a tree or on any member failed; and when nothing has been read
    of the sessions for `validity`.
    """
    validity_ms = millis_of(settings.validity)
    attempts = [(s.tried_ms, s.tried_id, s.outcome, s.name == SESSIONS) for s in sources]
    attempts += [(m.tried_ms, m.tried_id, m.outcome, False) for m in members]
    failed = [
        (at_ms, id_, outcome)
        for at_ms, id_, outcome, counts_for_ever in attempts
        if outcome not in ("", Outcome.OK.value) and (counts_for_ever or now_ms - at_ms <= validity_ms)
    ]
    if failed:
        newest = sorted(failed, reverse=True)
        fresh = (id_ for at_ms, id_, _ in newest if id_ and now_ms - at_ms <= validity_ms)
        return Unread(newest[0][2], tuple(dict.fromkeys(fresh)))
    sessions = next((s for s in sources if s.name == SESSIONS), None)
    if sessions is not None and sessions.read_ms != NEVER and now_ms - sessions.read_ms > validity_ms:
        return Unread("silence", (sessions.read_id,))
    return None


@dataclass(frozen=True, slots=True)
class Budget:
    """How many shutdowns and restarts were decided, and may still be.

    At most `limit` are decided within any `window_ms`.
    """

    limit: int
    window_ms: int
    spent: tuple[SpentShutdown, ...]

    def count(self, now_ms: int) -> int:
        """How many count now."""
        return len(self.left_over(now_ms))

    def has_left(self, now_ms: int) -> bool:
        """Whether one more may be decided now."""
        return self.count(now_ms) < self.limit

    def spend(self, member: str, now_ms: int) -> "Budget":
        """What is left when one was decided for a member."""
        return replace(self, spent=(*self.spent, SpentShutdown(now_ms, member)))

    def left_over(self, now_ms: int) -> tuple[SpentShutdown, ...]:
        """What still counts, and is to be remembered."""
        return tuple(s for s in self.spent if now_ms - s.at_ms < self.window_ms)

    def free_ms(self, now_ms: int) -> int | None:
        """When the next one is free again; None when one is, or never will be."""
        if self.limit == 0 or self.has_left(now_ms):
            return None
        return sorted(s.at_ms for s in self.spent)[-self.limit] + self.window_ms
