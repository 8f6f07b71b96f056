"""The verdict on each placement group: which bookie decides its factor, and where its gate moves.

A ledger needs as many bookies as its ensemble has, E of them. One full bookie harms nobody, because brokers choose
others; E bookies that take data suffice. So the E-th best bookie decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.facts import PlacementGroup
from policies.bookie_disks.judge.bookies import BookieVerdict
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, DirKey, GroupState
from policies.free_space.gate import FactorVerdict, Gate, GateMove, first_move, move
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import NEVER, Freshness, seconds_left
from policies.units import millis_of, to_millis


@dataclass(frozen=True, slots=True)
class RankedBookies:
    """The bookies on which a group's namespaces may place data."""

    known: Sequence[BookieVerdict]
    """Those that were read, the best first."""
    unread: Sequence[BookieVerdict]
    """Those that were never read, in no order."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The verdict on one placement group, before it is put into words."""

    group: PlacementGroup
    ranked: RankedBookies
    raw_factor: float
    raw_reason: BookieThrottleReason
    decisive: BookieVerdict | None
    """The bookie that decides; None if too few are known."""
    move: GateMove[DirKey]
    reason: BookieThrottleReason
    """Why the factor in force is what it is; holds included."""
    now: datetime
    settings: BookieDisksSettings

    @property
    def limits(self) -> bool:
        """Whether a bookie limits the group, or keeps it stopped."""
        return self.decisive is not None and (self.raw_factor < 1.0 or self.reason in _HOLDING)

    @property
    def limiting(self) -> DirKey | None:
        """The dir that decided; None if none limits."""
        return find_key(self.decisive) if self.decisive is not None and self.limits else None

    @property
    def seconds_to_full(self) -> float | None:
        """How soon the bookie that decides is full; None if it is not known to fill."""
        is_filling = self.decisive is not None and not self.decisive.facts.state.is_read_only
        full = self.decisive.soonest_full if is_filling and self.decisive is not None else None
        return None if full is None else seconds_left(full.state, to_millis(self.now))

    @property
    def writable_count(self) -> int:
        """Number of bookies that take data and are above both limits."""
        return sum(bookie.is_above_soft for bookie in self.ranked.known)

    @property
    def awaited_count(self) -> int:
        """Number of its bookies that take data, and whose first reading may still come."""
        return sum(bookie.facts.is_awaited for bookie in self.ranked.unread)


_HOLDING = frozenset({BookieThrottleReason.RECOVERY_MARGIN})


def find_key(bookie: BookieVerdict) -> DirKey:
    """Return the dir for which a bookie has its factor."""
    return bookie.tightest.key if bookie.tightest is not None else (bookie.name, "")


def judge_group(
    group: PlacementGroup,
    bookies: Mapping[str, BookieVerdict],
    cluster: BookieDisksCluster,
    settings: BookieDisksSettings,
    now: datetime,
    before: GroupState | None,
) -> GroupVerdict:
    """Judge one group.

    Args:
        before: the group's gate and its last decision; None before the first.
    """
    ranked = rank_bookies(group, bookies)
    decisive = _find_decisive(ranked, group.ensemble, before.last.limiting if before else None)
    is_early = to_millis(now) < (cluster.begun_ms or 0) + millis_of(settings.validity)
    if decisive is None and cluster.ever_read and settings.limited:
        is_premature = is_early and before is not None and _lacks_bookies(before)
        known_before = None if is_premature else before
        factor, reason, decisive = _judge_unread(ranked, group.ensemble, settings, known_before)
    else:
        factor, reason = _judge_raw(ranked, decisive, cluster, settings, is_early=is_early)
    moved = _move(ranked, decisive, group.ensemble, (factor, reason), settings, now, before)
    held = BookieThrottleReason(moved.hold.value) if moved.hold else reason
    return GroupVerdict(group, ranked, factor, reason, decisive, moved, held, now, settings)


def rank_bookies(group: PlacementGroup, bookies: Mapping[str, BookieVerdict]) -> RankedBookies:
    """Return the bookies of a group, the best first; secondary ones if too few primary ones are known."""
    if group.primary is None:
        chosen = list(bookies.values())
    else:
        chosen = [bookies[name] for name in group.primary if name in bookies]
        if sum(bookie.is_known for bookie in chosen) < group.ensemble:
            chosen += [bookies[name] for name in group.secondary if name in bookies]
    known = sorted((bookie for bookie in chosen if bookie.is_known), key=lambda bookie: bookie.rank)
    return RankedBookies(known, [bookie for bookie in chosen if not bookie.is_known])


def _find_decisive(ranked: RankedBookies, ensemble: int, named: DirKey | None) -> BookieVerdict | None:
    """Find the E-th best bookie.

    Among bookies with equal factors the one of the decision in force wins, so that two full ones do not alternate.
    """
    if len(ranked.known) < ensemble:
        return None
    decisive = ranked.known[ensemble - 1]
    if named is None or decisive.factor == 1.0:
        return decisive
    alike = (each for each in ranked.known if each.factor == decisive.factor and each.name == named[0])
    return next(alike, decisive)


