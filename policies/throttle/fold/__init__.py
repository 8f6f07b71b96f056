"""Folds readings into what is known of a cluster, one module per kind of reading.

The result depends on the readings alone, not on their order within a batch or on repetition.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Raw
from msgspec.msgpack import encode

from policies.observations import Observation, Outcome, in_order
from policies.throttle.fold.log_dirs import fold_log_dirs
from policies.throttle.fold.membership import fold_membership, with_departure
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.throttle.state import BrokerState, KafkaClusterState, VolumeKey

MOST_BROKERS = 10_000
"""As many as a membership may name; readings of others than these are nobody's."""


class KnownCluster:
    """What is known of a cluster, to be folded into over and over: who changed is told, the others are not touched."""

    def __init__(self, cluster: KafkaClusterState) -> None:
        self.brokers = {b.broker: b for b in cluster.brokers}
        self.membership = cluster.membership
        self.ever_read = cluster.ever_read
        self._order: list[int] | None = None
        self._encoded: dict[int, Raw] = {}

    def fold(self, observations: Sequence[Observation]) -> set[int]:
        """Fold readings in; older ones than those known change nothing. The brokers that changed."""
        changed: set[int] = set()
        for seen in in_order(tuple(observations)):
            match seen.reading:
                case KafkaCluster():
                    changed |= self._fold_membership(seen, seen.reading)
                case LogDirs(broker=number) if number in self.brokers or len(self.brokers) < MOST_BROKERS:
                    before = self.brokers.get(number) or BrokerState(number, seen_ms=seen.at_ms)
                    self.keep(with_departure(fold_log_dirs(before, seen, seen.reading), self.membership))
                    self.ever_read = self.ever_read or seen.reading.outcome is Outcome.OK
                    changed.add(number)
        return changed

    def take_over(self, cluster: KafkaClusterState) -> set[int]:
        """Know what another knows, who has no broker less. The brokers that are not as they were."""
        self.membership, self.ever_read = cluster.membership, cluster.ever_read
        changed = [broker for broker in cluster.brokers if self.brokers.get(broker.broker) != broker]
        for broker in changed:
            self.keep(broker)
        return {broker.broker for broker in changed}

    def keep(self, broker: BrokerState) -> None:
        """Know this of a broker from now on."""
        if broker.broker not in self.brokers:
            self._order = None
        self.brokers[broker.broker] = broker
        self._encoded.pop(broker.broker, None)

    def forget(self, broker: int) -> None:
        """Know nothing of a broker any more."""
        self._order = None
        del self.brokers[broker]
        self._encoded.pop(broker, None)

    def volumes_among(self, keys: Iterable[VolumeKey]) -> Iterator[VolumeKey]:
        """Those of them that are known."""
        for key in keys:
            broker = self.brokers.get(key[0])
            if broker is not None and any(volume.log_dir == key[1] for volume in broker.volumes):
                yield key

    def state(self) -> KafkaClusterState:
        """What is known, to be stored."""
        return KafkaClusterState(self.membership, tuple(map(self.brokers.__getitem__, self._sorted())), self.ever_read)

    def encoded(self) -> tuple[Raw, ...]:
        """The brokers as msgpack, in order: those that did not change are not encoded again."""
        order = self._sorted()
        for number in order:
            if number not in self._encoded:
                self._encoded[number] = Raw(encode(self.brokers[number]))
        return tuple(map(self._encoded.__getitem__, order))

    def _sorted(self) -> list[int]:
        if self._order is None:
            self._order = sorted(self.brokers)
        return self._order

    def _fold_membership(self, seen: Observation, reading: KafkaCluster) -> set[int]:
        changed: set[int] = set()
        before, self.membership = self.membership, fold_membership(self.membership, seen, reading)
        if self.membership is None or self.membership is before:
            return changed
        for member in self.membership.brokers:
            if member not in self.brokers:
                self.keep(BrokerState(member, seen_ms=seen.at_ms))
                changed.add(member)
        for number, broker in self.brokers.items():
            after = with_departure(broker, self.membership)
            if after is not broker:
                self.keep(after)
                changed.add(number)
        return changed


def fold(cluster: KafkaClusterState, observations: Sequence[Observation]) -> KafkaClusterState:
    """Fold readings into what is known."""
    known = KnownCluster(cluster)
    known.fold(observations)
    return known.state()
