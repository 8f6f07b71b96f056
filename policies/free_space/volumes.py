"""The volumes of one server: the last good reading of each, with its trend, whatever the order of the readings."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from math import inf
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from policies.free_space.gate import Key
from policies.free_space.limits import FreeSpaceSettings, Limit, LimitHit, assess
from policies.free_space.trend import Filling, Trend, estimate_filling, follow_reading
from policies.observations import Observation, Outcome, Reading, sort_observations
from policies.units import MAX_INT64, InstantMs, from_millis, millis_of

NEVER = -1
"""The time of a reading that there was not yet."""


class ReportedVolume(BaseModel):
    """One volume as its server reports it."""

    model_config = ConfigDict(frozen=True, extra="ignore", serialize_by_alias=True)

    log_dir: str = Field(min_length=1, max_length=4096, description="Absolute path on the broker.")
    total_bytes: int = Field(
        default=-1, ge=-1, le=MAX_INT64, description="Size of the file system it is on; -1 unknown."
    )
    usable_bytes: int = Field(default=-1, ge=-1, le=MAX_INT64, description="Free for its server; -1 unknown.")

    @property
    def readable(self) -> bool:
        """Whether its free space is known. An unreadable volume is neither full nor empty."""
        return self.total_bytes >= 0 and self.usable_bytes >= 0


class Freshness(StrEnum):
    """How much the last reading of a volume or server is worth."""

    FRESH = "fresh"
    """Read within `validity`."""
    STALE = "stale"
    """Its server is a member, but the last good reading is older than `validity`."""
    DEPARTED = "departed"
    """Its server left, or no longer reports it."""
    NEVER_READ = "never_read"
    """A volume that was only ever reported unreadable."""


class VolumeState(Struct, array_like=True, frozen=True, gc=False):
    """The last good reading of one volume. `read_ms` is NEVER if it was only ever reported unreadable."""

    log_dir: str
    total_bytes: int
    usable_bytes: int
    read_ms: InstantMs
    missing_ms: InstantMs | None = None
    """When a good reading of its server first lacked it."""
    trend: Trend = Trend()
    """A volume that was never readable has one sample: the time of its first report, with -1."""
    filling: Filling | None = None
    """None if it does not fill, or if its trend is not reliable."""
    interval_ms: int | None = None
    """The time between the last two good readings; None if it is not known."""


def fold_volumes(
    known: tuple[VolumeState, ...], readings: Iterable[ReportedVolume], at_ms: int
) -> tuple[VolumeState, ...]:
    """Return a server's volumes after a good reading of all of them, in order of their folders."""
    before = {v.log_dir: v for v in known}
    # If a dir is named twice, the fuller one counts.
    now = {r.log_dir: r for r in sorted(readings, key=lambda r: (r.readable, -r.usable_bytes))}
    merged = [_fold_volume(before.get(log_dir), now[log_dir], at_ms) for log_dir in now]
    merged += [
        v if v.missing_ms is not None else replace(v, missing_ms=at_ms) for d, v in before.items() if d not in now
    ]
    return tuple(sorted(merged, key=lambda v: v.log_dir))


def seconds_left(volume: VolumeState, now_ms: int) -> float | None:
    """Return how soon a freshly read volume is full; None if it is not known to fill."""
    if volume.filling is None:
        return None
    age_seconds = max(0, now_ms - volume.read_ms) / 1000
    return max(0.0, volume.usable_bytes / volume.filling.bytes_per_second - age_seconds)


def _fold_volume(before: VolumeState | None, reading: ReportedVolume, at_ms: int) -> VolumeState:
    if not reading.readable:
        # An unreadable volume is neither full nor empty: its last reading ages.
        never_read = VolumeState(reading.log_dir, -1, -1, NEVER, trend=Trend(((at_ms, -1),)))
        return replace(before, missing_ms=None) if before else never_read
    free = reading.usable_bytes
    read = VolumeState(reading.log_dir, reading.total_bytes, free, at_ms, trend=Trend(((at_ms, free),)))
    if before is None or before.read_ms == NEVER:
        return read
    after = follow_reading(before.trend, at_ms, free, before.read_ms, before.usable_bytes)
    filling = estimate_filling(after, at_ms, free, believed=before.filling is not None)
    return replace(read, trend=after, filling=filling, interval_ms=at_ms - before.read_ms)


