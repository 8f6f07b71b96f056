"""Which quota Kafka applies to which clients, and so which quotas escape those that are configured.

Kafka applies only the most specific quota of a client: user with client id, user with the default client id, user; the
same three for the default user; client id; default client id.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from policies.throttle.quota_entities import DEFAULT, Entity, EntityName
from policies.throttle.quota_settings import Cover, QuotaSettings, catches


@dataclass(frozen=True, slots=True)
class Coverage:
    """The quotas of a cluster that decide for clients in place of a configured one."""

    scaled: tuple[Entity, ...] = ()
    """Those that are scaled, too (`cover: all`)."""
    escaping: tuple[Entity, ...] = ()
    """Those that are left alone, so their clients escape."""


def find_coverage(settings: QuotaSettings, rates: Mapping[Entity, int]) -> Coverage:
    """Compare all producer quotas of a cluster with the configured entities.

    Args:
        rates: the present rate of each entity that has one, without Headgate's own records.
    """
    listed = {spec.entity for spec in settings.entities}
    others = [e for e in sorted(rates, key=str) if e not in listed and e.user not in settings.exclude]
    specific = [e for e in others if any(takes_precedence(e, entity) for entity in listed)]
    if settings.cover is Cover.LISTED:
        return Coverage((), tuple(e for e in specific if rates[e] > settings.floor_bytes_per_second))
    left = {e for e in specific if find_caught(e, settings.exclude, rates)}
    return Coverage(tuple(e for e in specific if e not in left), tuple(e for e in specific if e in left))


def find_caught(entity: Entity, excluded: Iterable[str], with_quota: Collection[Entity]) -> tuple[str, ...]:
    """Return the excluded users that a quota would slow down; `with_quota` are all entities that have one."""
    return tuple(user for user in excluded if catches(entity, user, [e for e in with_quota if e.user == user]))


def takes_precedence(entity: Entity, other: Entity) -> bool:
    """Whether Kafka applies `entity` in place of `other` for some client that both match."""
    if _rank(entity) >= _rank(other):
        return False
    return _overlaps(entity.user, other.user) and _overlaps(entity.client_id, other.client_id)


def _rank(entity: Entity) -> tuple[int, int]:
    """Kafka's order of precedence; lower is more specific."""
    by_user = 2 if entity.user is None else int(entity.user is DEFAULT)
    by_client = 2 if entity.client_id is None else int(entity.client_id is DEFAULT)
    return by_user, by_client


def _overlaps(one: EntityName | None, other: EntityName | None) -> bool:
    return one == other or one in (None, DEFAULT) or other in (None, DEFAULT)
