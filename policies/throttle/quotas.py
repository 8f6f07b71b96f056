"""The quotas that carry the factor out: the actuator's reading of them, which ones to set, and how low they may be now.

All of it is pure. Seconds are those of any monotonic clock.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, unquote
from zlib import crc32

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from policies.free_space.levels import Rate
from policies.observations import Detail, Reading
from policies.throttle.settings import DEFAULT, Cover, Entity, EntityName, QuotaSettings, parse_entity
from policies.units import MAX_INT64

MOST_NAMED = 20
"""A reading names at most this many entities of each kind, and counts the others."""

_LONGEST_TEXT = 1000


def _cut(text: Any) -> Any:
    return text[:_LONGEST_TEXT] if isinstance(text, str) else text


EntityText = Annotated[str, Field(max_length=_LONGEST_TEXT), BeforeValidator(_cut)]


class NamedQuota(BaseModel):
    """One quota on the watched cluster."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    entity: EntityText = Field(description="Such as `user=alice,client-id=<default>`.")
    bytes_per_second: int | None = Field(
        default=None, ge=0, le=MAX_INT64, description="Its `producer_byte_rate`; null: it has none."
    )
    period_seconds: float | None = Field(
        default=None, ge=0.0, description="The time between two times at which somebody else put it back."
    )


class QuotaState(Reading):
    """The quotas of one cluster as the actuator found them, published when that changes and at least each minute."""

    event_type: ClassVar[str] = "headgate.quota-state.v1"

    factor: float | None = Field(
        default=None, ge=0.0, le=1.0, description="The factor that is carried out; null: none is."
    )
    set_count: int = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Entities that are slowed down: by a quota of Headgate's, or by a tighter one of their own.",
    )
    is_settled: bool = Field(
        default=False, description="Every broker that answers shows all of them, and none goes down in steps."
    )
    brokers: int = Field(default=0, ge=0, le=MAX_INT64, description="Brokers in service.")
    let_through_bytes_per_second: int = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="All quotas of Headgate's together, times the brokers: what one client of each entity may write.",
    )
    window_seconds: float = Field(default=11.0, gt=0.0, description="The longest window of a broker's quotas.")
    escaping: tuple[NamedQuota, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Quotas that decide for clients in place of an entity."
    )
    escaping_count: int = Field(default=0, ge=0, le=MAX_INT64, description="All of them.")
    clients_without_id_escape: bool = Field(
        default=False, description="Clients without a client id are not slowed down: no quota of a client id is theirs."
    )
    not_set: Detail | None = Field(
        default=None, description="Why nobody is slowed down although `factor` is below 1.0; null: somebody is."
    )
    contested: tuple[NamedQuota, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Quotas that somebody else puts back, each to this value."
    )
    unknown: tuple[NamedQuota, ...] = Field(
        default=(),
        max_length=MOST_NAMED,
        description="Quotas that Headgate may have set, of which no record tells the original.",
    )
    callback_brokers: tuple[int, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Brokers that ignore quotas, because they have a callback."
    )
    excluded_users: tuple[EntityText, ...] = Field(
        default=(), max_length=MOST_NAMED, description="Users whose quotas are never changed."
    )


# Which quota Kafka applies to which clients, and so which quotas must be set for a throttle to reach them.
#
# Kafka applies only the most specific quota of a client: user with client id, user with the default client id, user;
# the same three for the default user; client id; default client id. A client without a client id has the quota of its
# user, or of the default user, and no other (Kafka 4.3.1).
#
# A stop by the default client id therefore sets the default user, too. That quota takes precedence over those of all
# client ids, and all clients of a user share it. So the other client ids keep what they have by the more specific
# entity (default user, client id), and only clients without an id come under the default user.

FREE_RATE = 10**15
"""The quota that keeps an excluded user free: a petabyte a second."""
_ANY_USER = Entity(DEFAULT)
_BY_CLIENT_ID = (Entity(DEFAULT, DEFAULT), Entity(None, DEFAULT))
_ANOTHER = "\0"
"""Stands for a user or client id that no quota names."""
CATCH_ALL = frozenset({_ANY_USER, *_BY_CLIENT_ID})
"""Entities that slow down everybody without a more specific quota."""