# One server with its volumes.

Name = TypeVar("Name", bound=Hashable)


class ServerState(Struct, Generic[Name], array_like=True, frozen=True, gc=False):
    """One server: `read_*` is its last good reading, `tried_*` the last attempt."""

    name: Name
    seen_ms: InstantMs
    read_ms: InstantMs = NEVER
    read_id: str = ""
    tried_ms: InstantMs = NEVER
    tried_id: str = ""
    outcome: str = ""
    left_ms: InstantMs | None = None
    """When a reading of the members first lacked it."""
    volumes: tuple[VolumeState, ...] = ()


ServerT = TypeVar("ServerT", bound=ServerState[Any])


def fold_server(known: ServerT, seen: Observation, outcome: Outcome, volumes: Iterable[ReportedVolume]) -> ServerT:
    """Return a server after a reading of all its volumes. If it is new and good, `read_id` is that of the reading."""
    at = (seen.at_ms, seen.id)
    if seen.id in (known.read_id, known.tried_id):
        return known
    if at > (known.tried_ms, known.tried_id):
        known = replace(known, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome.value)
    if outcome is not Outcome.OK or at <= (known.read_ms, known.read_id):
        return known
    folded = fold_volumes(known.volumes, volumes, seen.at_ms)
    return replace(known, read_ms=seen.at_ms, read_id=seen.id, volumes=folded)


MOST_TOGETHER = 30_000
"""The most servers and volumes that forged or broken readings can make a cluster's state hold: no fleet has as many."""


def keep_within_bounds(
    servers: Iterable[ServerState[Any]], observations: Sequence[Observation], kind: type[Reading], *fields: str
) -> tuple[list[Observation], dict[str, str]]:
    """Return the observations to fold, in order, and by id the bound for which another one is refused.

    `fields` are those of a reading of that `kind` with its server, and with the server's volumes. A volume that a
    reading lacks stays for a while.
    """
    ordered, of_reading = sort_observations(tuple(observations)), attrgetter(*fields)
    known = {server.name: {volume.log_dir for volume in server.volumes} for server in servers}
    count, refused = len(known) + sum(map(len, known.values())), dict[str, str]()
    for seen in ordered:
        if isinstance(seen.reading, kind):
            server, volumes = of_reading(seen.reading)
            before = known.get(server, set[str]())
            after = before | {volume.log_dir for volume in volumes}
            more = len(after) - len(before) + (server not in known)
            if more and count + more > MOST_TOGETHER:
                refused[seen.id] = f"more than {MOST_TOGETHER} servers and volumes of one cluster"
            else:
                known[server], count = after, count + more
    return [seen for seen in ordered if seen.id not in refused], refused


# The free space of a volume that fills, after the dead time: when a stop could have its effect at the earliest.

_BATCH_SECONDS = 1.0
"""From a reading to the limits that it causes."""
_LONGEST_INTERVAL_SECONDS = 60.0
"""A longer time between two readings is an outage of the collector, and not expected to recur."""


class Projection(NamedTuple):
    """The free space of a volume that fills, at the earliest instant at which a stop could have its effect."""

    usable_bytes: int
    seconds: float
    """The dead time until then."""


def project(state: VolumeState, settings: FreeSpaceSettings) -> Projection | None:
    """Project the free space over the dead time (throttle's rule 15); None without a credible trend or a dead time.

    The dead time is that until the next reading, of a batch, and of the steps in which writers are stopped. It depends
    on the volume's last good reading alone. So a verdict holds until the next one, and silence opens no gate.
    """
    if not settings.anticipate or settings.stop_time is None or state.filling is None:
        return None
    interval_seconds = min((state.interval_ms or 0) / 1000, _LONGEST_INTERVAL_SECONDS)
    seconds = interval_seconds + _BATCH_SECONDS + settings.stop_time.total_seconds()
    return Projection(max(0, int(state.usable_bytes - state.filling.bytes_per_second * seconds)), seconds)


