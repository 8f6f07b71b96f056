"""Folds the membership: the members by the last good reading, and since when an absent broker is missing."""

from msgspec.structs import replace

from policies.observations import Observation, Outcome
from policies.throttle.readings import KafkaCluster
from policies.throttle.state import BrokerMembership, BrokerState


def fold_membership(
    known: BrokerMembership | None, seen: Observation, reading: KafkaCluster
) -> BrokerMembership | None:
    """Return the membership after a reading of it."""
    if reading.outcome is not Outcome.OK or (known and (seen.at_ms, seen.id) <= (known.at_ms, known.id)):
        return known
    return BrokerMembership(seen.at_ms, seen.id, tuple(sorted({b.broker for b in reading.brokers})))


def update_departure(broker: BrokerState, membership: BrokerMembership | None) -> BrokerState:
    """Set when a broker left: a membership as new as its last good reading lacks it."""
    if membership is None:
        return broker if broker.left_ms is None else replace(broker, left_ms=None)
    if membership.has(broker.broker) or broker.read_ms > membership.at_ms:
        # A broker that is back gets the full validity again, because it could not be read in between.
        return broker if broker.left_ms is None else replace(broker, left_ms=None, seen_ms=membership.at_ms)
    return broker if broker.left_ms is not None else replace(broker, left_ms=membership.at_ms)
