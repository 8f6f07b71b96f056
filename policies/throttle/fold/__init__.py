"""From readings to what is known of a cluster: each kind of reading is folded in by its own module.

The result depends on the readings alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from policies.observations import Observation, Outcome, in_order
from policies.throttle.fold.log_dirs import fold_log_dirs
from policies.throttle.fold.membership import fold_membership, with_departure
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.throttle.state import BrokerState, KafkaClusterState


def fold(cluster: KafkaClusterState, observations: Sequence[Observation]) -> KafkaClusterState:
    """Fold readings into what is known; older ones than those known change nothing."""
    brokers = {b.broker: b for b in cluster.brokers}
    membership, ever_read = cluster.membership, cluster.ever_read
    for seen in in_order(tuple(observations)):
        match seen.reading:
            case KafkaCluster():
                membership = fold_membership(membership, seen, seen.reading)
                for member in membership.brokers if membership else ():
                    brokers.setdefault(member, BrokerState(member, seen_ms=seen.at_ms))
                brokers = {number: with_departure(broker, membership) for number, broker in brokers.items()}
            case LogDirs(broker=number):
                before = brokers.get(number) or BrokerState(number, seen_ms=seen.at_ms)
                brokers[number] = with_departure(fold_log_dirs(before, seen, seen.reading), membership)
                ever_read = ever_read or seen.reading.outcome is Outcome.OK
    return KafkaClusterState(membership, tuple(brokers[b] for b in sorted(brokers)), ever_read)