# The verdict on one server and its volumes. Every free-space policy judges them alike.
#
# It is a pure function of the server's state, the settings and the volumes that stop writers. It changes by time alone
# only at instants that are known beforehand.


class VolumeVerdict(Struct, frozen=True, gc=False):
    """One volume at one moment, and the factor that it allows. A struct, because a large cluster has thousands."""

    key: Any
    """(server, volume)"""
    read_id: str
    """The id of its server's last good reading, or else of the last attempt."""
    state: VolumeState
    freshness: Freshness
    departed_ms: int | None
    """When its server left or no longer reported it; None while it is there."""
    full_ms: float | None
    """When it is full at its present rate. None if it does not fill, if its trend is not reliable, or if the last
    reading is not fresh."""
    overdue_ms: int | None
    """If it was never read: from when it counts as the fallback, `validity` after it was first reported."""
    hit: LimitHit
    factor: float
    """At most the fallback for a stale volume; the fallback for one that was never read."""
    tightness: tuple[float, float, tuple[Any, str]]
    """Sorts volumes: the lowest factor first, then the least space that is free; unknown ones last."""
    ahead: Projection | None = None
    """The free space by which it was judged, if that is not what it has."""

    @property
    def read_at(self) -> datetime | None:
        """When its free space was read; None if it never was."""
        return None if self.state.read_ms == NEVER else from_millis(self.state.read_ms)

    @property
    def reason(self) -> str:
        """Why it allows less than 1.0; each policy has a reason of the same name."""
        if self.freshness in (Freshness.STALE, Freshness.NEVER_READ):
            return "stale_volume"
        return "departed_volume" if self.freshness is Freshness.DEPARTED else f"{self.hit.value}_limit"

    def is_within(self, margin: float, *limits: Limit | None) -> bool:
        """Return whether it is not above one of the limits by a margin; False for one that was never read."""
        usable_bytes, total_bytes = (self.ahead or self.state).usable_bytes, self.state.total_bytes
        reached = (limit.reached(usable_bytes, total_bytes, margin=margin) for limit in limits if limit is not None)
        return self.freshness is not Freshness.NEVER_READ and any(reached)

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether it has not been read for `validity`, or never since it was first reported."""
        return self.freshness is Freshness.STALE or (self.overdue_ms is not None and self.overdue_ms <= now_ms)

    def is_silent(self, now_ms: int, settings: FreeSpaceSettings) -> bool:
        """Return whether it does not count (yet), since it has no valid reading.

        Never read is not absent: a disk that failed before the start may be full. Once it departs, there is nothing to
        remember of it.
        """
        if settings.forgets_unread and self.freshness in (Freshness.STALE, Freshness.NEVER_READ):
            return True
        return self.overdue_ms is not None and (self.departed_ms is not None or now_ms < self.overdue_ms)


order_by_tightness: Callable[[VolumeVerdict], tuple[Any, ...]] = attrgetter("tightness")


class ForgottenVolume(Struct, Generic[Key], array_like=True, frozen=True, order=True):
    """A departed volume that limited its cluster, and when it was forgotten."""

    key: Key
    forgotten_ms: InstantMs
    was_taken_out: bool = False
    """Whether its server is there, and lists it no longer."""


def name_volume(server: str, key: tuple[Any, str]) -> str:
    """Name a volume in a sentence: ``broker 3 /data/a``; without its path, if that is not known, ``broker 3``."""
    return f"{server} {key[0]} {key[1]}".rstrip()


class ServerVerdict(Struct, Generic[ServerT], frozen=True, gc=False):
    """One server at one moment, and the verdicts on its volumes."""

    state: ServerT
    freshness: Freshness
    is_unread: bool
    """Whether it has been a member for `validity` without a good reading."""
    volumes: tuple[VolumeVerdict, ...]
    counting: tuple[VolumeVerdict, ...]
    """Those that count, the tightest first."""
    ended: tuple[ForgottenVolume[Any], ...]
    kept: ServerT | None
    """The server's state without volumes that are forgotten; None if it left, and nothing of it counts."""
    soonest_full: VolumeVerdict | None
    next_ms: int | None
    """When time alone changes this verdict."""
    judged_ms: int
    stopped_by: Collection[tuple[Any, str]]

    def holds(self, state: ServerT, now_ms: int, stopped_by: Collection[tuple[Any, str]]) -> bool:
        """Return whether judging the server again with these inputs, and equal settings, would give the same verdict.

        Structs compare by identity first; a state that was decoded again is equal, but not the same.
        """
        is_in_time = self.judged_ms <= now_ms and (self.next_ms is None or now_ms < self.next_ms)
        return is_in_time and self.state == state and self.stopped_by == stopped_by

    @property
    def tightest(self) -> VolumeVerdict | None:
        """The volume with the lowest factor; None if none counts."""
        return self.counting[0] if self.counting else None


