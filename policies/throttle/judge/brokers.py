"""The verdict on each broker, and what a cluster's verdict needs from all of them.

A broker's verdict is a pure function of its state, the settings, the volumes that stop the cluster and the alerts that
fire. It changes by time alone only at instants that are known beforehand. So a step takes over each verdict of the step
before whose inputs are the same and whose next such instant has not come; the result is the same as without it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Raw, Struct
from msgspec.msgpack import encode
from msgspec.structs import replace

from policies.alerts import Condition
from policies.free_space.alerts import AlertKey
from policies.free_space.verdicts import find_expiries
from policies.free_space.volumes import Freshness
from policies.throttle.alert_kinds import FILLS_SOON
from policies.throttle.alerts import find_broker_conditions
from policies.throttle.facts import BrokerFacts, facts
from policies.throttle.judge.volumes import VolumeVerdict, judge_volumes
from policies.throttle.readings import VolumeUsage
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import BrokerState, ForgottenVolume, KafkaClusterState, VolumeKey
from policies.throttle.usage import find_usage
from policies.units import millis_of, to_millis

Key = TypeVar("Key")

order_by_tightness: Callable[[VolumeVerdict], tuple[float, int, VolumeKey]] = attrgetter("tightness")

Ranked = tuple[float, VolumeKey, VolumeVerdict]
"""A volume after its rank; of equal ranks the volume's key decides, so two verdicts are never compared."""

_NONE: frozenset[Any] = frozenset()
MOST_VOLUMES = 1000
"""The most volumes that are kept of one broker, departed ones included: as many as a reading may name."""


class BrokerVerdict(Struct, frozen=True, gc=False):
    """One broker at one moment: its facts, the verdicts on its volumes and its alert conditions."""

    facts: BrokerFacts
    stopped_by: frozenset[VolumeKey]
    firing: frozenset[AlertKey]
    judged_ms: int
    volumes: tuple[VolumeVerdict, ...]
    """The volumes that count, the tightest first."""
    limiting: tuple[VolumeVerdict, ...]
    """Those of them that allow less than 1.0."""
    ended: tuple[ForgottenVolume, ...]
    """Departed volumes that limited the cluster until now."""
    kept: BrokerState | None
    """The broker's state without volumes that are forgotten; None if the broker itself is."""
    encoded: Raw
    """The broker's state as msgpack."""
    conditions: tuple[Condition, ...]
    soonest_full: Ranked | None
    """The volume that is full first, by that instant."""
    fullest: Ranked | None
    """The freshly read volume with the least share free, by that share."""
    nearest: Ranked | None
    """The freshly read volume that would reach its first limit with the fewest bytes more, by these bytes."""
    next_ms: int | None
    """When time alone changes this verdict."""
    is_momentary: bool
    """Whether the sentence of an alert states a time that is different at the next instant: what is left, or an age."""

    def holds(
        self, state: BrokerState, now_ms: int, stopped_by: frozenset[VolumeKey], firing: frozenset[AlertKey]
    ) -> bool:
        """Return whether judging the broker again with these inputs would give the same verdict."""
        if self.is_momentary or now_ms < self.judged_ms or (self.next_ms is not None and self.next_ms <= now_ms):
            return False
        # Structs compare by identity first; a state that was decoded again is equal, but not the same.
        return self.facts.state == state and self.stopped_by == stopped_by and self.firing == firing


@dataclass(frozen=True, slots=True)
class BrokerVerdicts:
    """The verdicts on all brokers of a cluster at one moment."""

    cluster: str
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
    conditions: Sequence[Condition]
    """The alert conditions of all brokers."""
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

    def nearest(self) -> VolumeVerdict | None:
        """Return the freshly read volume that would reach its first limit with the fewest bytes more."""
        return _find_least(broker.nearest for broker in self.brokers.values())

    def unread(self) -> Iterator[BrokerState]:
        """Iterate over the members that are unread for `validity`."""
        return (broker.facts.state for broker in self.brokers.values() if broker.facts.is_unread)

    def has(self, freshness: Freshness) -> bool:
        """Return whether any volume that counts is as fresh as that."""
        return any(volume.freshness is freshness for volume in self.volumes())

    def has_read(self) -> bool:
        """Return whether any volume that counts was ever read."""
        return any(volume.freshness is not Freshness.NEVER_READ for volume in self.volumes())

    def find_usage(self, volume: VolumeKey) -> VolumeUsage | None:
        """Return what fills a volume, by its broker's last valid reading of replica sizes."""
        number, log_dir = volume
        broker = self.brokers.get(number)
        if broker is None:
            return None
        return find_usage(broker.facts.state, log_dir, self.now_ms, millis_of(self.settings.validity))


