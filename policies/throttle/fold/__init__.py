"""Folds readings into a cluster's state, one module per kind of reading.

The result depends on the readings alone, not on their order within a batch or on repetition.
"""

from collections.abc import Sequence

from policies.observations import Observation, Outcome, in_order
from policies.throttle.fold.log_dirs import fold_log_dirs
from policies.throttle.fold.membership import fold_membership, update_departure
from policies.throttle.readings import KafkaCluster, LogDirs
from policies.throttle.state import BrokerState, KafkaClusterState

MOST_BROKERS = 10_000
"""The most brokers that are kept: as many as a membership may name. Readings of further brokers are ignored."""


def fold(cluster: KafkaClusterState, observations: Sequence[Observation]) -> KafkaClusterState:
    """Return the cluster after some readings; readings older than the last one change nothing."""
    brokers = {b.broker: b for b in cluster.brokers}
    membership, ever_read = cluster.membership, cluster.ever_read
    for seen in in_order(tuple(observations)):
        match seen.reading:
            case KafkaCluster():
                before, membership = membership, fold_membership(membership, seen, seen.reading)
                if membership is None or membership is before:
                    continue
                for member in membership.brokers:
                    brokers.setdefault(member, BrokerState(member, seen_ms=seen.at_ms))
                brokers = {number: update_departure(broker, membership) for number, broker in brokers.items()}
            case LogDirs(broker=number) if number in brokers or len(brokers) < MOST_BROKERS:
                broker = brokers.get(number) or BrokerState(number, seen_ms=seen.at_ms)
                brokers[number] = update_departure(fold_log_dirs(broker, seen, seen.reading), membership)
                ever_read = ever_read or seen.reading.outcome is Outcome.OK
    return KafkaClusterState(membership, tuple(brokers[number] for number in sorted(brokers)), ever_read)
