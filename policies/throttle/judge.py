"""Verdicts of the throttle policy: `volumes` on each volume, `brokers` on each broker, `cluster` on the whole.

All of them are pure: nothing is published here, and nothing is stored but the verdicts that `brokers` takes over from
the step before.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import chain
from math import inf
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from policies.free_space.gate import FactorVerdict, Gate, GateMove, HoldReason, first_move, move
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import Freshness, find_expiries, is_overdue, seconds_left
from policies.throttle.decisions import ThrottleReason
from policies.throttle.facts import BrokerFacts, VolumeVerdict, facts, judge_volumes
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import (
    BrokerState,
    ForgottenVolume,
    KafkaClusterState,
    MeasuredUsage,
    ThrottleState,
    VolumeKey,
    find_usage,
)
from policies.units import millis_of, to_millis

# The verdict on each broker, and what a cluster's verdict needs from all of them.
#
# A broker's verdict is a pure function of its state, the settings and the volumes that stop the cluster. It changes by
# time alone only at instants that are known beforehand. So a step takes over each verdict of
# the step before whose inputs are the same and whose next such instant has not come; the result is the same as
# without it.

order_by_tightness: Callable[[VolumeVerdict], tuple[float, int, VolumeKey]] = attrgetter("tightness")

Ranked = tuple[float, VolumeKey, VolumeVerdict]
"""A volume after its rank; of equal ranks the volume's key decides, so two verdicts are never compared."""

_NONE: frozenset[VolumeKey] = frozenset()
MOST_VOLUMES = 1000
"""The most volumes that are kept of one broker, departed ones included: as many as a reading may name."""


class BrokerVerdict(Struct, frozen=True, gc=False):
    """One broker at one moment: its facts, and the verdicts on its volumes."""

    facts: BrokerFacts
    stopped_by: frozenset[VolumeKey]
    judged_ms: int
    volumes: tuple[VolumeVerdict, ...]
    """The volumes that count, the tightest first."""
    limiting: tuple[VolumeVerdict, ...]
    """Those of them that allow less than 1.0."""
    ended: tuple[ForgottenVolume, ...]
    """Departed volumes that limited the cluster until now."""
    kept: BrokerState | None
    """The broker's state without volumes that are forgotten; None if the broker itself is."""
    is_notable: bool
    """Whether the condition of an alert may begin to hold: nothing else is asked about most brokers."""
    soonest_full: Ranked | None
    """The volume that is full first, by that instant."""
    fullest: Ranked | None
    """The freshly read volume with the least share free, by that share."""
    next_ms: int | None
    """When time alone changes this verdict."""

    def holds(self, state: BrokerState, now_ms: int, stopped_by: frozenset[VolumeKey]) -> bool:
        """Return whether judging the broker again with these inputs would give the same verdict."""
        if now_ms < self.judged_ms or (self.next_ms is not None and self.next_ms <= now_ms):
            return False
        # Structs compare by identity first; a state that was decoded again is equal, but not the same.
        return self.facts.state == state and self.stopped_by == stopped_by


