"""Folds membership: the cluster's brokers by the last good reading, and since when an absent broker is missing."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.throttle.readings import KafkaCluster
from policies.throttle.state import BrokerMembership, BrokerState


def fold_membership(
    known: BrokerMembership | None, seen: Observation, reading: KafkaCluster
) -> BrokerMembership | None:
    """The members after a reading of them."""
    if reading.outcome is not Outcome.OK or (known and (seen.at_ms, seen.id) <= (known.at_ms, known.id)):
        return known
    return BrokerMembership(seen.at_ms, seen.id, tuple(sorted({b.broker for b in reading.brokers})))


def with_departure(broker: BrokerState, membership: BrokerMembership | None) -> BrokerState:
    """With the moment it left: a membership reading as new as its last good one lacks it."""
    if membership is None:
        return broker if broker.left_ms is None else replace(broker, left_ms=None)
    if membership.has(broker.broker) or broker.read_ms > membership.at_ms:
        # One that is back is waited for anew: it could not be read meanwhile.
        return broker if broker.left_ms is None else replace(broker, left_ms=None, seen_ms=membership.at_ms)
    return broker if broker.left_ms is not None else replace(broker, left_ms=membership.at_ms)
