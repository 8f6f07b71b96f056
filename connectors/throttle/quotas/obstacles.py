"""Reasons why a cluster's quotas must not be set, as found at its brokers."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from kafka.errors import AuthorizationError

from connectors.kafka.quotas import CALLBACK_KEY, RATE_KEY, BrokerQuotaSettings
from connectors.throttle.quotas.client import QuotaApi
from policies.throttle.quota_coverage import find_caught
from policies.throttle.quota_plan import QuotaReason
from policies.throttle.quota_settings import Entity, QuotaSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Obstacles:
    """The reasons of one cluster."""

    callbacks: Mapping[int, str] = field(default_factory=dict)
    """Brokers with a quota callback, and its class."""
    caught: Mapping[Entity, tuple[str, ...]] = field(default_factory=dict)
    """Entities whose quota would slow down excluded users."""

    def find_reason(self, entity: Entity) -> QuotaReason | None:
        """Return the reason why this entity's quota must not be set."""
        if self.callbacks:
            return QuotaReason.QUOTA_CALLBACK
        return QuotaReason.EXCLUDED_USER if entity in self.caught else None

    def explain(self) -> Iterable[str]:
        """Yield one sentence for each obstacle, with the remedy."""
        for name in sorted(set(self.callbacks.values())):
            brokers = ", ".join(str(broker) for broker in sorted(self.callbacks) if self.callbacks[broker] == name)
            yield (
                f"broker {brokers} has {CALLBACK_KEY}={name}, so quotas that Headgate sets have no effect: "
                "take it out of the broker's configuration, or `quotas` out of these settings"
            )
        for entity, users in self.caught.items():
            for user in users:
                yield (
                    f"entity {entity} would slow down the excluded user {user}, who has no quota of their own: give "
                    f"them one with kafka-configs.sh --alter --entity-type users --entity-name {user} --add-config "
                    f"{RATE_KEY}=<bytes per second>"
                )


def find_obstacles(
    settings: QuotaSettings, rates: Collection[Entity], brokers: Mapping[int, BrokerQuotaSettings]
) -> Obstacles:
    """Compare settings with the entities that have a quota, and with how the brokers enforce quotas."""
    caught = {spec.entity: find_caught(spec.entity, settings.exclude, rates) for spec in settings.entities}
    callbacks = {broker: each.callback for broker, each in brokers.items() if each.callback}
    return Obstacles(callbacks, {entity: users for entity, users in caught.items() if users})


def read_broker_settings(client: QuotaApi) -> Mapping[int, BrokerQuotaSettings]:
    """Ask the brokers. Raises KafkaError if they do not answer; a question that they refuse counts as no obstacle."""
    try:
        return client.broker_settings()
    except AuthorizationError:
        _log.warning("not authorized to read the brokers' configurations: a quota callback would not be noticed")
        return {}
