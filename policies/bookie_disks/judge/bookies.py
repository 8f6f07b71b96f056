"""The verdict on each bookie: the factor that it allows, and its rank among others.

A bookie's verdict is a pure function of its state, the settings and the dirs that stop a group. It changes by time
alone only at instants that are known beforehand. So a step takes over each verdict of the step before whose inputs are
the same and whose next such instant has not come; the result is the same as without it.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Raw, Struct
from msgspec.msgpack import encode
from msgspec.structs import replace

from policies.bookie_disks.facts import BookieFacts, facts
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, BookieDiskState, DirKey, ForgottenDir
from policies.free_space.limits import Limit, LimitHit
from policies.free_space.verdicts import SpaceVerdict, find_expiries, hold_ends_ms, judge_volume
from policies.free_space.volumes import Freshness
from policies.units import millis_of

_NEVER_FULL_MS = float("inf")
_NONE: frozenset[DirKey] = frozenset()


class DirVerdict(SpaceVerdict[DirKey], frozen=True, gc=False):
    """A dir that counts, and the factor that it allows."""

    @property
    def tightness(self) -> tuple[float, float, DirKey]:
        """Sorts dirs: the lowest factor first, then the least share that is free; unknown ones last."""
        is_unknown = self.freshness is Freshness.NEVER_READ
        return (self.factor, 1.0 if is_unknown else self.state.usable_bytes / max(self.state.total_bytes, 1), self.key)

    def is_unreadable(self, bookie: BookieFacts) -> bool:
        """Return whether its bookie answers, but has not read this dir for `validity`."""
        is_unread = self.freshness in (Freshness.STALE, Freshness.NEVER_READ)
        return is_unread and bookie.freshness is Freshness.FRESH


class BookieVerdict(Struct, frozen=True, gc=False):
    """One bookie at one moment."""

    facts: BookieFacts
    stopped_by: frozenset[DirKey]
    judged_ms: int
    dirs: tuple[DirVerdict, ...]
    """The dirs that count, in order."""
    ended: tuple[DirKey, ...]
    """Dirs that left while they limited it, and no longer count from now on."""
    kept: BookieDiskState
    """The bookie's state without dirs that are forgotten."""
    encoded: Raw
    tightest: DirVerdict | None
    """The dir with the lowest factor; None if none counts."""
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
    is_calm: bool
    """Whether no alert about it or its dirs can fire or go on firing."""
    soonest_full: DirVerdict | None
    rank: tuple[float, float, float, str]
    """Sorts bookies: the best first."""
    next_ms: int | None
    """When time alone changes this verdict."""

    @property
    def name(self) -> str:
        """The bookie's id."""
        return self.facts.state.bookie

    def holds(self, state: BookieDiskState, now_ms: int, stopped_by: frozenset[DirKey]) -> bool:
        """Return whether judging the bookie again with these inputs would give the same verdict."""
        if now_ms < self.judged_ms or (self.next_ms is not None and self.next_ms <= now_ms):
            return False
        # Structs compare by identity first; a state that was decoded again is equal, but not the same.
        return self.facts.state == state and self.stopped_by == stopped_by


def judge_bookies(
    cluster: BookieDisksCluster,
    settings: BookieDisksSettings,
    now_ms: int,
    stopped_by: Iterable[DirKey],
    before: Mapping[str, BookieVerdict],
) -> dict[str, BookieVerdict]:
    """Judge each bookie of a cluster.

    Args:
        stopped_by: the dirs that keep a group stopped. A departed one among them counts for `departed_hold`.
        before: verdicts of an earlier step with the same settings; those that still hold are not computed again.
    """
    stopping_dirs: dict[str, frozenset[DirKey]] = {}
    for key in stopped_by:
        stopping_dirs[key[0]] = stopping_dirs.get(key[0], _NONE) | {key}
    verdicts: dict[str, BookieVerdict] = {}
    for state in cluster.bookies:
        stopping = stopping_dirs.get(state.bookie, _NONE)
        verdict = before.get(state.bookie)
        if verdict is None or not verdict.holds(state, now_ms, stopping):
            verdict = _judge(state, settings, now_ms, stopping)
        verdicts[state.bookie] = verdict
    return verdicts


def update_forgotten(
    before: Iterable[ForgottenDir], bookies: Mapping[str, BookieVerdict], settings: BookieDisksSettings, now_ms: int
) -> tuple[ForgottenDir, ...]:
    """Return the dirs to be named as forgotten: for as long after their end as they were held before it."""
    hold_ms, ended = millis_of(settings.departed_hold), {key for each in bookies.values() for key in each.ended}
    there = {each.key for dir_ in before if dir_.key[0] in bookies for each in bookies[dir_.key[0]].facts.dirs}
    kept = (dir_ for dir_ in before if now_ms < dir_.at_ms + hold_ms and dir_.key not in there)
    return tuple(sorted((*kept, *(ForgottenDir(key, now_ms) for key in ended if hold_ms))))