@dataclass(frozen=True, slots=True)
class BrokerVerdicts:
    """The verdicts on all brokers of a cluster at one moment."""

    now: datetime
    now_ms: int
    settings: ThrottleSettings
    known: KafkaClusterState
    """The cluster's state, without the brokers and volumes that are forgotten now."""
    brokers: Mapping[int, BrokerVerdict]
    """By number, without those that left and have no volume that counts."""
    limiting: Sequence[VolumeVerdict]
    """The volumes that allow less than 1.0."""
    ended: Sequence[ForgottenVolume]
    """Departed volumes that limited the cluster until now."""
    next_ms: int | None
    """When time alone changes the verdict on a broker."""

    def volumes(self) -> Iterator[VolumeVerdict]:
        """Iterate over all volumes that count."""
        return chain.from_iterable(broker.volumes for broker in self.brokers.values())

    def tightest_first(self) -> Iterator[VolumeVerdict]:
        """Iterate over all volumes that count, the tightest first."""
        return merge(*(broker.volumes for broker in self.brokers.values()), key=order_by_tightness)

    def pick_volumes(self, keys: Collection[VolumeKey]) -> dict[VolumeKey, VolumeVerdict]:
        """Return those of the given volumes that count."""
        numbers = {number for number, _ in keys} & self.brokers.keys()
        return {v.key: v for number in numbers for v in self.brokers[number].volumes if v.key in keys}

    def soonest_full(self) -> VolumeVerdict | None:
        """Return the volume that is full first."""
        return _find_least(broker.soonest_full for broker in self.brokers.values())

    def fullest(self) -> VolumeVerdict | None:
        """Return the freshly read volume with the least share free."""
        return _find_least(broker.fullest for broker in self.brokers.values())

    def unread(self) -> Iterator[BrokerState]:
        """Iterate over the members that are unread for `validity`."""
        return (broker.facts.state for broker in self.brokers.values() if broker.facts.is_unread)

    def has(self, freshness: Freshness) -> bool:
        """Return whether any volume that counts is as fresh as that."""
        return any(volume.freshness is freshness for volume in self.volumes())

    def has_read(self) -> bool:
        """Return whether any volume that counts was ever read."""
        return any(volume.freshness is not Freshness.NEVER_READ for volume in self.volumes())

    def is_cordoned(self, volume: VolumeKey) -> bool:
        """Return whether a volume's broker places no new partitions on it."""
        return volume[1] in self.brokers[volume[0]].facts.state.cordoned

    def find_usage(self, volume: VolumeKey) -> MeasuredUsage | None:
        """Return what fills a volume, by its broker's last valid reading of replica sizes."""
        number, log_dir = volume
        broker = self.brokers.get(number)
        if broker is None:
            return None
        return find_usage(broker.facts.state, log_dir, self.now_ms, millis_of(self.settings.validity))


def judge_brokers(
    known: KafkaClusterState,
    settings: ThrottleSettings,
    now: datetime,
    *,
    stopped_by: Iterable[VolumeKey] = (),
    before: Mapping[int, BrokerVerdict] | None = None,
) -> BrokerVerdicts:
    """Judge each broker of a cluster.

    Args:
        stopped_by: the volumes that keep the cluster stopped.
        before: verdicts of an earlier step with the same settings; those that still hold are not computed again.
    """
    before, now_ms = before or {}, to_millis(now)
    stopping: dict[int, frozenset[VolumeKey]] = {}
    for key in stopped_by:
        stopping[key[0]] = stopping.get(key[0], _NONE) | {key}
    kept: list[BrokerState] = []
    verdicts: dict[int, BrokerVerdict] = {}
    limiting: list[VolumeVerdict] = []
    ended: list[ForgottenVolume] = []
    next_ms: int | None = None
    for state in known.brokers:  # one pass: of a fleet's brokers, hardly anything is in the processor's cache
        number = state.broker
        verdict, stops = before.get(number), stopping.get(number, _NONE)
        if verdict is None or not verdict.holds(state, now_ms, stops):
            verdict = _judge(settings, state, now_ms, stops)
        ended += verdict.ended
        if verdict.kept is None:
            continue
        kept.append(verdict.kept)
        verdicts[number] = verdict
        limiting += verdict.limiting
        if verdict.next_ms is not None and (next_ms is None or verdict.next_ms < next_ms):
            next_ms = verdict.next_ms
    return BrokerVerdicts(
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=replace(known, brokers=tuple(kept)),
        brokers=verdicts,
        limiting=limiting,
        ended=ended,
        next_ms=next_ms,
    )


def _judge(
    settings: ThrottleSettings, state: BrokerState, now_ms: int, stopped_by: frozenset[VolumeKey]
) -> BrokerVerdict:
    broker = facts(state, now_ms, millis_of(settings.validity))
    counting, ended = judge_volumes(broker, now_ms, settings, stopped_by)
    kept = {v.key for v in counting} | {v.key for v in broker.volumes if v.departed_ms is None}
    if len(kept) > MOST_VOLUMES:
        kept -= _find_droppable(counting, len(kept) - MOST_VOLUMES)
        counting = [v for v in counting if v.key in kept]
    if len(kept) < len(broker.volumes):
        state = replace(state, volumes=tuple(v.state for v in broker.volumes if v.key in kept))
    fresh = [v for v in counting if v.freshness is Freshness.FRESH]
    volumes = tuple(sorted(counting, key=order_by_tightness))
    return BrokerVerdict(
        facts=broker,
        stopped_by=stopped_by,
        judged_ms=now_ms,
        volumes=volumes,
        limiting=tuple(v for v in volumes if v.factor < 1.0),
        ended=tuple(ended),
        kept=None if state.left_ms is not None and not state.volumes else state,
        is_notable=_is_notable(broker, counting, now_ms, settings),
        soonest_full=min(((v.full_ms, v.key, v) for v in counting if v.full_ms is not None), default=None),
        fullest=min(((v.state.usable_bytes / max(v.state.total_bytes, 1), v.key, v) for v in fresh), default=None),
        next_ms=min((ms for ms in _list_expiries(broker, counting, settings) if ms > now_ms), default=None),
    )


