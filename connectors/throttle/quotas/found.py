"""The result of a look at one cluster: why its quotas must not be set, and the reading that the actuator publishes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from kafka.errors import AuthorizationError

from connectors.kafka.quotas import CALLBACK_KEY, RATE_KEY, BrokerQuotaSettings, QuotaClient
from connectors.throttle.quotas.own_quotas import OwnQuotas
from policies.observations import Outcome
from policies.throttle.quota_coverage import find_caught
from policies.throttle.quota_entities import Entity
from policies.throttle.quota_originals import Rate
from policies.throttle.quota_plan import QuotaPlan, QuotaReason, WantedQuota
from policies.throttle.quota_settings import QuotaSettings
from policies.throttle.quota_state import MOST_NAMED, NamedQuota, QuotaState
from policies.units import MAX_INT64

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


def read_broker_settings(client: QuotaClient) -> Mapping[int, BrokerQuotaSettings]:
    """Ask the brokers. Raises KafkaError if they do not answer; a question that they refuse counts as no obstacle."""
    try:
        return client.broker_settings()
    except AuthorizationError:
        _log.warning("not authorized to read the brokers' configurations: a quota callback would not be noticed")
        return {}


def describe_quotas(
    cluster: str,
    wanted: WantedQuota | None,
    plans: Mapping[Entity, QuotaPlan],
    escaping: Mapping[Entity, Rate],
    own: OwnQuotas,
    *,
    brokers: int,
    callback_brokers: Iterable[int],
    excluded_users: Iterable[str],
) -> QuotaState:
    """Return the quotas that are set, the ones that escape, and the ones that somebody else changes.

    Args:
        wanted: the factor that is carried out; None: none is.
        escaping: the quotas that decide for clients in place of an entity.
        brokers: the number of brokers in service.
    """
    held = {entity: planned for entity, planned in plans.items() if planned.holds}
    is_confirmed = all(own.confirmed(entity) >= brokers for entity in held)
    rates = sum(planned.rate or 0 for planned in held.values())
    return QuotaState(
        cluster=cluster,
        outcome=Outcome.OK,
        factor=wanted.factor if wanted is not None and wanted.applies else None,
        set_count=len(held),
        is_settled=is_confirmed and not any(p.reason is QuotaReason.STEPPING for p in held.values()),
        brokers=brokers,
        let_through_bytes_per_second=min(rates * brokers, MAX_INT64),
        window_seconds=own.window_seconds,
        escaping=_first(NamedQuota(entity=str(e), bytes_per_second=rate) for e, rate in escaping.items()),
        escaping_count=len(escaping),
        contested=_first(
            NamedQuota(entity=str(e), bytes_per_second=c.value, period_seconds=round(c.period_seconds or 0.0))
            for e, c in own.contests().items()
            if c.is_contested
        ),
        unknown=_first(
            NamedQuota(entity=str(e), bytes_per_second=p.found)
            for e, p in plans.items()
            if p.reason is QuotaReason.UNKNOWN_ORIGINAL
        ),
        callback_brokers=tuple(sorted(callback_brokers))[:MOST_NAMED],
        excluded_users=tuple(excluded_users)[:MOST_NAMED],
    )


def _first(quotas: Iterable[NamedQuota]) -> tuple[NamedQuota, ...]:
    return tuple(quotas)[:MOST_NAMED]
