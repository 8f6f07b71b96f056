"""Maps a watched cluster to its share: the same in every process and version, whatever other clusters there are."""

import zlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

SHARES_TOPIC = "shares"
"""Its partitions are the shares of watched clusters. Without the loop's prefix."""
SHARE_COUNT = 12
"""The most processes that can work in parallel. All processes agree on this number: never change it."""

DECIDER_TOPIC = "decider"
"""The process with its one partition decides. Without the loop's prefix."""
DECIDER_SHARE = 0


def share_of(cluster: str) -> int:
    """The share, from 0, that a cluster belongs to."""
    return zlib.crc32(cluster.encode()) % SHARE_COUNT


def clusters_in(shares: AbstractSet[int], clusters: Iterable[str]) -> frozenset[str]:
    """The clusters that belong to these partitions."""
    return frozenset(cluster for cluster in clusters if share_of(cluster) in shares)
