"""The bounds of a cluster's state: what forged or broken readings can make it hold at most.

Readings of servers that are members count only among members, so forged ones of other servers take no room from them.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Generic, NamedTuple, TypeVar

from policies.free_space.volumes import VolumeState

Server = TypeVar("Server", bound=Hashable)


class VolumeBounds(NamedTuple):
    """The most servers and volumes of one cluster, and the words for them in sentences."""

    most_servers: int
    most_volumes: int
    servers: str
    volumes: str


class ServerReading(NamedTuple, Generic[Server]):
    """The part of a reading that takes room: the volumes of one server."""

    id: str
    """The id of the observation."""
    server: Server
    volumes: frozenset[str]


def find_excess(
    bounds: VolumeBounds,
    known: Mapping[Server, Sequence[VolumeState]],
    members: Set[Server],
    readings: Iterable[ServerReading[Server]],
) -> dict[str, str]:
    """Return, by observation id, the bound for which a reading is refused.

    Args:
        known: the volumes of each server before the readings. A volume that a reading lacks stays for a while.
        readings: in order.
    """
    counts = {server: len(volumes) for server, volumes in known.items()}
    totals = {True: sum(counts.get(server, 0) for server in members), False: sum(counts.values())}
    refused: dict[str, str] = {}
    for reading in readings:
        is_member, before = reading.server in members, counts.get(reading.server, 0)
        kept = {volume.log_dir for volume in known.get(reading.server, ())}
        after = max(before, len(reading.volumes | kept))
        if reading.server not in counts and len(counts) >= bounds.most_servers + len(members):
            refused[reading.id] = f"more than {bounds.most_servers} {bounds.servers}"
        elif after > before and totals[is_member] + after - before > bounds.most_volumes:
            refused[reading.id] = f"more than {bounds.most_volumes} {bounds.volumes}"
        else:
            counts[reading.server] = after
            totals[False] += after - before
            totals[True] += (after - before) if is_member else 0
    return refused
