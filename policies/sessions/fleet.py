"""What holds of the whole fleet: whether a loss is one of all, and how many shutdowns may still be decided.

Plain values in, plain values out. All times are milliseconds since the epoch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies.observations import Outcome
from policies.sessions.decision import Status
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, Member, Source, Spent
from policies.units import millis_of

FEWEST = 2
"""A loss of one is never one of the fleet."""


@dataclass(frozen=True, slots=True)
class Lost:
    """How many of a role's members lost their sessions together."""

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


def peers(members: Iterable[Member], role: str, now_ms: int, settings: SessionsSettings) -> list[Member]:
    """The members of a role that have not left in order: those read lately, and those last read as lost.

    Counting who was lost and is unread since errs on the side of nobody being shut down.
    """
    validity_ms = millis_of(settings.validity)
    return [
        m
        for m in members
        if m.role == role
        and m.track is not None
        and m.track.status is not Status.CLOSED
        and (m.track.status is Status.SESSION_LOST or m.track.is_fresh(now_ms, validity_ms))
    ]


def lost_together(member: Member, of_role: Sequence[Member], settings: SessionsSettings) -> Lost:
    """How many lost their sessions within `fleet_window` of a member's own loss, that member among them."""
    window_ms = millis_of(settings.fleet_window)
    at_ms = member.track.lost_ms if member.track else None
    lost = sum(
        1
        for m in of_role
        if at_ms is not None
        and m.track is not None
        and m.track.lost_ms is not None
        and abs(m.track.lost_ms - at_ms) < window_ms
    )
    return Lost(lost, len(of_role), settings.fleet_ratio)


def lost_now(of_role: Sequence[Member], settings: SessionsSettings) -> Lost:
    """How many are without a session now, since whenever."""
    lost = sum(1 for m in of_role if m.track is not None and m.track.status is Status.SESSION_LOST)
    return Lost(lost, len(of_role), settings.fleet_ratio)


def marked(members: Mapping[str, Member], now_ms: int, settings: SessionsSettings) -> set[str]:
    """The members without a session whose loss is one of the fleet."""
    found: set[str] = set()
    for role in {m.role for m in members.values()}:
        of_role = peers(members.values(), role, now_ms, settings)
        for member in of_role:
            lost = member.track is not None and member.track.status is Status.SESSION_LOST
            if lost and lost_together(member, of_role, settings).is_fleet_wide:
                found.add(member.member)
    return found


def unread(
    members: Iterable[Member], sources: Iterable[Source], now_ms: int, settings: SessionsSettings
) -> tuple[str, tuple[str, ...]] | None:
    """Why ZooKeeper counts as unreadable, and the observations that say so; null while it can be read.

    It does when the last attempt on the sessions, on a tree or on any member failed; and when nothing has been read of
    the sessions for `validity`.
    """
    validity_ms = millis_of(settings.validity)
    failed = [
        (s.tried_ms, s.tried_id, s.outcome)
        for s in sources
        if s.outcome not in ("", Outcome.OK.value) and (not s.name or now_ms - s.tried_ms <= validity_ms)
    ]
    failed += [
        (m.tried_ms, m.tried_id, m.outcome)
        for m in members
        if m.outcome not in ("", Outcome.OK.value) and now_ms - m.tried_ms <= validity_ms
    ]
    if failed:
        newest = sorted(failed, reverse=True)
        fresh = (id_ for at_ms, id_, _ in newest if id_ and now_ms - at_ms <= validity_ms)
        return newest[0][2], tuple(dict.fromkeys(fresh))
    sessions = next((s for s in sources if s.name == ""), None)
    if sessions is not None and sessions.read_ms != NEVER and now_ms - sessions.read_ms > validity_ms:
        return "silence", (sessions.read_id,)
    return None


@dataclass(slots=True)
class Budget:
    """How many shutdowns and restarts were decided, and may still be.

    At most `limit` are decided within any `window_ms`.
    """

    limit: int
    window_ms: int
    spent: tuple[Spent, ...]

    def count(self, now_ms: int) -> int:
        """How many count now."""
        return sum(1 for s in self.spent if now_ms - s.at_ms < self.window_ms)

    def spend(self, member: str, now_ms: int) -> bool:
        """Take one for a member, if there is one left."""
        if self.count(now_ms) >= self.limit:
            return False
        self.spent = (*self.spent, Spent(now_ms, member))
        return True

    def left_over(self, now_ms: int) -> tuple[Spent, ...]:
        """What is still to be remembered."""
        return tuple(s for s in self.spent if now_ms - s.at_ms < self.window_ms)

    def free_ms(self, now_ms: int) -> int | None:
        """When the next one is free again; null when one is, or never will be."""
        if self.limit == 0 or self.count(now_ms) < self.limit:
            return None
        return sorted(s.at_ms for s in self.spent)[-self.limit] + self.window_ms