def judge_server(
    state: ServerT,
    settings: FreeSpaceSettings,
    now_ms: int,
    stopped_by: Collection[tuple[Any, str]] = (),
    *,
    departs: bool = False,
    failed: Collection[str] = (),
    more_due_ms: Sequence[int] = (),
) -> ServerVerdict[ServerT]:
    """Judge one server. Silence never opens a gate that a reading closed.

    Args:
        stopped_by: volumes that keep writers stopped. Within the recovery margin they limit the cluster, whatever their
            own factor is.
        departs: whether a server that left goes on counting for a while, and one that was never read counts as a
            volume without a name: its volumes are not known.
        failed: the volumes that it reports as failed: they fill no more, and their last free space counts.
        more_due_ms: when time alone changes something else about the server.
    """
    validity_ms, left_ms = millis_of(settings.validity), state.left_ms if departs else None
    is_unknown = departs and state.read_ms == NEVER and left_ms is None
    states = (*state.volumes, VolumeState("", -1, -1, NEVER)) if is_unknown else state.volumes
    volumes = tuple(_judge_volume(state, v, left_ms, now_ms, settings, has_failed=v.log_dir in failed) for v in states)
    kept = {v.key for v in volumes if v.departed_ms is None}
    counting: list[VolumeVerdict] = []
    ended: list[ForgottenVolume[Any]] = []
    for volume in volumes:
        if volume.is_silent(now_ms, settings):
            continue
        if volume.departed_ms is None:
            counting.append(volume)
        elif volume.factor < 1.0 or (
            volume.key in stopped_by and volume.is_within(settings.recovery_margin, settings.hard)
        ):
            if now_ms < volume.departed_ms + millis_of(settings.departed_hold):
                counting.append(volume)
            else:
                ended.append(ForgottenVolume(volume.key, now_ms, volume.state.missing_ms is not None))
    counting.sort(key=order_by_tightness)
    kept.update(v.key for v in counting)
    freshness = _judge_freshness(state.read_ms, left_ms, now_ms, validity_ms)
    is_silent = freshness in (Freshness.STALE, Freshness.NEVER_READ)
    after = tuple(v for v in state.volumes if (state.name, v.log_dir) in kept)
    due_ms = (state.read_ms + validity_ms, state.seen_ms + validity_ms, *more_due_ms)
    return ServerVerdict(
        state=state,
        freshness=freshness,
        is_unread=is_silent and max(state.read_ms, state.seen_ms) + validity_ms <= now_ms,
        volumes=volumes,
        counting=tuple(counting),
        ended=tuple(ended),
        kept=None
        if left_ms is not None and not after
        else state
        if len(after) == len(state.volumes)
        else replace(state, volumes=after),
        soonest_full=min((v for v in counting if v.full_ms is not None), key=order_by_time, default=None),
        next_ms=min(
            (ms for ms in (*due_ms, *_list_expiries(volumes, counting, settings)) if ms > now_ms), default=None
        ),
        judged_ms=now_ms,
        stopped_by=stopped_by,
    )


