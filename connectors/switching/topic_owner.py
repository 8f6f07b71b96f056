"""Finds which broker has a topic loaded, from the brokers' ZooKeeper.

A topic belongs to the bundle of its namespace whose range holds the CRC32 of its name, and the owner of a bundle has an
ephemeral znode of it (`NamespaceBundles` and `OwnershipCache` of Pulsar 4.2). Brokers with the extensible load manager
keep ownership elsewhere: there every topic looks as if nobody owned it.
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
    """`tenant/namespace`, in Pulsar's first topic names `tenant/cluster/namespace`."""
    topic: str
    """Its whole name: `persistent://tenant/namespace/topic`."""
    name: str
    """The subscription's."""


def cursor_of(path: str) -> Cursor:
    """The cursor whose znode this is; the names of topic and subscription are URL-encoded in it.

    Raises:
        ValueError: it is no cursor's.
    """
    match = _CURSOR.fullmatch(path)
    if match is None:
        raise ValueError(f"{path} is not the znode of a cursor")
    topic = f"persistent://{match['namespace']}/{unquote_plus(match['topic'])}"
    return Cursor(match["namespace"], topic, unquote_plus(match["name"]))


def bundle_of(topic: str, bundles: Iterable[str]) -> str | None:
    """The bundle that a topic belongs to, of those given, as `0x40000000_0x80000000`; None when none is its.

    While one is being split, it and its halves are there; they have the same owner.
    """
    hashed = zlib.crc32(topic.encode())
    ranges = (
        (int(match["lower"], 16), int(match["upper"], 16), match[0])
        for match in map(_BUNDLE.fullmatch, bundles)
        if match is not None
    )
    # The upper end belongs to the next one, but for the last, which has none after it.
    fitting = [(upper - lower, name) for lower, upper, name in ranges if lower <= hashed < upper + (upper == _LAST)]
    return min(fitting)[1] if fitting else None


def owner_of_topic(reader: Reader, cursor: Cursor) -> str | None:
    """The broker that has a cursor's topic loaded, or may load it any time, as `host:port`; None: nobody.

    Raises:
        UnreadError: it cannot be read.
        ValueError: its bundle has an owner who does not say who it is.
    """
    folder = f"{NAMESPACES}/{cursor.namespace}"
    bundle = bundle_of(cursor.topic, reader.one(reader.client.get_children_async, folder) or ())
    answer = None if bundle is None else reader.one(reader.client.get_async, f"{folder}/{bundle}")
    if answer is None:
        return None
    member = owner_member(answer[0] or b"")
    if member is None:
        raise ValueError(f"{folder}/{bundle} does not name its owner")
    return member
