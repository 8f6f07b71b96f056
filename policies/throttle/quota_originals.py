"""The record of an original quota, kept on the watched cluster itself: beside each quota that Headgate sets.

A record is a quota of a client id that no client has. Kafka stores it with the quota in one atomic change, so each
broker's answer shows both or neither. It needs none of the loop's topics, and Kafka's own tools show it::

    client-id 'headgate.original:user=alice' are producer_byte_rate=3000000.0, consumer_byte_rate=65536.0, ...

`producer_byte_rate` is the original quota (absent if there was none), `consumer_byte_rate` the rate that Headgate set,
`controller_mutation_rate` a number for the cluster's name in the settings of the Headgate that set it.
"""

from dataclasses import dataclass
from urllib.parse import quote, unquote
from zlib import crc32

from policies.throttle.quota_entities import DEFAULT, Entity, parse_entity

_PREFIX = "headgate.original:"

Rate = int | None
"""Bytes per second and broker; None: no quota."""


@dataclass(frozen=True, slots=True)
class Original:
    """The record of one entity."""

    baseline: Rate
    """The original quota, which is put back; None: there was none."""
    latest: int
    """The rate that Headgate set with this record. Equal to `baseline`: an operator confirmed it as the original."""
    owner: int = 1
    """The number of the cluster's name in the settings (`owner_number`)."""

    @property
    def is_held(self) -> bool:
        """Whether the entity's quota is one of Headgate's."""
        return self.latest != self.baseline


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