def order_by_time(volume: VolumeVerdict) -> tuple[float, tuple[Any, str]]:
    """Sort volumes that fill: the one that is full first."""
    return (volume.full_ms or 0.0, volume.key)


def _judge_freshness(read_ms: int, departed_ms: int | None, now_ms: int, validity_ms: int) -> Freshness:
    if read_ms == NEVER:
        return Freshness.NEVER_READ
    if departed_ms is not None:
        return Freshness.DEPARTED
    return Freshness.FRESH if now_ms - read_ms < validity_ms else Freshness.STALE


def _judge_volume(
    server: ServerState[Any],
    state: VolumeState,
    left_ms: int | None,
    now_ms: int,
    settings: FreeSpaceSettings,
    *,
    has_failed: bool,
) -> VolumeVerdict:
    """Judge a volume by its free space. One that left while it was stale goes on counting as a stale one."""
    validity_ms, key = millis_of(settings.validity), (server.name, state.log_dir)
    read_id = server.read_id or server.tried_id
    departed_ms = min((ms for ms in (left_ms, state.missing_ms) if ms is not None), default=None)
    freshness = _judge_freshness(state.read_ms, departed_ms, now_ms, validity_ms)
    if freshness is Freshness.NEVER_READ:
        first_ms = state.trend.samples[0][0] if state.trend.samples else NEVER
        overdue_ms, tightness = max(first_ms, server.seen_ms) + validity_ms, (settings.fallback, inf, key)
        return VolumeVerdict(
            key, read_id, state, freshness, departed_ms, None, overdue_ms, LimitHit.NONE, settings.fallback, tightness
        )
    ahead = project(state, settings)
    usable_bytes = ahead.usable_bytes if ahead else state.usable_bytes
    hit, factor = assess(usable_bytes, state.total_bytes, settings.hard, settings.soft)
    if freshness is Freshness.STALE or (departed_ms is not None and departed_ms >= state.read_ms + validity_ms):
        factor = min(settings.fallback, factor)
    full_ms = None
    if freshness is Freshness.FRESH and state.filling is not None and not has_failed:
        full_ms = state.read_ms + 1000 * state.usable_bytes / state.filling.bytes_per_second
    free = state.usable_bytes / max(state.total_bytes, 1) if settings.ranks_by_share else state.usable_bytes
    return VolumeVerdict(
        key, read_id, state, freshness, departed_ms, full_ms, None, hit, factor, (factor, free, key), ahead
    )


def _list_expiries(
    volumes: Iterable[VolumeVerdict], counting: Iterable[VolumeVerdict], settings: FreeSpaceSettings
) -> Iterator[int]:
    """List each instant at which time alone changes the verdict on a volume; some may have passed."""
    validity_ms, soon_ms = millis_of(settings.validity), millis_of(settings.time_to_full_alert)
    yield from (volume.overdue_ms for volume in volumes if volume.overdue_ms is not None)
    for volume in counting:
        if volume.departed_ms is not None:
            yield volume.departed_ms + millis_of(settings.departed_hold)
        elif volume.freshness is Freshness.FRESH:
            yield volume.state.read_ms + validity_ms
        if volume.full_ms is not None:
            yield int(volume.full_ms) - soon_ms + 1


def update_forgotten(
    before: Sequence[ForgottenVolume[Key]],
    ended: Sequence[ForgottenVolume[Key]],
    servers: Mapping[Any, ServerVerdict[Any]],
    settings: FreeSpaceSettings,
    now_ms: int,
) -> tuple[ForgottenVolume[Key], ...]:
    """Return the volumes to be named as forgotten: for as long after their end as they were held before it."""
    if not before and not ended:
        return ()
    hold_ms = millis_of(settings.departed_hold)
    there = {volume.key for each in before if each.key[0] in servers for volume in servers[each.key[0]].volumes}
    kept = (each for each in before if now_ms < each.forgotten_ms + hold_ms and each.key not in there)
    return tuple(sorted((*kept, *(ended if hold_ms else ()))))