def _is_notable(
    broker: BrokerFacts, counting: Iterable[VolumeVerdict], now_ms: int, settings: ThrottleSettings
) -> bool:
    soon_ms = now_ms + millis_of(settings.time_to_full_alert)
    is_any_tight = any(v.hit is not LimitHit.NONE or (v.full_ms or inf) < soon_ms for v in counting)
    is_any_unread = broker.is_unread or any(is_overdue(volume, now_ms) for volume in broker.volumes)
    return is_any_tight or is_any_unread or bool(broker.state.errors)


def _find_least(volumes: Iterable[Ranked | None]) -> VolumeVerdict | None:
    least = min(filter(None, volumes), default=None)
    return None if least is None else least[-1]


def _find_droppable(counting: Sequence[VolumeVerdict], count: int) -> set[VolumeKey]:
    """Pick the departed volumes to drop."""
    departed = sorted((v for v in counting if v.departed_ms is not None), key=order_by_tightness, reverse=True)
    return {v.key for v in departed[:count]}


def _list_expiries(broker: BrokerFacts, volumes: Iterable[VolumeVerdict], settings: ThrottleSettings) -> Iterator[int]:
    """List each instant at which time alone changes the verdict on a broker; some may have passed."""
    validity_ms = millis_of(settings.validity)
    # A reading ages from when it was read. The broker is missed from when it became a member, if that is later.
    yield broker.state.read_ms + validity_ms
    yield broker.state.seen_ms + validity_ms
    if broker.state.usage is not None:
        yield broker.state.usage.at_ms + validity_ms
    yield from find_expiries(broker.volumes, volumes, settings)


# The verdict on a cluster: which volume decides the raw factor, and where the gate moves.


@dataclass(frozen=True, slots=True)
class RawFactor:
    """The lowest factor of all volumes that count, and the volume that decided it."""

    factor: float
    reason: ThrottleReason
    decisive: VolumeVerdict | None = None


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The verdict on one cluster, before it is put into words."""

    brokers: BrokerVerdicts
    raw: RawFactor
    move: GateMove[VolumeKey]
    reason: ThrottleReason
    """Why the factor in force is what it is; holds included."""
    decisive: VolumeVerdict | None
    soonest_full: tuple[VolumeVerdict, float] | None
    """The volume that is full first and in how many seconds; None if none is known to fill."""
    forgotten: tuple[ForgottenVolume, ...]
    """Departed volumes to be named: for as long after their end as they were held before it."""
    previous_factor: float | None
    """None before the first decision."""

    @property
    def is_nothing_known(self) -> bool:
        """Whether there is no valid reading of the cluster's log dirs, although there should be."""
        if self.raw.reason is ThrottleReason.NO_DATA:
            return True
        if self.brokers.has(Freshness.FRESH):
            return False
        return self.brokers.has(Freshness.STALE) or any(True for _ in self.brokers.unread())

    def limiting(self) -> dict[VolumeKey, VolumeVerdict]:
        """Return the volumes that allow less than 1.0, and the one that keeps a stopped cluster stopped."""
        volumes = (*self.brokers.limiting, *((self.decisive,) if self.decisive else ()))
        return {volume.key: volume for volume in volumes}


def judge_cluster(brokers: BrokerVerdicts, before: ThrottleState) -> ClusterVerdict:
    """Judge a cluster.

    Args:
        before: the state before this step, with the gate, the limiting volume and the forgotten ones.
    """
    raw = _judge_raw(brokers, before)
    moved, decisive = _move(brokers, raw, before), raw.decisive
    if moved.hold is HoldReason.RECOVERY_MARGIN:
        blocking = brokers.pick_volumes(set(moved.gate.stopped_by)).values()
        decisive = min(blocking, key=order_by_tightness, default=None)
    soonest = brokers.soonest_full()
    seconds = None if soonest is None else seconds_left(soonest.state, brokers.now_ms)
    return ClusterVerdict(
        brokers=brokers,
        raw=raw,
        move=moved,
        reason=ThrottleReason(moved.hold.value) if moved.hold else raw.reason,
        decisive=decisive,
        soonest_full=None if soonest is None or seconds is None else (soonest, seconds),
        forgotten=_update_forgotten(brokers, before.forgotten),
        previous_factor=before.gate.factor if before.gate is not None else None,
    )


