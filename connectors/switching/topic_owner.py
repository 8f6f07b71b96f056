"""Finds the broker that has loaded a topic, in the brokers' ZooKeeper.

A topic belongs to the bundle of its namespace whose range contains the CRC32 of its name. The owner of a bundle has an
ephemeral znode (`NamespaceBundles` and `OwnershipCache` of Pulsar 4.2). Brokers with the extensible load manager keep
ownership elsewhere, so every topic of theirs seems to have no owner.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote_plus

from connectors.pulsar.metadata import MANAGED_LEDGERS
from connectors.zookeeper.owners import owner_member
from connectors.zookeeper.tree import Reader
from policies.sessions.readings import NAMESPACES

_CURSOR = re.compile(
    rf"{MANAGED_LEDGERS}/(?P<namespace>[^/]+/[^/]+(?:/[^/]+)?)/persistent/(?P<topic>[^/]+)/(?P<name>[^/]+)"
)
_BUNDLE = re.compile(r"0x(?P<lower>[0-9a-f]{8})_0x(?P<upper>[0-9a-f]{8})")
_LAST = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Cursor:
    """A subscription's cursor."""

    namespace: str
    """`tenant/namespace`; in Pulsar's first topic names `tenant/cluster/namespace`."""
    topic: str
    """The full name: `persistent://tenant/namespace/topic`."""
    name: str
    """The subscription's name."""


def parse_cursor(path: str) -> Cursor:
    """Return the cursor of a znode's path, in which the names of topic and subscription are URL-encoded.

    Raises:
        ValueError: the path is not a cursor's.
    """
    match = _CURSOR.fullmatch(path)
    if match is None:
        raise ValueError(f"{path} is not the znode of a cursor")
    topic = f"persistent://{match['namespace']}/{unquote_plus(match['topic'])}"
    return Cursor(match["namespace"], topic, unquote_plus(match["name"]))


def find_bundle(topic: str, bundles: Iterable[str]) -> str | None:
    """Return the bundle of a topic, such as `0x40000000_0x80000000`; None if none of the bundles contains it.

    During a split, a bundle and its halves exist together; they have the same owner.
    """
    hashed = zlib.crc32(topic.encode())
    ranges = (
        (int(match["lower"], 16), int(match["upper"], 16), match[0])
        for match in map(_BUNDLE.fullmatch, bundles)
        if match is not None
    )
    # The upper end belongs to the next bundle, except for the last bundle.
    fitting = [(upper - lower, name) for lower, upper, name in ranges if lower <= hashed < upper + (upper == _LAST)]
    return min(fitting)[1] if fitting else None


def find_topic_owner(reader: Reader, cursor: Cursor) -> str | None:
    """Return the broker that has loaded a cursor's topic, or may load it any time, as `host:port`; None if none.

    Raises:
        UnreadError: it cannot be read.
        ValueError: the bundle's znode does not name its owner.
    """
    folder = f"{NAMESPACES}/{cursor.namespace}"
    bundle = find_bundle(cursor.topic, reader.read(reader.client.get_children_async, folder) or ())
    answer = None if bundle is None else reader.read(reader.client.get_async, f"{folder}/{bundle}")
    if answer is None:
        return None
    member = owner_member(answer[0] or b"")
    if member is None:
        raise ValueError(f"{folder}/{bundle} does not name its owner")
    return member
