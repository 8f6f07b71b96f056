"""The verdict on a cluster: which volume decides the raw factor, and where the gate moves."""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.free_space.gate import FactorVerdict, Gate, GateMove, HoldReason, first_move, move
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import Freshness, seconds_left
from policies.throttle.decisions import ThrottleReason
from policies.throttle.judge.brokers import BrokerVerdicts, order_by_tightness
from policies.throttle.judge.volumes import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ForgottenVolume, ThrottleState, VolumeKey
from policies.units import millis_of


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
        before: the state before this step, with the gate, the last decision and the forgotten volumes.
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
    )


def _judge_raw(brokers: BrokerVerdicts, before: ThrottleState) -> RawFactor:
    if not brokers.has_read():
        return _judge_without_volumes(brokers, before.started_ms)
    decisive = _find_tightest(brokers, before.last_published.limiting if before.last_published else None)
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
    if before.last_published is not None:
        stopped_by = set(before.gate.stopped_by)
        counting = brokers.pick_volumes(stopped_by)
        recovered = stopped_by - {v.key for v in counting.values() if v.is_within_margin(settings)}
        return move(before.gate, raw.factor, at_hard, recovered, brokers.now, settings)
    if raw.reason is ThrottleReason.INITIAL:
        return GateMove(Gate(raw.factor), FactorVerdict.INITIAL)
    return first_move(before.gate, raw.factor, at_hard, brokers.now)


def _update_forgotten(brokers: BrokerVerdicts, before: Sequence[ForgottenVolume]) -> tuple[ForgottenVolume, ...]:
    if not before and not brokers.ended:
        return ()
    now_ms, hold_ms = brokers.now_ms, millis_of(brokers.settings.departed_hold)
    numbers = {volume.broker for volume in before}
    known = ((b.broker, v.log_dir) for b in brokers.known.brokers if b.broker in numbers for v in b.volumes)
    there = {*(volume.key for volume in brokers.ended), *known}
    named = [f for f in before if now_ms < f.forgotten_ms + hold_ms and f.key not in there]
    return tuple(sorted([*named, *(brokers.ended if hold_ms else ())]))
