"""The reading that the quota actuator publishes about a look at one cluster's quotas."""

from collections.abc import Iterable, Mapping

from connectors.throttle.quotas.own_quotas import OwnQuotas
from policies.observations import Outcome
from policies.throttle.quota_originals import Rate
from policies.throttle.quota_plan import QuotaPlan, QuotaReason, WantedQuota
from policies.throttle.quota_settings import Entity
from policies.throttle.quota_state import MOST_NAMED, NamedQuota, QuotaState
from policies.units import MAX_INT64


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
        cluster: the watched cluster.
        wanted: the factor that is carried out; None: none is.
        plans: the plans of this look, which are carried out.
        escaping: the quotas that decide for clients in place of an entity.
        own: Headgate's changes on the cluster.
        brokers: the number of brokers in service.
        callback_brokers: the brokers that ignore quotas.
        excluded_users: the users whose quotas are never changed.
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