def _judge(
    state: BookieDiskState, settings: BookieDisksSettings, now_ms: int, stopped_by: frozenset[DirKey]
) -> BookieVerdict:
    bookie = facts(state, now_ms, millis_of(settings.validity))
    judged = (judge_volume(DirVerdict, each, now_ms, settings) for each in bookie.dirs)
    # A departed dir counts for a while, if it limited its bookie.
    dirs = [d for d in judged if d is not None and (d.departed_ms is None or d.factor < 1.0 or d.key in stopped_by)]
    ended = {d.key for d in dirs if d.departed_ms is not None and now_ms >= hold_ends_ms(d.departed_ms, settings)}
    dirs = [d for d in dirs if d.key not in ended]
    forgotten = {d.key for d in bookie.dirs if d.departed_ms is not None} - {d.key for d in dirs}
    if forgotten:
        state = replace(state, dirs=tuple(d for d in state.dirs if (state.bookie, d.log_dir) not in forgotten))
    tightest = min(dirs, key=lambda d: d.tightness, default=None)
    soonest = min((d for d in dirs if d.full_ms is not None), key=lambda d: (d.full_ms or 0.0, d.key), default=None)
    factor = 0.0 if state.is_read_only or tightest is None else tightest.factor
    # A dir that is gone must not show that there is room.
    present = (d for d in dirs if d.departed_ms is None or d.factor < 1.0)
    has_sizes = any(d.freshness is not Freshness.NEVER_READ for d in present)
    takes_data = has_sizes and not state.is_read_only
    return BookieVerdict(
        facts=bookie,
        stopped_by=stopped_by,
        judged_ms=now_ms,
        dirs=tuple(dirs),
        ended=tuple(sorted(ended)),
        kept=state,
        encoded=Raw(encode(state)),
        tightest=tightest,
        factor=factor,
        is_known=has_sizes or (state.is_read_only and bookie.freshness is not Freshness.NEVER_READ),
        is_clear=takes_data and not any(d.is_within_margin(settings) for d in dirs),
        is_above_soft=takes_data and all(d.hit is LimitHit.NONE for d in dirs),
        has_room=takes_data and not any(_is_within_margin(d, d.judged_bytes, settings) for d in dirs),
        is_calm=takes_data
        and state.has_thresholds
        and not bookie.is_unread
        and soonest is None
        and not any(d.is_unreadable(bookie) for d in dirs)
        and not any(_is_noted(d, state, settings) for d in dirs),
        soonest_full=soonest,
        # By the factor, then by the time until it is full, then by the share that is free.
        rank=(
            -factor,
            -(soonest.full_ms if soonest and soonest.full_ms is not None else _NEVER_FULL_MS),
            -(tightest.tightness[1] if tightest else 0.0),
            state.bookie,
        ),
        next_ms=min((ms for ms in _list_expiries(bookie, dirs, settings) if ms > now_ms), default=None),
    )


def _is_noted(verdict: DirVerdict, state: BookieDiskState, settings: BookieDisksSettings) -> bool:
    """Whether a dir is near a limit, or beyond a threshold of its bookie."""
    suspension = state.thresholds.suspension if state.thresholds is not None else None
    return _is_within_margin(verdict, verdict.state.usable_bytes, settings, suspension)


def _is_within_margin(
    verdict: DirVerdict, usable_bytes: int, settings: BookieDisksSettings, suspension: Limit | None = None
) -> bool:
    """Whether a dir is not above all limits by the recovery margin; False for one that was never read."""
    limits = (limit for limit in (settings.soft, settings.hard, suspension) if limit is not None)
    total_bytes, margin = verdict.state.total_bytes, settings.recovery_margin
    is_read = verdict.freshness is not Freshness.NEVER_READ
    return is_read and any(limit.reached(usable_bytes, total_bytes, margin=margin) for limit in limits)


def _list_expiries(bookie: BookieFacts, dirs: list[DirVerdict], settings: BookieDisksSettings) -> Iterator[int]:
    """List each instant at which time alone changes the verdict on a bookie; some may have passed."""
    validity_ms = millis_of(settings.validity)
    yield bookie.state.read_ms + validity_ms
    yield bookie.state.seen_ms + validity_ms
    yield from find_expiries(bookie.dirs, dirs, settings)
