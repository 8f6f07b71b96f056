"""The verdicts on a cluster's brokers and volumes, cached from step to step.

A step re-examines the brokers that changed and those whose verdict changes by time alone; all other verdicts still
hold. The aggregates over all volumes (the lowest factor, the volume that is full first, how many count as what) are
updated incrementally, so a step costs what changed and not the size of the cluster. The cache is not part of the state:
it can be rebuilt from it.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from policies.alerts import Condition
from policies.least_first import LeastFirst
from policies.observations import Observation
from policies.throttle.alerts import conditions_of_broker, unread_since
from policies.throttle.decisions import LimitHit
from policies.throttle.facts import BrokerFacts, Freshness, broker_as_of, seconds_left
from policies.throttle.fold import KnownCluster
from policies.throttle.judge import VolumeVerdict, expiries_ms, verdicts
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import KafkaClusterState, VolumeKey, VolumeState
from policies.units import EPOCH, millis_of, to_millis

MOST_VOLUMES = 1000
"""Of one broker are known, departed ones included: as many as a reading may name."""

AlertKey = tuple[str, str]
"""(name, subject)"""


class BrokerStanding(Struct, frozen=True, gc=False):
    """One broker as it was last looked at."""

    facts: BrokerFacts
    volumes: tuple[VolumeVerdict, ...] = ()
    """Those that count, by log dir."""
    conditions: tuple[AlertKey, ...] = ()
    """What alerts of it or its volumes are about."""
    is_unread: bool = False


class ClusterStanding:
    """Everything a verdict on one cluster rests on.

    Args:
        cluster: its name.
        settings: those in force for it.
        known: what is known of it.
    """

    def __init__(self, cluster: str, settings: ThrottleSettings, known: KafkaClusterState) -> None:
        self.cluster = cluster
        self.settings = settings
        self.known = KnownCluster(known)
        self.now, self.now_ms = EPOCH, 0
        self.ended: list[VolumeKey] = []
        """Departed volumes that limited the cluster until this step."""
        self.changed: dict[AlertKey, Condition | None] = {}
        """Conditions of brokers and volumes that this step looked at; None: no longer the case."""
        self.verdicts: dict[VolumeKey, VolumeVerdict] = {}
        """The volumes that count."""
        self.at_hard: set[VolumeKey] = set()
        self.volume_counts: Counter[Freshness] = Counter()
        self.broker_counts: Counter[Freshness] = Counter()
        """Without those that left and have no volume that counts."""
        self.unread: set[int] = set()
        """Member brokers that are unread for `validity`."""
        self._brokers: dict[int, BrokerStanding] = {}
        self._limiting: LeastFirst[VolumeKey, tuple[float, int]] = LeastFirst()
        self._filling: LeastFirst[VolumeKey, float] = LeastFirst()
        self._next: LeastFirst[int, int] = LeastFirst()
        self._departed: set[int] = set()
        """Brokers with departed volumes that count: whether these go on counting depends on the gate, too."""
        self._unseen: set[int] = set(self.known.brokers)

    def take(
        self,
        observations: Sequence[Observation],
        now: datetime,
        *,
        stopped_by: Container[VolumeKey],
        firing: Container[AlertKey],
        also: Iterable[int] = (),
    ) -> None:
        """Fold readings in, and look at the brokers that stand differently now.

        Args:
            observations: since the last step.
            now: the time of this step.
            stopped_by: the volumes that keep the cluster stopped.
            firing: the alerts whose condition held at the last step.
            also: brokers to look at besides: of their alerts something is due to be said.
        """
        self.now, self.now_ms = now, to_millis(now)
        self.ended, self.changed = [], {}
        look = self.known.fold(observations) | self._unseen | self._departed
        look.update(number for number in also if number in self.known.brokers)
        self._unseen = set()
        while (least := self._next.least()) is not None and least[0] <= self.now_ms:
            look.add(least[1])
            self._next.put(least[1], None)
        for number in sorted(look):
            self._look(number, stopped_by, firing)

    def catch_up(self, known: KafkaClusterState) -> bool:
        """Take over what another process has learned since: only brokers that are not as they were are looked at anew.

        Returns:
            Whether it could; not where brokers went meanwhile.
        """
        if not self.known.brokers.keys() <= {broker.broker for broker in known.brokers}:
            return False
        self._unseen |= self.known.take_over(known)
        return True

    # --- of all volumes together

    def tightest(self, named: VolumeKey | None) -> VolumeVerdict | None:
        """Of the volumes that limit the cluster the one that allows least; None when none does.

        Among equals the one already named, so that two full volumes do not take turns; then the fuller one.
        """
        least = self._limiting.least()
        if least is None:
            return None
        rank = self._limiting.get(named) if named is not None else None
        if named is not None and rank is not None and rank[0] == least[0][0]:
            return self.verdicts[named]
        return self.verdicts[least[1]]

    def limiting(self) -> list[VolumeVerdict]:
        """The volumes that limit the cluster, the one that allows least first."""
        return sorted((self.verdicts[key] for key, _ in self._limiting.items()), key=lambda v: v.tightness)

    def soonest_full(self) -> tuple[VolumeVerdict, float] | None:
        """The volume that is full first, and in how many seconds; None when none is known to fill."""
        least = self._filling.least()
        if least is None:
            return None
        volume = self.verdicts[least[1]]
        left = seconds_left(volume.state, self.now_ms)
        return None if left is None else (volume, left)

    def brokers(self) -> Iterator[BrokerFacts]:
        """Those that are counted."""
        return (standing.facts for standing in self._brokers.values())

    def next_ms(self) -> int | None:
        """When a broker comes to stand differently by time alone."""
        least = self._next.least()
        return least[0] if least else None

    # --- one broker

    def _look(self, number: int, stopped_by: Container[VolumeKey], firing: Container[AlertKey]) -> None:
        broker, before = self.known.brokers[number], self._brokers.get(number)
        facts, found = broker_as_of(self.now_ms, broker, millis_of(self.settings.validity))
        counting, ended = verdicts(found, self.now_ms, self.settings, stopped_by)
        self.ended += ended
        kept = {v.key for v in counting}
        kept.update(v.key for v in found if v.freshness is Freshness.NEVER_READ and v.departed_ms is None)
        if len(kept) > MOST_VOLUMES:
            dropped = _least_telling(counting, len(kept) - MOST_VOLUMES)
            counting, kept = [v for v in counting if v.key not in dropped], kept - dropped
        if len(kept) < len(found):
            broker = replace(broker, volumes=tuple(v.state for v in found if v.key in kept))
            self.known.keep(broker)
        is_gone = facts.freshness is Freshness.DEPARTED and not counting
        standing = None if is_gone else self._standing(facts, tuple(counting), firing)
        self._replace(number, before, standing)
        if broker.left_ms is not None and not broker.volumes:
            self.known.forget(number)

    def _standing(
        self, facts: BrokerFacts, volumes: tuple[VolumeVerdict, ...], firing: Container[AlertKey]
    ) -> BrokerStanding:
        is_unread = (
            facts.freshness is Freshness.STALE
            and unread_since(facts) + millis_of(self.settings.validity) <= self.now_ms
        )
        told = {
            condition.key: condition
            for condition in conditions_of_broker(
                self.cluster, facts, volumes, self.settings, is_unread=is_unread, firing=firing
            )
        }
        self.changed |= told
        return BrokerStanding(facts, volumes, tuple(told), is_unread)

    def _replace(self, number: int, before: BrokerStanding | None, after: BrokerStanding | None) -> None:
        if before is not None:
            self._uncount(number, before, {v.key for v in after.volumes} if after else ())
        if after is None:
            self._brokers.pop(number, None)
            self._next.put(number, None)
            return
        self._brokers[number] = after
        self.broker_counts[after.facts.freshness] += 1
        if after.is_unread:
            self.unread.add(number)
        for volume in after.volumes:
            self._count(volume)
        if any(volume.departed_ms is not None for volume in after.volumes):
            self._departed.add(number)
        self._next.put(number, self._next_of(after))

    def _uncount(self, number: int, before: BrokerStanding, staying: Collection[VolumeKey]) -> None:
        self.broker_counts[before.facts.freshness] -= 1
        self.unread.discard(number)
        self._departed.discard(number)
        for key in before.conditions:
            self.changed.setdefault(key, None)
        for volume in before.volumes:
            self.volume_counts[volume.freshness] -= 1
            if volume.key not in staying:
                del self.verdicts[volume.key]
                self.at_hard.discard(volume.key)
                self._limiting.put(volume.key, None)
                self._filling.put(volume.key, None)

    def _count(self, volume: VolumeVerdict) -> None:
        key, state = volume.key, volume.state
        self.verdicts[key] = volume
        self.volume_counts[volume.freshness] += 1
        if volume.hit is LimitHit.HARD:
            self.at_hard.add(key)
        else:
            self.at_hard.discard(key)
        self._limiting.put(key, (volume.factor, state.usable_bytes) if volume.factor < 1.0 else None)
        self._filling.put(key, None if volume.seconds_to_full is None else _full_ms(state))

    def _next_of(self, standing: BrokerStanding) -> int | None:
        expiries = list(expiries_ms((standing.facts,), standing.volumes, self.settings))
        soon_ms = millis_of(self.settings.time_to_full_alert)
        for volume in standing.volumes:
            if volume.seconds_to_full is not None:
                expiries.append(int(_full_ms(volume.state)) - soon_ms + 1)
        return min((ms for ms in expiries if ms > self.now_ms), default=None)


def _least_telling(counting: Sequence[VolumeVerdict], many: int) -> set[VolumeKey]:
    """So many of the departed volumes, those that allow most."""
    departed = sorted((v for v in counting if v.departed_ms is not None), key=lambda v: v.tightness, reverse=True)
    return {v.key for v in departed[:many]}


def _full_ms(volume: VolumeState) -> float:
    assert volume.fill_bytes_per_second is not None  # noqa: S101 - it is known to fill
    return volume.read_ms + 1000 * volume.usable_bytes / volume.fill_bytes_per_second