def _judge_unread(
    ranked: RankedBookies, ensemble: int, settings: BookieDisksSettings, before: GroupState | None
) -> tuple[float, BookieThrottleReason, BookieVerdict | None]:
    """Judge a group of which fewer bookies are known than a ledger needs, so that it needs them all.

    Never read is not absent: an unread bookie counts as the fallback. But silence opens no gate, so the factor in force
    is not exceeded, and a stop for too few bookies ends only when enough are known.

    Args:
        before: None before the first decision, and at the start after a stop for too few bookies, because one bookie
            may be read before the registrations and the other bookies.
    """
    unread = [bookie.facts for bookie in ranked.unread if not bookie.facts.state.is_read_only]
    last = before.last.reason if before else BookieThrottleReason.INITIAL.value
    if len(ranked.known) + len(unread) < ensemble or last == BookieThrottleReason.TOO_FEW_BOOKIES.value:
        return 0.0, BookieThrottleReason.TOO_FEW_BOOKIES, None
    is_start = last == BookieThrottleReason.INITIAL.value and not all(facts.is_unread for facts in unread)
    untried_count = sum(facts.state.tried_ms == NEVER for facts in unread)
    if is_start and len(ranked.known) + untried_count >= ensemble:
        return settings.fallback, BookieThrottleReason.INITIAL, None
    most = min(settings.fallback, before.gate.factor if before else 1.0)
    worst = ranked.known[-1] if ranked.known else None
    if worst is not None and worst.factor <= most and worst.factor < 1.0:
        return worst.factor, _find_reason(worst), worst
    return most, BookieThrottleReason.INITIAL if is_start else BookieThrottleReason.STALE_VOLUME, None


def _lacks_bookies(group: GroupState) -> bool:
    """Whether too few known bookies stopped a group, and no disk."""
    return group.last.reason == BookieThrottleReason.TOO_FEW_BOOKIES.value and not group.gate.stopped_by


def _judge_raw(
    ranked: RankedBookies,
    decisive: BookieVerdict | None,
    cluster: BookieDisksCluster,
    settings: BookieDisksSettings,
    *,
    is_early: bool,
) -> tuple[float, BookieThrottleReason]:
    if not settings.limited:
        return 1.0, BookieThrottleReason.UNLIMITED
    if not cluster.ever_read:
        return settings.fallback, BookieThrottleReason.INITIAL if is_early else BookieThrottleReason.NO_DATA
    if decisive is None:
        return 0.0, BookieThrottleReason.TOO_FEW_BOOKIES
    if decisive.factor < 1.0:
        return decisive.factor, _find_reason(decisive)
    is_any_fresh = any(bookie.facts.freshness is Freshness.FRESH for bookie in ranked.known)
    return 1.0, BookieThrottleReason.ABOVE_LIMITS if is_any_fresh else BookieThrottleReason.STALE_VOLUME


def _find_reason(decisive: BookieVerdict) -> BookieThrottleReason:
    tightest = decisive.tightest
    if tightest is None or decisive.facts.state.is_read_only:
        return BookieThrottleReason.READ_ONLY
    if tightest.freshness in (Freshness.STALE, Freshness.NEVER_READ):
        return BookieThrottleReason.STALE_VOLUME
    if tightest.freshness is Freshness.DEPARTED:
        return BookieThrottleReason.DEPARTED_VOLUME
    is_hard = tightest.hit is LimitHit.HARD
    return BookieThrottleReason.HARD_LIMIT if is_hard else BookieThrottleReason.SOFT_LIMIT


def _move(
    ranked: RankedBookies,
    decisive: BookieVerdict | None,
    ensemble: int,
    raw: tuple[float, BookieThrottleReason],
    settings: BookieDisksSettings,
    now: datetime,
    before: GroupState | None,
) -> GateMove[DirKey]:
    factor, reason = raw
    stopping = {find_key(decisive)} if decisive is not None and factor == 0.0 else set[DirKey]()
    if before is None:
        if reason is BookieThrottleReason.INITIAL:
            return GateMove(Gate(factor), FactorVerdict.INITIAL)
        return first_move(Gate(settings.fallback), factor, stopping, now)
    if reason is not BookieThrottleReason.TOO_FEW_BOOKIES and _lacks_bookies(before):
        # There is nothing to recover from.
        return first_move(before.gate, factor, stopping, now)
    is_clear = sum(bookie.is_clear for bookie in ranked.known) >= ensemble
    recovered = set(before.gate.stopped_by) if is_clear else set[DirKey]()
    return move(before.gate, factor, stopping, recovered, now, settings)
