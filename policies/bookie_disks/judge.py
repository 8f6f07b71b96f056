"""Verdicts of the bookie-disks policy: on each bookie, and on each placement group. All are pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from msgspec.structs import asdict

from policies.bookie_disks.decisions import BookieThrottleReason
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, BookieDiskState, DirKey, GroupState, PlacementGroup
from policies.free_space.gate import FactorVerdict, Gate, GateMove, first_move, move
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import NEVER, Freshness, ServerVerdict, judge_server, seconds_left
from policies.units import millis_of

# The verdict on each bookie: the factor that it allows, and its rank among others.


class BookieVerdict(ServerVerdict[BookieDiskState], frozen=True, gc=False):
    """One bookie at one moment."""

    factor: float
    """The factor of its tightest dir; 0.0 if it is read-only."""
    is_known: bool
    """Whether it has ever been read, so that it ranks among the others."""
    is_clear: bool
    """Whether it takes data, and each of its dirs is above the hard limit by the recovery margin."""
    is_above_soft: bool
    """Whether it takes data, and each of its dirs is above both limits."""
    has_room: bool
    """Whether it takes data, and each of its dirs is above both limits by the recovery margin."""
    rank: tuple[float, float, float, str]
    """Sorts bookies: the best first."""

    @property
    def name(self) -> str:
        """The bookie's id."""
        return self.state.name


def judge_bookies(
    cluster: BookieDisksCluster, settings: BookieDisksSettings, now_ms: int, stopped_by: Collection[DirKey] = ()
) -> dict[str, BookieVerdict]:
    """Judge each bookie; a departed dir counts for `departed_hold`, too, if it keeps a group stopped."""
    return {state.name: _judge(state, settings, now_ms, stopped_by) for state in cluster.bookies}


def _judge(
    state: BookieDiskState, settings: BookieDisksSettings, now_ms: int, stopped_by: Collection[DirKey]
) -> BookieVerdict:
    bookie = judge_server(state, settings, now_ms, stopped_by)
    tightest, soonest, dirs = bookie.tightest, bookie.soonest_full, bookie.counting
    factor = 0.0 if state.is_read_only or tightest is None else tightest.factor
    # A dir that is gone must not show that there is room.
    present = (d for d in dirs if d.departed_ms is None or d.factor < 1.0)
    has_sizes = any(d.freshness is not Freshness.NEVER_READ for d in present)
    takes_data, margin = has_sizes and not state.is_read_only, settings.recovery_margin
    # By the factor, then by the time until it is full, then by the share that is free.
    full_ms = inf if soonest is None or soonest.full_ms is None else soonest.full_ms
    return BookieVerdict(
        **asdict(bookie),
        factor=factor,
        is_known=has_sizes or (state.is_read_only and bookie.freshness is not Freshness.NEVER_READ),
        is_clear=takes_data and not any(d.is_within(margin, settings.hard) for d in dirs),
        is_above_soft=takes_data and all(d.hit is LimitHit.NONE for d in dirs),
        has_room=takes_data and not any(d.is_within(margin, settings.soft, settings.hard) for d in dirs),
        rank=(-factor, -full_ms, -min(1.0, tightest.tightness[1] if tightest else 0.0), state.name),
    )