def _judge_raw(brokers: BrokerVerdicts, before: ThrottleState) -> RawFactor:
    if not brokers.has_read():
        return _judge_without_volumes(brokers, before.started_ms)
    decisive = _find_tightest(brokers, before.limiting)
    if decisive is not None:
        return RawFactor(decisive.factor, _find_reason(decisive), decisive)
    if not brokers.has(Freshness.FRESH):
        return RawFactor(1.0, ThrottleReason.STALE_VOLUME)
    return _allow_all(brokers.settings)


def _judge_without_volumes(brokers: BrokerVerdicts, started_ms: int) -> RawFactor:
    settings = brokers.settings
    is_any_fresh = any(broker.facts.freshness is Freshness.FRESH for broker in brokers.brokers.values())
    if settings.forgets_unread and is_any_fresh:
        return _allow_all(settings)
    if not brokers.known.ever_read and brokers.now_ms < started_ms + millis_of(settings.validity):
        return RawFactor(settings.start_factor, ThrottleReason.INITIAL)
    return RawFactor(settings.fallback, ThrottleReason.NO_DATA)


def _allow_all(settings: ThrottleSettings) -> RawFactor:
    return RawFactor(1.0, ThrottleReason.ABOVE_LIMITS if settings.limited else ThrottleReason.UNLIMITED)


def _find_reason(decisive: VolumeVerdict) -> ThrottleReason:
    if decisive.freshness in (Freshness.STALE, Freshness.NEVER_READ):
        return ThrottleReason.STALE_VOLUME
    if decisive.freshness is Freshness.DEPARTED:
        return ThrottleReason.DEPARTED_VOLUME
    return ThrottleReason.HARD_LIMIT if decisive.hit is LimitHit.HARD else ThrottleReason.SOFT_LIMIT


def _find_tightest(brokers: BrokerVerdicts, named: VolumeKey | None) -> VolumeVerdict | None:
    """Find the volume that allows least, if any limits the cluster.

    Among volumes with equal factors the named one wins, so that two full volumes do not alternate.
    """
    tightest = min(brokers.limiting, key=order_by_tightness, default=None)
    if tightest is None or named is None:
        return tightest
    incumbent = brokers.pick_volumes({named}).get(named)
    return incumbent if incumbent is not None and incumbent.factor == tightest.factor else tightest


def _move(brokers: BrokerVerdicts, raw: RawFactor, before: ThrottleState) -> GateMove[VolumeKey]:
    settings = brokers.settings
    at_hard = {volume.key for volume in brokers.limiting if volume.hit is LimitHit.HARD}
    if before.gate is not None:
        stopped_by = set(before.gate.stopped_by)
        counting = brokers.pick_volumes(stopped_by)
        recovered = stopped_by - {v.key for v in counting.values() if v.is_within_margin(settings)}
        return move(before.gate, raw.factor, at_hard, recovered, brokers.now, settings)
    if raw.reason is ThrottleReason.INITIAL:
        return GateMove(Gate(raw.factor), FactorVerdict.INITIAL)
    return first_move(Gate(settings.start_factor), raw.factor, at_hard, brokers.now)


def _update_forgotten(brokers: BrokerVerdicts, before: Sequence[ForgottenVolume]) -> tuple[ForgottenVolume, ...]:
    if not before and not brokers.ended:
        return ()
    now_ms, hold_ms = brokers.now_ms, millis_of(brokers.settings.departed_hold)
    numbers = {volume.broker for volume in before}
    known = ((b.broker, v.log_dir) for b in brokers.known.brokers if b.broker in numbers for v in b.volumes)
    there = {*(volume.key for volume in brokers.ended), *known}
    named = [f for f in before if now_ms < f.forgotten_ms + hold_ms and f.key not in there]
    return tuple(sorted([*named, *(brokers.ended if hold_ms else ())]))
