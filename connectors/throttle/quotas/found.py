"""The result of a look at one cluster: why its quotas must not be set, and the reading that the actuator publishes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from kafka.errors import AuthorizationError

from connectors.kafka.quotas import CALLBACK_KEY, BrokerQuotaSettings, QuotaClient
from connectors.throttle.quotas.own_quotas import OwnQuotas
from policies.observations import Outcome
from policies.throttle.quota_entities import Entity
from policies.throttle.quota_originals import Rate
from policies.throttle.quota_plan import QuotaPlan, QuotaReason, WantedQuota
from policies.throttle.quota_state import MOST_NAMED, NamedQuota, QuotaState
from policies.units import MAX_INT64

_log = structlog.get_logger(__name__)


def find_callbacks(brokers: Mapping[int, BrokerQuotaSettings]) -> dict[int, str]:
    """Return the brokers with a quota callback, and its class: they heed no quotas."""
    return {broker: each.callback for broker, each in sorted(brokers.items()) if each.callback}


def explain_callbacks(callbacks: Mapping[int, str]) -> Iterable[str]:
    """Yield one sentence for each class, with the remedy."""
    for name in sorted(set(callbacks.values())):
        brokers = ", ".join(str(broker) for broker in callbacks if callbacks[broker] == name)
        yield (
            f"broker {brokers} has {CALLBACK_KEY}={name}, so quotas that Headgate sets have no effect: "
            "take it out of the broker's configuration, or `quotas` out of these settings"
        )


def read_broker_settings(client: QuotaClient) -> Mapping[int, BrokerQuotaSettings]:
    """Ask the brokers. Raises KafkaError if they do not answer; a question that they refuse counts as no obstacle."""
    try:
        return client.broker_settings()
    except AuthorizationError:
        _log.warning("not authorized to read the brokers' configurations: a quota callback would not be noticed")
        return {}


@dataclass(frozen=True, slots=True)
class PlannedQuotas:
    """The plans of one look."""

    throttle: Mapping[Entity, QuotaPlan] = field(default_factory=dict)
    """Those of the entities that are slowed down, or put back."""
    added: Mapping[Entity, QuotaPlan] = field(default_factory=dict)
    """Those that make the others fit all clients (`quota_coverage.find_additions`)."""
    slowed: Mapping[Entity, int] = field(default_factory=dict)
    """The rates of the entities that are slowed down, by Headgate's quota or by a tighter one of their own."""
    misses_empty_ids: bool = False
    """Whether clients without a client id escape."""
    not_set: str | None = None
    """Why nobody is slowed down although producers should be; None: somebody is, or nobody should be."""

    @property
    def all(self) -> dict[Entity, QuotaPlan]:
        """All plans."""
        return {**self.throttle, **self.added}


def explain_refusals(plans: Mapping[Entity, QuotaPlan]) -> str:
    """Write why no quota of a throttle is set."""
    return "; ".join(
        f"{entity}: {each.reason.meaning.rstrip('.')}" for entity, each in list(plans.items())[:_EXPLAINED]
    )


_EXPLAINED = 3


def describe_quotas(
    cluster: str,
    wanted: WantedQuota | None,
    plans: PlannedQuotas,
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
    held = {entity: planned for entity, planned in plans.all.items() if planned.holds}
    is_confirmed = all(own.confirmed(entity) >= brokers for entity in held)
    return QuotaState(
        cluster=cluster,
        outcome=Outcome.OK,
        factor=wanted.factor if wanted is not None and wanted.applies else None,
        set_count=len(plans.slowed),
        is_settled=is_confirmed and not any(p.reason is QuotaReason.STEPPING for p in held.values()),
        brokers=brokers,
        let_through_bytes_per_second=min(sum(plans.slowed.values()) * brokers, MAX_INT64),
        window_seconds=own.window_seconds,
        escaping=_first(NamedQuota(entity=str(e), bytes_per_second=rate) for e, rate in escaping.items()),
        escaping_count=len(escaping),
        clients_without_id_escape=plans.misses_empty_ids,
        not_set=plans.not_set,
        contested=_first(
            NamedQuota(entity=str(e), bytes_per_second=c.value, period_seconds=round(c.period_seconds or 0.0))
            for e, c in own.contests().items()
            if c.is_contested
        ),
        unknown=_first(
            NamedQuota(entity=str(e), bytes_per_second=p.found)
            for e, p in plans.all.items()
            if p.reason is QuotaReason.UNKNOWN_ORIGINAL
        ),
        callback_brokers=tuple(sorted(callback_brokers))[:MOST_NAMED],
        excluded_users=tuple(excluded_users)[:MOST_NAMED],
    )


def _first(quotas: Iterable[NamedQuota]) -> tuple[NamedQuota, ...]:
    return tuple(quotas)[:MOST_NAMED]
