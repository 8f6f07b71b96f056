"""Verdicts of the throttle policy: on each broker, and on the whole cluster.

All of them are pure: nothing is published here, and nothing is stored but the verdicts on brokers that are taken over
from the step before.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from msgspec.structs import asdict, replace

from policies.free_space.gate import FactorVerdict, Gate, GateMove, HoldReason, first_move, move
from policies.free_space.limits import LimitHit
from policies.free_space.volumes import (
    ForgottenVolume,
    Freshness,
    ServerVerdict,
    VolumeVerdict,
    judge_server,
    order_by_tightness,
    order_by_time,
    seconds_left,
    update_forgotten,
)
from policies.throttle.decisions import ThrottleReason
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import BrokerState, KafkaClusterState, MeasuredUsage, ThrottleState, VolumeKey, find_usage
from policies.units import millis_of

# The verdict on each broker, and what a cluster's verdict needs from all of them.
#
# A step takes over each verdict of the step before whose inputs are the same and whose next instant has not come; the
# result is the same as without it.


class BrokerVerdict(ServerVerdict[BrokerState], frozen=True, gc=False):
    """One broker at one moment."""

    is_notable: bool
    """Whether the condition of an alert may begin to hold: nothing else is asked about most brokers."""


@dataclass(frozen=True, slots=True)
class BrokerVerdicts:
    """The verdicts on all brokers of a cluster at one moment."""

    now_ms: int
    settings: ThrottleSettings
    known: KafkaClusterState
    """The cluster's state, without the brokers and volumes that are forgotten now."""
    brokers: Mapping[int, BrokerVerdict]
    """By number, without those that left and have no volume that counts."""
    limiting: Sequence[VolumeVerdict]
    ended: Sequence[ForgottenVolume[VolumeKey]]
    next_ms: int | None

    def volumes(self) -> Iterator[VolumeVerdict]:
        """Iterate over all volumes that count."""
        return chain.from_iterable(broker.counting for broker in self.brokers.values())

    def pick_volumes(self, keys: Collection[VolumeKey]) -> dict[VolumeKey, VolumeVerdict]:
        """Return those of the given volumes that count."""
        numbers = {number for number, _ in keys} & self.brokers.keys()
        return {v.key: v for number in numbers for v in self.brokers[number].counting if v.key in keys}

    def unread(self) -> Iterator[BrokerState]:
        """Iterate over the members that are unread for `validity`."""
        return (broker.state for broker in self.brokers.values() if broker.is_unread)

    def has(self, freshness: Freshness) -> bool:
        """Return whether any volume that counts is as fresh as that."""
        return any(volume.freshness is freshness for volume in self.volumes())

    def is_cordoned(self, volume: VolumeKey) -> bool:
        """Return whether a volume's broker places no new partitions on it."""
        return volume[1] in self.brokers[volume[0]].state.cordoned

    def find_usage(self, volume: VolumeKey) -> MeasuredUsage | None:
        """Return what fills a volume, by its broker's last valid reading of replica sizes."""
        number, log_dir = volume
        broker = self.brokers.get(number)
        if broker is None:
            return None
        return find_usage(broker.state, log_dir, self.now_ms, millis_of(self.settings.validity))


def judge_brokers(
    known: KafkaClusterState,
    settings: ThrottleSettings,
    now_ms: int,
    *,
    stopped_by: Iterable[VolumeKey] = (),
    before: Mapping[int, BrokerVerdict] | None = None,
) -> BrokerVerdicts:
    """Judge each broker. Verdicts of an earlier step with the same settings are taken over if they hold."""
    stopping, judged = frozenset(stopped_by), dict[int, BrokerVerdict]()
    for state in known.brokers:
        verdict = before.get(state.name) if before else None
        if verdict is None or not verdict.holds(state, now_ms, stopping):
            verdict = judge_broker(settings, state, now_ms, stopping)
        judged[state.name] = verdict
    brokers = {number: verdict for number, verdict in judged.items() if verdict.kept is not None}
    # The tightest volume of a broker comes first.
    tight = [each.counting for each in brokers.values() if each.counting and each.counting[0].factor < 1.0]
    return BrokerVerdicts(
        now_ms=now_ms,
        settings=settings,
        known=replace(known, brokers=tuple([each.kept for each in brokers.values() if each.kept is not None])),
        brokers=brokers,
        limiting=[volume for counting in tight for volume in counting if volume.factor < 1.0],
        ended=[volume for each in judged.values() for volume in each.ended],
        next_ms=min((each.next_ms for each in brokers.values() if each.next_ms is not None), default=None),
    )


def judge_broker(
    settings: ThrottleSettings, state: BrokerState, now_ms: int, stopped_by: frozenset[VolumeKey]
) -> BrokerVerdict:
    """Judge one broker."""
    more_due_ms = () if state.usage is None else (state.usage.at_ms + millis_of(settings.validity),)
    failed = dict(state.errors)
    verdict = judge_server(state, settings, now_ms, stopped_by, departs=True, failed=failed, more_due_ms=more_due_ms)
    soon_ms = now_ms + millis_of(settings.time_to_full_alert)
    is_tight = any(v.hit is not LimitHit.NONE or (v.full_ms or inf) < soon_ms for v in verdict.counting)
    is_unread = verdict.is_unread or any(volume.is_overdue(now_ms) for volume in verdict.volumes)
    is_notable = is_tight or is_unread or bool(state.errors)
    return BrokerVerdict(**asdict(verdict), is_notable=is_notable)