# The verdict on each placement group: which bookie decides its factor, and where its gate moves.
#
# A ledger needs as many bookies as its ensemble has, E of them. One full bookie harms nobody, because brokers choose
# others; E bookies that take data suffice. So the E-th best bookie decides.


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The verdict on one placement group, before it is put into words."""

    group: PlacementGroup
    known: Sequence[BookieVerdict]
    """The bookies on which its namespaces may place data, and that were read; the best first."""
    unread: Sequence[BookieVerdict]
    """Those that were never read, in no order."""
    raw_factor: float
    raw_reason: BookieThrottleReason
    decisive: BookieVerdict | None
    """The bookie that decides; None if too few are known."""
    move: GateMove[DirKey]
    reason: BookieThrottleReason
    """Why the factor in force is what it is; holds included."""
    now_ms: int
    settings: BookieDisksSettings
    before: GroupState | None
    """None before the first decision."""

    @property
    def limiting(self) -> DirKey | None:
        """The dir for which a bookie limits the group, or keeps it stopped; None if none limits."""
        is_limited = self.raw_factor < 1.0 or self.reason is BookieThrottleReason.RECOVERY_MARGIN
        return find_key(self.decisive) if self.decisive is not None and is_limited else None

    @property
    def seconds_to_full(self) -> float | None:
        """How soon the bookie that decides is full; None if it is not known to fill."""
        if self.decisive is None or self.decisive.state.is_read_only or self.decisive.soonest_full is None:
            return None
        return seconds_left(self.decisive.soonest_full.state, self.now_ms)

    @property
    def writable_count(self) -> int:
        """Number of bookies that take data and are above both limits."""
        return sum(bookie.is_above_soft for bookie in self.known)


def find_key(bookie: BookieVerdict) -> DirKey:
    """Return the dir for which a bookie has its factor."""
    return bookie.tightest.key if bookie.tightest is not None else (bookie.name, "")


def judge_group(
    group: PlacementGroup,
    bookies: Mapping[str, BookieVerdict],
    cluster: BookieDisksCluster,
    settings: BookieDisksSettings,
    now_ms: int,
    before: GroupState | None,
) -> GroupVerdict:
    """Judge one group; before the first decision about it there is no group before."""
    known, unread = _rank_bookies(group, bookies)
    decisive = _find_decisive(known, group.ensemble, before.limiting if before else None)
    is_early = now_ms < (cluster.begun_ms or 0) + millis_of(settings.validity)
    if decisive is None and cluster.ever_read and settings.limited:
        is_premature = is_early and before is not None and _lacks_bookies(before)
        known_before = None if is_premature else before
        factor, reason, decisive = _judge_unread(known, unread, group.ensemble, settings, known_before)
    else:
        factor, reason = _judge_raw(known, decisive, cluster, settings, is_early=is_early)
    stopping = {find_key(decisive)} if decisive is not None and factor == 0.0 else set[DirKey]()
    if before is None and reason is BookieThrottleReason.INITIAL:
        moved = GateMove(Gate[DirKey](factor), FactorVerdict.INITIAL)
    elif before is None or (reason is not BookieThrottleReason.TOO_FEW_BOOKIES and _lacks_bookies(before)):
        # There is nothing to recover from.
        moved = first_move(before.gate if before else Gate(settings.fallback), factor, stopping, now_ms)
    else:
        is_clear = factor > 0.0 and sum(bookie.is_clear for bookie in known) >= group.ensemble
        recovered = set(before.gate.stopped_by) if is_clear else set[DirKey]()
        moved = move(before.gate, factor, stopping, recovered, now_ms, settings)
    held = BookieThrottleReason(moved.hold.value) if moved.hold else reason
    return GroupVerdict(group, known, unread, factor, reason, decisive, moved, held, now_ms, settings, before)


def _rank_bookies(
    group: PlacementGroup, bookies: Mapping[str, BookieVerdict]
) -> tuple[list[BookieVerdict], list[BookieVerdict]]:
    """Return the known bookies of a group, the best first, and the unread; secondary ones if too few are known."""
    chosen = list(bookies.values())
    if group.primary is not None:
        chosen = [bookies[name] for name in group.primary if name in bookies]
        if sum(bookie.is_known for bookie in chosen) < group.ensemble:
            chosen += [bookies[name] for name in group.secondary if name in bookies]
    known = sorted((bookie for bookie in chosen if bookie.is_known), key=lambda bookie: bookie.rank)
    return known, [bookie for bookie in chosen if not bookie.is_known]


def _find_decisive(known: Sequence[BookieVerdict], ensemble: int, named: DirKey | None) -> BookieVerdict | None:
    """Find the E-th best bookie.

    Among bookies with equal factors the one of the decision in force wins, so that two full ones do not alternate.
    """
    if len(known) < ensemble:
        return None
    decisive = known[ensemble - 1]
    if named is None or decisive.factor == 1.0:
        return decisive
    return next((each for each in known if each.factor == decisive.factor and each.name == named[0]), decisive)


def _judge_unread(
    known: Sequence[BookieVerdict],
    unread: Sequence[BookieVerdict],
    ensemble: int,
    settings: BookieDisksSettings,
    before: GroupState | None,
) -> tuple[float, BookieThrottleReason, BookieVerdict | None]:
    """Judge a group of which fewer bookies are known than a ledger needs, so that it needs them all.

    Never read is not absent: an unread bookie counts as the fallback. But silence opens no gate, so the factor in force
    is not exceeded, and a stop for too few bookies ends only when enough are known. At the start it is passed over,
    because one bookie may be read before the registrations and the other bookies.
    """
    awaited = [bookie for bookie in unread if not bookie.state.is_read_only]
    last_reason = before.reason if before else BookieThrottleReason.INITIAL.value
    if len(known) + len(awaited) < ensemble or last_reason == BookieThrottleReason.TOO_FEW_BOOKIES.value:
        return 0.0, BookieThrottleReason.TOO_FEW_BOOKIES, None
    is_starting = last_reason == BookieThrottleReason.INITIAL.value and not all(each.is_unread for each in awaited)
    untried_count = sum(bookie.state.tried_ms == NEVER for bookie in awaited)
    if is_starting and len(known) + untried_count >= ensemble:
        return settings.fallback, BookieThrottleReason.INITIAL, None
    greatest_factor = min(settings.fallback, before.gate.factor if before else 1.0)
    worst = known[-1] if known else None
    if worst is not None and worst.factor <= greatest_factor and worst.factor < 1.0:
        return worst.factor, _find_reason(worst), worst
    reason = BookieThrottleReason.INITIAL if is_starting else BookieThrottleReason.STALE_VOLUME
    return greatest_factor, reason, None


def _lacks_bookies(group: GroupState) -> bool:
    """Whether too few known bookies stopped a group, and no disk."""
    return group.reason == BookieThrottleReason.TOO_FEW_BOOKIES.value and not group.gate.stopped_by


def _judge_raw(
    known: Sequence[BookieVerdict],
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
    is_any_fresh = any(bookie.freshness is Freshness.FRESH for bookie in known)
    return 1.0, BookieThrottleReason.ABOVE_LIMITS if is_any_fresh else BookieThrottleReason.STALE_VOLUME


def _find_reason(decisive: BookieVerdict) -> BookieThrottleReason:
    if decisive.tightest is None or decisive.state.is_read_only:
        return BookieThrottleReason.READ_ONLY
    return BookieThrottleReason(decisive.tightest.reason)
