"""What the facts mean: what each volume lets its cluster write, which of them decides, and where the gate moves.

Pure verdicts: nothing is remembered here, and nothing published.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from policies.throttle.decisions import LimitHit, ThrottleReason, ThrottleVerdict
from policies.throttle.facts import BrokerFacts, Freshness, ThrottleFacts, VolumeFacts
from policies.throttle.gate import GateMove, first_move, move
from policies.throttle.limits import assess
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ForgottenVolume, Gate, ThrottleState, VolumeKey, VolumeState
from policies.units import millis_of, to_millis


class VolumeVerdict(VolumeFacts, frozen=True):
    """A volume that counts, and what it lets its cluster write."""

    hit: LimitHit
    factor: float
    """For a stale volume no more than the fallback."""

    @property
    def tightness(self) -> tuple[float, int, VolumeKey]:
        """Orders volumes: the one that allows least, then the fullest."""
        return (self.factor, self.state.usable_bytes, self.key)


@dataclass(frozen=True, slots=True)
class RawFactor:
    """The least factor of all volumes that count, and the volume that decided it."""

    factor: float
    reason: ThrottleReason
    decisive: VolumeVerdict | None = None


@dataclass(frozen=True, slots=True)
class ThrottleJudgement:
    """All that is decided of one cluster, before it is put into words."""

    volumes: tuple[VolumeVerdict, ...]
    """Those that count, by broker and log dir."""
    brokers: tuple[BrokerFacts, ...]
    """Without those that left and have no volume that counts."""
    raw: RawFactor
    move: GateMove
    reason: ThrottleReason
    """Why the factor in force is what it is; holds included."""
    decisive: VolumeVerdict | None
    soonest_full: VolumeVerdict | None
    """The volume that is full first; None when none is known to fill."""
    forgotten: tuple[ForgottenVolume, ...]
    """Departed volumes to be named: for as long after their end as they were held before it."""


def judge(facts: ThrottleFacts, before: ThrottleState) -> ThrottleJudgement:
    """The verdict on one cluster.

    Args:
        facts: what is the case now.
        before: what holds until now: the gate, what was published last, what was forgotten.
    """
    volumes, ended = judge_volumes(facts, frozenset(before.gate.stopped_by))
    raw = _raw(facts, volumes, before)
    moved = _moved(facts, volumes, raw, before)
    return ThrottleJudgement(
        volumes=volumes,
        brokers=_counting_brokers(facts, volumes),
        raw=raw,
        move=moved,
        reason=moved.hold or raw.reason,
        decisive=_blocking(volumes, moved.gate) if moved.hold is ThrottleReason.RECOVERY_MARGIN else raw.decisive,
        soonest_full=_soonest_full(volumes),
        forgotten=_forgotten(facts, ended, before.forgotten),
    )


def judge_volumes(
    facts: ThrottleFacts, stopped_by: Set[VolumeKey] = frozenset()
) -> tuple[tuple[VolumeVerdict, ...], tuple[VolumeKey, ...]]:
    """The volumes that count, and the departed ones that limited the cluster and end now.

    Args:
        facts: what is the case now.
        stopped_by: volumes that keep the cluster stopped: they limit it, whatever their factor.
    """
    settings, now_ms = facts.settings, to_millis(facts.now)
    hold_ms = millis_of(settings.departed_hold)
    counting: list[VolumeVerdict] = []
    ended: list[VolumeKey] = []
    for volume in facts.volumes:
        verdict = _verdict(volume, settings)
        if verdict is None:
            continue
        if volume.departed_ms is None:
            counting.append(verdict)
        elif verdict.factor < 1.0 or volume.key in stopped_by:
            if now_ms < volume.departed_ms + hold_ms:
                counting.append(verdict)
            else:
                ended.append(volume.key)
    return tuple(counting), tuple(ended)


def remembered(facts: ThrottleFacts, volumes: Iterable[VolumeVerdict]) -> frozenset[VolumeKey]:
    """The volumes to go on knowing: those that count, and those that may yet be read."""
    unread = (v.key for v in facts.volumes if v.freshness is Freshness.NEVER_READ and v.departed_ms is None)
    return frozenset((*(v.key for v in volumes), *unread))


def expiries_ms(
    brokers: Iterable[BrokerFacts], volumes: Iterable[VolumeVerdict], settings: ThrottleSettings
) -> Iterator[int]:
    """When (milliseconds) a broker or volume comes to count differently without a reading; some may have passed."""
    validity_ms, hold_ms = millis_of(settings.validity), millis_of(settings.departed_hold)
    yield from (max(b.state.read_ms, b.state.seen_ms) + validity_ms for b in brokers)
    for volume in volumes:
        if volume.departed_ms is not None:
            yield volume.departed_ms + hold_ms
        elif volume.freshness is Freshness.FRESH:
            yield volume.state.read_ms + validity_ms


def _verdict(facts: VolumeFacts, settings: ThrottleSettings) -> VolumeVerdict | None:
    """What one volume would allow if it counts; None when its reading does not."""
    volume, freshness = facts.state, facts.freshness
    if freshness is Freshness.NEVER_READ or (freshness is Freshness.STALE and settings.forgets_unread):
        return None
    hit, factor = assess(volume.usable_bytes, volume.total_bytes, settings.hard, settings.soft)
    if freshness is Freshness.STALE:
        # Silence never opens a gate that a reading closed.
        factor = min(settings.fallback, factor)
    return VolumeVerdict(
        facts.key, facts.broker, volume, freshness, facts.departed_ms, facts.seconds_to_full, hit, factor
    )


def _counting_brokers(facts: ThrottleFacts, volumes: Iterable[VolumeVerdict]) -> tuple[BrokerFacts, ...]:
    with_volumes = {v.key[0] for v in volumes}
    return tuple(b for b in facts.brokers if b.freshness is not Freshness.DEPARTED or b.state.broker in with_volumes)


def _raw(facts: ThrottleFacts, volumes: Sequence[VolumeVerdict], before: ThrottleState) -> RawFactor:
    if not volumes:
        return _raw_of_nothing(facts, before.started_ms)
    named = before.last_published.limiting if before.last_published else None
    # Among equals the one already named, so that two full volumes do not take turns.
    decisive = min(volumes, key=lambda v: (v.factor, v.key != named, *v.tightness))
    if decisive.factor < 1.0:
        return RawFactor(decisive.factor, _reason(decisive), decisive)
    if all(v.freshness is not Freshness.FRESH for v in volumes):
        return RawFactor(1.0, ThrottleReason.STALE_VOLUME)
    return _free(facts.settings)


def _raw_of_nothing(facts: ThrottleFacts, started_ms: int) -> RawFactor:
    """Without a volume that counts: the start, then the fallback."""
    settings = facts.settings
    if settings.forgets_unread and any(b.freshness is Freshness.FRESH for b in facts.brokers):
        return _free(settings)
    if not facts.ever_read and to_millis(facts.now) < started_ms + millis_of(settings.validity):
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


def _moved(facts: ThrottleFacts, volumes: Sequence[VolumeVerdict], raw: RawFactor, before: ThrottleState) -> GateMove:
    stopping = {v.key for v in volumes if v.hit is LimitHit.HARD}
    if before.last_published is not None:
        waiting = {v.key for v in volumes if _is_within_margin(v.state, facts.settings)}
        recovered = {key for key in before.gate.stopped_by if key not in waiting}
        return move(before.gate, raw.factor, stopping, recovered, facts.now, facts.settings)
    if raw.reason is ThrottleReason.INITIAL:
        return GateMove(Gate(raw.factor), ThrottleVerdict.INITIAL)
    return first_move(before.gate, raw.factor, stopping, facts.now)


def _is_within_margin(volume: VolumeState, settings: ThrottleSettings) -> bool:
    hard, margin = settings.hard, settings.recovery_margin
    return hard is not None and hard.reached(volume.usable_bytes, volume.total_bytes, margin=margin)


def _blocking(volumes: Iterable[VolumeVerdict], gate: Gate) -> VolumeVerdict | None:
    """The tightest of the volumes that keep a stopped cluster stopped."""
    return min((v for v in volumes if v.key in gate.stopped_by), key=lambda v: v.tightness, default=None)


def _soonest_full(volumes: Iterable[VolumeVerdict]) -> VolumeVerdict | None:
    filling = ((v.seconds_to_full, v.key, v) for v in volumes if v.seconds_to_full is not None)
    return min(filling, default=(0.0, None, None))[2]


def _forgotten(
    facts: ThrottleFacts, ended: Sequence[VolumeKey], before: Sequence[ForgottenVolume]
) -> tuple[ForgottenVolume, ...]:
    now_ms, hold_ms = to_millis(facts.now), millis_of(facts.settings.departed_hold)
    there = {v.key for v in facts.volumes}
    named = [f for f in before if now_ms < f.forgotten_ms + hold_ms and f.key not in there]
    new = [ForgottenVolume(*key, now_ms) for key in ended] if hold_ms else []
    return tuple(sorted(named + new))