def exclude_own(settings: QuotaSettings, user: str | None) -> str | None:
    """Return the line that keeps Headgate's own user (None: not known) free; None if no throttle slows it down."""
    if user in settings.exclude or not any(spec.entity in CATCH_ALL for spec in settings.entities):
        return None
    return f"exclude: [{user}]" if user else "a user of its own (kafka.sasl), and exclude: [that user]"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The quotas of a cluster that decide for clients in place of a configured one."""

    scaled: tuple[Entity, ...] = ()
    """Those that are scaled, too (`cover: all`)."""
    escaping: tuple[Entity, ...] = ()
    """Those that are left alone, so their clients escape."""


def find_coverage(settings: QuotaSettings, rates: Mapping[Entity, int]) -> Coverage:
    """Compare the present rates of all entities, without Headgate's own records, with the configured entities."""
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
    """Return the additional quotas that a throttle needs for as long as it lasts, beside the `planned` rates.

    A stop reaches clients without a client id, no client gets a looser quota than without Headgate (`rates`), and no
    excluded user is slowed down.
    """
    additions: dict[Entity, int] = {}
    by_client_id = planned.keys() & {spec.entity for spec in settings.entities} & {*_BY_CLIENT_ID}
    is_reaching = is_stop and settings.cover is Cover.ALL
    reached = next((entity for entity in _BY_CLIENT_ID if entity in by_client_id), None) if is_reaching else None
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
    # Each client id that a changed quota names, none at all, and one that no quota names.
    client_ids = {*(e.client_id for e in changed if isinstance(e.client_id, str)), "", _ANOTHER}
    free = (user for user in settings.exclude if any(find_deciding(after, user, id_) in changed for id_ in client_ids))
    return {**additions, **{Entity(user): FREE_RATE for user in free}}


def misses_empty_ids(settings: QuotaSettings, quotas: Collection[Entity]) -> bool:
    """Whether client ids are slowed down by default, and clients without an id by neither an entity nor `quotas`."""
    listed = {spec.entity for spec in settings.entities}
    return not listed.isdisjoint(_BY_CLIENT_ID) and _ANY_USER not in listed and _ANY_USER not in quotas


def takes_precedence(entity: Entity, other: Entity) -> bool:
    """Whether Kafka applies `entity` in place of `other` for some client that both match."""
    pairs = ((entity.user, other.user), (entity.client_id, other.client_id))
    is_closer = [_measure_breadth(one) for one, _ in pairs] < [_measure_breadth(two) for _, two in pairs]
    return is_closer and all(one == two or {one, two} & {None, DEFAULT} for one, two in pairs)


def _keep_lower(entity: Entity, beside: Mapping[Entity, int], after: Mapping[Entity, int]) -> dict[Entity, int]:
    """Return the quotas that a new quota of `entity` would loosen, at the entities that take precedence over it."""
    kept: dict[Entity, int] = {}
    others = [other for other in beside if other != entity]
    joined = {  # the entities of the clients that match both
        Entity(*(min(pair, key=_measure_breadth) for pair in ((entity.user, e.user), (entity.client_id, e.client_id))))
        for e in others
        if takes_precedence(entity, e)
    }
    for both in joined:
        user, client_id = (name if isinstance(name, str) else _ANOTHER for name in (both.user, both.client_id or ""))
        deciding = find_deciding(others, user, client_id)
        if deciding is None or not takes_precedence(entity, deciding):
            continue
        if (rate := beside[deciding]) <= after[entity] and rate < after.get(both, inf):
            kept[both] = rate
    return kept


def _measure_breadth(name: EntityName | None) -> int:
    """Kafka's order of precedence; lower is more specific."""
    return 2 if name is None else int(name is DEFAULT)


# The record of an original quota, kept on the watched cluster itself: beside each quota that Headgate sets.
#
# A record is a quota of a client id that no client has. Kafka stores it with the quota in one atomic change, so each
# broker's answer shows both or neither. It needs none of the loop's topics, and Kafka's own tools show it::
#
#     client-id 'headgate.original:user=alice' are producer_byte_rate=3000000.0, consumer_byte_rate=65536.0, ...
#
# `producer_byte_rate` is the original quota (absent if there was none), `consumer_byte_rate` the rate that Headgate
# set, `controller_mutation_rate` a number for the cluster's name in the settings of the Headgate that set it.

_PREFIX = "headgate.original:"


def owner_number(cluster: str) -> int:
    """Return a number for a cluster's name: two Headgates may watch one cluster by two names."""
    return crc32(cluster.encode()) or 1


def record_entity(entity: Entity) -> Entity:
    """Return the entity that carries the record of another one."""
    parts = (f"{kind}={DEFAULT.value if name is DEFAULT else quote(name, safe='')}" for kind, name in entity.parts)
    return Entity(client_id=_PREFIX + ",".join(parts))


def recorded_entity(record: Entity) -> Entity | None:
    """Return the entity whose record this is; None if it is no record."""
    if record.user is not None or not isinstance(record.client_id, str) or not record.client_id.startswith(_PREFIX):
        return None
    return parse_entity(record.client_id.removeprefix(_PREFIX), decode=unquote)


