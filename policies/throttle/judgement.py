"""The verdict on the cluster: which volume decides the raw factor, and where the gate moves.

Pure: nothing is remembered and nothing is published here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.throttle.decisions import LimitHit, ThrottleReason, ThrottleVerdict
from policies.throttle.facts import Freshness
from policies.throttle.gate import GateMove, first_move, move
from policies.throttle.judge import VolumeVerdict
from policies.throttle.settings import ThrottleSettings
from policies.throttle.standing import ClusterStanding
from policies.throttle.state import ForgottenVolume, Gate, ThrottleState, VolumeKey
from policies.units import millis_of


@dataclass(frozen=True, slots=True)
class RawFactor:
    """The least factor of all volumes that count, and the volume that decided it."""

    factor: float
    reason: ThrottleReason
    decisive: VolumeVerdict | None = None


@dataclass(frozen=True, slots=True)
class ThrottleJudgement:
    """All that is decided of one cluster, before it is put into words."""

    raw: RawFactor
    move: GateMove
    reason: ThrottleReason
    """Why the factor in force is what it is; holds included."""
    decisive: VolumeVerdict | None
    soonest_full: tuple[VolumeVerdict, float] | None
    """The volume that is full first and in how many seconds; None when none is known to fill."""
    forgotten: tuple[ForgottenVolume, ...]
    """Departed volumes to be named: for as long after their end as they were held before it."""


def judge(standing: ClusterStanding, before: ThrottleState) -> ThrottleJudgement:
    """The verdict on one cluster.

    Args:
        standing: how its brokers and volumes stand now.
        before: what holds until now: the gate, what was published last, what was forgotten.
    """
    raw = _raw(standing, before)
    moved = _moved(standing, raw, before)
    is_blocked = moved.hold is ThrottleReason.RECOVERY_MARGIN
    return ThrottleJudgement(
        raw=raw,
        move=moved,
        reason=moved.hold or raw.reason,
        decisive=_blocking(standing, moved.gate) if is_blocked else raw.decisive,
        soonest_full=standing.soonest_full(),
        forgotten=_forgotten(standing, before.forgotten),
    )


def _raw(standing: ClusterStanding, before: ThrottleState) -> RawFactor:
    if not standing.verdicts:
        return _raw_of_nothing(standing, before.started_ms)
    decisive = standing.tightest(before.last_published.limiting if before.last_published else None)
    if decisive is not None:
        return RawFactor(decisive.factor, _reason(decisive), decisive)
    if not standing.volume_counts[Freshness.FRESH]:
        return RawFactor(1.0, ThrottleReason.STALE_VOLUME)
    return _free(standing.settings)


def _raw_of_nothing(standing: ClusterStanding, started_ms: int) -> RawFactor:
    """Without a volume that counts: the start, then the fallback."""
    settings = standing.settings
    if settings.forgets_unread and standing.broker_counts[Freshness.FRESH]:
        return _free(settings)
    if not standing.known.ever_read and standing.now_ms < started_ms + millis_of(settings.validity):
        return RawFactor(settings.start_factor, ThrottleReason.INITIAL)
    return RawFactor(settings.fallback, ThrottleReason.NO_DATA)


def _free(settings: ThrottleSettings) -> RawFactor:
    return RawFactor(1.0, ThrottleReason.ABOVE_LIMITS if settings.limited else ThrottleReason.UNLIMITED)


def _reason(decisive: VolumeVerdict) -> ThrottleReason:
    if decisive.freshness is Freshness.STALE:
        return ThrottleReason.STALE_VOLUME
    if decisive.freshness is Freshness.DEPARTED:
        return ThrottleReason.DEPARTED_VOLUME
    return ThrottleReason.HARD_LIMIT if decisive.hit is LimitHit.HARD else ThrottleReason.SOFT_LIMIT


def _moved(standing: ClusterStanding, raw: RawFactor, before: ThrottleState) -> GateMove:
    now = standing.now
    if before.last_published is not None:
        recovered = {key for key in before.gate.stopped_by if not _is_within_margin(standing, key)}
        return move(before.gate, raw.factor, standing.at_hard, recovered, now, standing.settings)
    if raw.reason is ThrottleReason.INITIAL:
        return GateMove(Gate(raw.factor), ThrottleVerdict.INITIAL)
    return first_move(before.gate, raw.factor, standing.at_hard, now)


def _is_within_margin(standing: ClusterStanding, key: VolumeKey) -> bool:
    hard, margin, volume = standing.settings.hard, standing.settings.recovery_margin, standing.verdicts.get(key)
    if hard is None or volume is None:
        return False
    return hard.reached(volume.state.usable_bytes, volume.state.total_bytes, margin=margin)


def _blocking(standing: ClusterStanding, gate: Gate) -> VolumeVerdict | None:
    """The tightest of the volumes that keep a stopped cluster stopped."""
    blocking = (standing.verdicts[key] for key in gate.stopped_by if key in standing.verdicts)
    return min(blocking, key=lambda v: v.tightness, default=None)


def _forgotten(standing: ClusterStanding, before: Sequence[ForgottenVolume]) -> tuple[ForgottenVolume, ...]:
    if not before and not standing.ended:
        return ()
    hold_ms = millis_of(standing.settings.departed_hold)
    there = {*standing.ended, *standing.known.volumes_among(f.key for f in before)}
    named = [f for f in before if standing.now_ms < f.forgotten_ms + hold_ms and f.key not in there]
    new = [ForgottenVolume(*key, standing.now_ms) for key in standing.ended] if hold_ms else []
    return tuple(sorted(named + new))