# The verdict on a cluster: which volume decides the raw factor, and where the gate moves.


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The verdict on one cluster, before it is put into words."""

    brokers: BrokerVerdicts
    raw_factor: float
    raw_reason: ThrottleReason
    move: GateMove[VolumeKey]
    reason: ThrottleReason
    """Why the factor in force is what it is; holds included."""
    decisive: VolumeVerdict | None
    soonest_full: tuple[VolumeVerdict, float] | None
    """The volume that is full first and in how many seconds; None if none is known to fill."""
    forgotten: tuple[ForgottenVolume[VolumeKey], ...]
    """Departed volumes to be named: for as long after their end as they were held before it."""

    def limiting(self) -> Collection[VolumeVerdict]:
        """Return the volumes that allow less than 1.0, and the one that keeps a stopped cluster stopped."""
        limiting = {volume.key: volume for volume in self.brokers.limiting}
        return (limiting | {self.decisive.key: self.decisive} if self.decisive else limiting).values()


def judge_cluster(brokers: BrokerVerdicts, before: ThrottleState) -> ClusterVerdict:
    """Judge a cluster, by the gate, the limiting volume and the forgotten ones of the state before this step."""
    raw_factor, reason, decisive = _judge_raw(brokers, before)
    moved = _move(brokers, raw_factor, reason, before)
    if moved.hold is HoldReason.RECOVERY_MARGIN:
        stopped_by, settings = brokers.pick_volumes(set(moved.gate.stopped_by)).values(), brokers.settings
        blocking = (volume for volume in stopped_by if volume.is_within(settings.recovery_margin, settings.hard))
        decisive = min(blocking, key=order_by_tightness, default=None)
    first = (broker.soonest_full for broker in brokers.brokers.values())
    soonest = min((volume for volume in first if volume is not None), key=order_by_time, default=None)
    seconds = None if soonest is None else seconds_left(soonest.state, brokers.now_ms)
    return ClusterVerdict(
        brokers=brokers,
        raw_factor=raw_factor,
        raw_reason=reason,
        move=moved,
        reason=ThrottleReason(moved.hold.value) if moved.hold else reason,
        decisive=decisive,
        soonest_full=None if soonest is None or seconds is None else (soonest, seconds),
        forgotten=update_forgotten(before.forgotten, brokers.ended, brokers.brokers, brokers.settings, brokers.now_ms),
    )


def _judge_raw(brokers: BrokerVerdicts, before: ThrottleState) -> tuple[float, ThrottleReason, VolumeVerdict | None]:
    """Return the lowest factor of all volumes that count, and the volume that decided it."""
    settings = brokers.settings
    allowed = (1.0, ThrottleReason.ABOVE_LIMITS if settings.limited else ThrottleReason.UNLIMITED, None)
    if all(volume.freshness is Freshness.NEVER_READ for volume in brokers.volumes()):
        is_any_fresh = any(broker.freshness is Freshness.FRESH for broker in brokers.brokers.values())
        if settings.forgets_unread and is_any_fresh:
            return allowed
        if not brokers.known.ever_read and brokers.now_ms < before.started_ms + millis_of(settings.validity):
            return settings.start_factor, ThrottleReason.INITIAL, None
        return settings.fallback, ThrottleReason.NO_DATA, None
    decisive = _find_tightest(brokers, before.limiting)
    if decisive is not None:
        return decisive.factor, ThrottleReason(decisive.reason), decisive
    return allowed if brokers.has(Freshness.FRESH) else (1.0, ThrottleReason.STALE_VOLUME, None)


def _find_tightest(brokers: BrokerVerdicts, named: VolumeKey | None) -> VolumeVerdict | None:
    """Find the volume that allows least, if any limits the cluster.

    Among volumes with equal factors the named one wins, so that two full volumes do not alternate.
    """
    tightest = min(brokers.limiting, key=order_by_tightness, default=None)
    if tightest is None or named is None:
        return tightest
    incumbent = brokers.pick_volumes({named}).get(named)
    return incumbent if incumbent is not None and incumbent.factor == tightest.factor else tightest


def _move(
    brokers: BrokerVerdicts, raw_factor: float, reason: ThrottleReason, before: ThrottleState
) -> GateMove[VolumeKey]:
    settings = brokers.settings
    at_hard = {volume.key for volume in brokers.limiting if volume.hit is LimitHit.HARD}
    if before.gate is not None:
        stopped_by = set(before.gate.stopped_by)
        counting = brokers.pick_volumes(stopped_by)
        recovered = stopped_by - {
            v.key for v in counting.values() if v.is_within(settings.recovery_margin, settings.hard)
        }
        return move(before.gate, raw_factor, at_hard, recovered, brokers.now_ms, settings)
    if reason is ThrottleReason.INITIAL:
        return GateMove(Gate(raw_factor), FactorVerdict.INITIAL)
    return first_move(Gate(settings.start_factor), raw_factor, at_hard, brokers.now_ms)