# How low a quota may be set now, so that Kafka makes no producer wait too long.
#
# Kafka makes a producer wait for (the bytes that it counted in its window) / (the new quota) - (the window), without
# a bound. It does not report these bytes, but the greatest quota in force within the window limits them. So a quota
# goes down in steps, each after the window of the step before. A rate that somebody else put back for a moment lets
# through no more than that rate for that time.

DEFAULT_WINDOW_SECONDS = 11.0
"""Kafka's window: `quota.window.num` (11) samples of `quota.window.size.seconds` (1), by default."""
_AIM = 0.75
"""The share of the longest wait that a step may use. The rest is for the request that breaks the quota in force: Kafka
accepts and counts it."""


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """The lowest rate that a quota may have, and for how long."""

    least: int
    """Bytes per second and broker."""
    seconds: float
    """Time until it may be lower; infinite while the rate in force stays."""


@dataclass(frozen=True, slots=True)
class PastRate:
    """A rate that was in force within the window."""

    until_seconds: float
    bytes_per_second: int
    put_back_seconds: float | None = None
    """If somebody else had put it back: for how long at most. Its bytes come on top of the others."""


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The rates that were in force within the window, without the present one."""

    past: tuple[PastRate, ...] = ()

    def changed(self, ended: PastRate, window_seconds: float) -> "RatesInForce":
        """Return the rates after a change."""
        recent = (each for each in self.past if each.until_seconds > ended.until_seconds - window_seconds)
        return RatesInForce((*recent, ended))

    def step(
        self, at_seconds: float, in_force: int | None, max_told_wait_seconds: float, window_seconds: float
    ) -> QuotaStep | None:
        """Return how low a quota may be set now; None if no rate within the window is known.

        `in_force` is the present quota, or without one the rate that producers write; None if it is not known.
        """
        recent = [each for each in self.past if each.until_seconds > at_seconds - window_seconds]
        if in_force is None and not recent:
            return None
        highest, put_back_bytes = in_force or 0, 0.0
        for each in recent:
            if each.put_back_seconds is None:
                highest = max(highest, each.bytes_per_second)
            else:
                put_back_bytes += each.bytes_per_second * min(each.put_back_seconds, window_seconds)
        least = ceil((highest * window_seconds + put_back_bytes) / (_AIM * max_told_wait_seconds + window_seconds))
        higher = (each for each in recent if each.bytes_per_second > (in_force or 0))
        left = (each.until_seconds + window_seconds - at_seconds for each in higher)
        return QuotaStep(least, max(left, default=float("inf")))


def full_rate_seconds(rate: float, floor: float, max_told_wait_seconds: float | None, window_seconds: float) -> float:
    """Return for how long producers at a rate write as much as they do while a quota goes down from it to the floor."""
    if max_told_wait_seconds is None:
        return 0.0
    share, written, present = window_seconds / (_AIM * max_told_wait_seconds + window_seconds), 0.0, rate
    while present * share > floor:
        present *= share
        written += present * window_seconds
    return written / rate


def may_be_ours(found: Rate, base: int | None, floor: int, factors: Iterable[float]) -> bool:
    """Return whether a quota without a record equals the floor, or the base times one of the known factors."""
    throttling = (factor for factor in factors if factor < 1.0)
    return found == floor or (
        base is not None and any(found == max(int(base * factor), floor) for factor in throttling)
    )


# Who else sets a quota: how often it was put back, and at which period.

_TIMES_CONTESTED = 3
"""A quota that was put back this many times is fought over."""
_KEPT = 5
_FORGOTTEN_AFTER_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Contest:
    """The last times at which somebody else put one quota back."""

    at: tuple[float, ...]
    value: Rate
    """The value that was found; None: the quota was removed."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody sets it again and again."""
        return len(self.at) >= _TIMES_CONTESTED

    @property
    def period_seconds(self) -> float | None:
        """The median time between two, if it came back more than once."""
        between = sorted(after - before for before, after in pairwise(self.at))
        return between[len(between) // 2] if between else None

    def is_over(self, now: float) -> bool:
        """Whether it has not come back for so long that it need not be expected any more."""
        period = self.period_seconds
        return now - self.at[-1] > (_FORGOTTEN_AFTER_SECONDS if period is None else 3 * period + 3)


def note_put_back(before: Contest | None, now: float, value: Rate) -> Contest:
    """Return the contest after a quota was found put back; another value begins another contest."""
    at = before.at if before is not None and before.value == value else ()
    return Contest((*at, now)[-_KEPT:], value)
