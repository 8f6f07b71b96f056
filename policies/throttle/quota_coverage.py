"""Which quota Kafka applies to which clients, and so which quotas must be set for a throttle to reach them. Pure.

Kafka applies only the most specific quota of a client: user with client id, user with the default client id, user; the
same three for the default user; client id; default client id. A client without a client id has the quota of its user,
or of the default user, and no other (Kafka 4.3.1).

A stop by the default client id therefore sets the default user, too. That quota takes precedence over those of all
client ids, and all clients of a user share it. So the other client ids keep what they have by the more specific entity
(default user, client id), and only clients without an id come under the default user.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.throttle.quota_entities import DEFAULT, Entity, EntityName
from policies.throttle.quota_settings import Cover, QuotaSettings

FREE_RATE = 10**15
"""The quota that keeps an excluded user free: a petabyte a second."""
_ANY_USER = Entity(DEFAULT)
_BY_CLIENT_ID = (Entity(DEFAULT, DEFAULT), Entity(None, DEFAULT))
_ANOTHER = "\0"
"""Stands for a user or client id that no quota names."""
CATCH_ALL = frozenset({_ANY_USER, *_BY_CLIENT_ID})
"""Entities that slow down everybody without a more specific quota."""


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
    specific = tuple(e for e in others if any(takes_precedence(e, entity) for entity in listed))
    if settings.cover is Cover.ALL:
        return Coverage(scaled=specific)
    return Coverage(escaping=tuple(e for e in specific if rates[e] > settings.floor_bytes_per_second))


def find_deciding(quotas: Collection[Entity], user: str, client_id: str) -> Entity | None:
    """Return the entity whose quota Kafka applies to a client; `client_id` may be empty."""
    ids: tuple[EntityName | None, ...] = (client_id, DEFAULT, None) if client_id else (None,)
    ordered = (Entity(of_user, of_client) for of_user in (user, DEFAULT, None) for of_client in ids)
    return next((entity for entity in ordered if entity in quotas), None)


def find_additions(
    settings: QuotaSettings, rates: Mapping[Entity, int], planned: Mapping[Entity, int], *, is_stop: bool
) -> dict[Entity, int]:
    """Return the quotas to set besides those of a throttle, for as long as it lasts.

    A stop reaches clients without a client id, no client gets a looser quota than it had, and no excluded user is
    slowed down.

    Args:
        rates: the rate of each entity that has one without Headgate.
        planned: the rates of the throttle.
    """
    additions: dict[Entity, int] = {}
    reached = _find_by_client_id(settings, planned) if is_stop and settings.cover is Cover.ALL else None
    if reached is not None and misses_empty_ids(settings, planned):
        additions[_ANY_USER] = min(planned[reached], rates.get(_ANY_USER, planned[reached]))
    after = {**rates, **planned, **additions}
    for entity in (*additions, *(e for e in planned if e not in rates)):
        # Quotas of client ids hold beside a stop's default user, those of the throttle itself included.
        beside = after if entity not in planned else rates
        for kept, rate in _keep_lower(entity, {e: after[e] for e in beside}, after).items():
            additions[kept] = min(rate, additions.get(kept, rate))
    after |= additions
    changed = {e for e in (*planned, *additions) if after[e] != rates.get(e)}
    free = (user for user in settings.exclude if _is_caught(user, after, changed))
    return {**additions, **{Entity(user): FREE_RATE for user in free}}


def misses_empty_ids(settings: QuotaSettings, quotas: Collection[Entity]) -> bool:
    """Whether client ids are slowed down by default, and clients without an id by neither an entity nor `quotas`."""
    listed = {spec.entity for spec in settings.entities}
    return not listed.isdisjoint(_BY_CLIENT_ID) and _ANY_USER not in listed and _ANY_USER not in quotas


def takes_precedence(entity: Entity, other: Entity) -> bool:
    """Whether Kafka applies `entity` in place of `other` for some client that both match."""
    if _rank(entity) >= _rank(other):
        return False
    return _overlaps(entity.user, other.user) and _overlaps(entity.client_id, other.client_id)


def _find_by_client_id(settings: QuotaSettings, planned: Collection[Entity]) -> Entity | None:
    listed = {spec.entity for spec in settings.entities}
    return next((entity for entity in _BY_CLIENT_ID if entity in listed and entity in planned), None)


def _keep_lower(entity: Entity, beside: Mapping[Entity, int], after: Mapping[Entity, int]) -> dict[Entity, int]:
    """Return the quotas that a new quota of `entity` would loosen, at the entities that take precedence over it."""
    kept: dict[Entity, int] = {}
    others = [other for other in beside if other != entity]
    for both in {_join(entity, other) for other in others if takes_precedence(entity, other)}:
        user, client_id = (name if isinstance(name, str) else _ANOTHER for name in (both.user, both.client_id or ""))
        deciding = find_deciding(others, user, client_id)
        if deciding is None or not takes_precedence(entity, deciding):
            continue
        rate = beside[deciding]
        if rate < after[entity] or (rate == after[entity] and both not in after):
            kept[both] = min(rate, after.get(both, rate))
    return kept


def _is_caught(user: str, after: Collection[Entity], changed: Collection[Entity]) -> bool:
    """Whether a changed quota decides for some client of a user."""
    return any(find_deciding(after, user, client_id) in changed for client_id in _list_client_ids(changed))


def _list_client_ids(quotas: Iterable[Entity]) -> Iterator[str]:
    """Yield each client id that a quota names, none at all, and one that no quota names."""
    yield from (entity.client_id for entity in quotas if isinstance(entity.client_id, str))
    yield from ("", _ANOTHER)


def _join(one: Entity, other: Entity) -> Entity:
    """Return the entity of the clients that match both."""
    return Entity(_closer(one.user, other.user), _closer(one.client_id, other.client_id))


def _closer(one: EntityName | None, other: EntityName | None) -> EntityName | None:
    """Return the more specific of two names that overlap."""
    return max(one, other, key=lambda name: 0 if name is None else 1 if name is DEFAULT else 2)


def _rank(entity: Entity) -> tuple[int, int]:
    """Kafka's order of precedence; lower is more specific."""
    by_user = 2 if entity.user is None else int(entity.user is DEFAULT)
    by_client = 2 if entity.client_id is None else int(entity.client_id is DEFAULT)
    return by_user, by_client


def _overlaps(one: EntityName | None, other: EntityName | None) -> bool:
    return one == other or one in (None, DEFAULT) or other in (None, DEFAULT)