def judge_brokers(
    cluster: str,
    known: KafkaClusterState,
    settings: ThrottleSettings,
    now: datetime,
    *,
    stopped_by: Iterable[VolumeKey] = (),
    firing: Iterable[tuple[int, AlertKey]] = (),
    before: Mapping[int, BrokerVerdict] | None = None,
) -> BrokerVerdicts:
    """Judge each broker of a cluster.

    Args:
        stopped_by: the volumes that keep the cluster stopped.
        firing: the alerts whose condition held at the last step, each with the number of the broker it is about.
        before: verdicts of an earlier step with the same settings; those that still hold are not computed again.
    """
    before, now_ms = before or {}, to_millis(now)
    stopping, fires = _group_by_broker((key[0], key) for key in stopped_by), _group_by_broker(firing)
    kept: list[BrokerState] = []
    verdicts: dict[int, BrokerVerdict] = {}
    limiting: list[VolumeVerdict] = []
    ended: list[ForgottenVolume] = []
    conditions: list[Condition] = []
    next_ms: int | None = None
    for state in known.brokers:  # one pass: of a fleet's brokers, hardly anything is in the processor's cache
        number = state.broker
        verdict, stops, fired = before.get(number), stopping.get(number, _NONE), fires.get(number, _NONE)
        if verdict is None or not verdict.holds(state, now_ms, stops, fired):
            verdict = _judge(cluster, settings, state, now_ms, stops, fired)
        ended += verdict.ended
        if verdict.kept is None:
            continue
        kept.append(verdict.kept)
        verdicts[number] = verdict
        limiting += verdict.limiting
        conditions += verdict.conditions
        if verdict.next_ms is not None and (next_ms is None or verdict.next_ms < next_ms):
            next_ms = verdict.next_ms
    return BrokerVerdicts(
        cluster=cluster,
        now=now,
        now_ms=now_ms,
        settings=settings,
        known=replace(known, brokers=tuple(kept)),
        brokers=verdicts,
        limiting=limiting,
        ended=ended,
        conditions=conditions,
        next_ms=next_ms,
    )


def _group_by_broker(pairs: Iterable[tuple[int, Key]]) -> dict[int, frozenset[Key]]:
    grouped: dict[int, set[Key]] = {}
    for number, key in pairs:
        grouped.setdefault(number, set()).add(key)
    return {number: frozenset(keys) for number, keys in grouped.items()}


def _judge(
    cluster: str,
    settings: ThrottleSettings,
    state: BrokerState,
    now_ms: int,
    stopped_by: frozenset[VolumeKey],
    firing: frozenset[AlertKey],
) -> BrokerVerdict:
    broker = facts(state, now_ms, millis_of(settings.validity))
    counting, ended = judge_volumes(broker, now_ms, settings, stopped_by)
    kept = {v.key for v in counting} | {v.key for v in broker.volumes if v.departed_ms is None}
    if len(kept) > MOST_VOLUMES:
        kept -= _find_droppable(counting, len(kept) - MOST_VOLUMES)
        counting = [v for v in counting if v.key in kept]
    if len(kept) < len(broker.volumes):
        state = replace(state, volumes=tuple(v.state for v in broker.volumes if v.key in kept))
    conditions = tuple(find_broker_conditions(cluster, broker, counting, now_ms, settings, firing))
    is_momentary = any(c.alert == FILLS_SOON or state.usage is not None for c in conditions)
    fresh = [v for v in counting if v.freshness is Freshness.FRESH]
    volumes = tuple(sorted(counting, key=order_by_tightness))
    return BrokerVerdict(
        facts=broker,
        stopped_by=stopped_by,
        firing=firing,
        judged_ms=now_ms,
        volumes=volumes,
        limiting=tuple(v for v in volumes if v.factor < 1.0),
        ended=tuple(ended),
        kept=None if state.left_ms is not None and not state.volumes else state,
        encoded=Raw(encode(state)),
        conditions=conditions,
        soonest_full=min(((v.full_ms, v.key, v) for v in counting if v.full_ms is not None), default=None),
        fullest=min(((v.state.usable_bytes / max(v.state.total_bytes, 1), v.key, v) for v in fresh), default=None),
        nearest=min(((_find_room(v, settings), v.key, v) for v in fresh), default=None),
        next_ms=min((ms for ms in _list_expiries(broker, counting, settings) if ms > now_ms), default=None),
        is_momentary=is_momentary,
    )


def _find_room(volume: VolumeVerdict, settings: ThrottleSettings) -> float:
    limit = settings.soft or settings.hard
    return volume.state.usable_bytes - (limit.in_bytes(volume.state.total_bytes) if limit is not None else 0.0)


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
