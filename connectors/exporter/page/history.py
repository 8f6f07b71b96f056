"""The last hour of a few numbers, kept in bounded memory for the charts."""

import math
from collections.abc import Mapping
from datetime import datetime

from connectors.exporter.page.documents import HistoryDocument

INTERVAL_SECONDS = 15.0
POINTS = 240
"""An hour."""
MOST_SERIES = 6
"""Of one cluster: a policy has one or two."""
MOST_CLUSTERS = 1000

LOOP = ""
"""The loop itself, which is no cluster: those have a name."""

_UNKNOWN = math.nan


class History:
    """Rings of numbers, by cluster and by what is drawn."""

    def __init__(self) -> None:
        self._rings: dict[str, dict[str, list[float]]] = {}
        self._length = 0
        self._ends_at: datetime | None = None

    def add(self, at: datetime, charted: Mapping[str, Mapping[str, float]]) -> None:
        """One more point of everything; what is not named is not known now, and is forgotten after an hour of that."""
        self._ends_at, self._length = at, min(self._length + 1, POINTS)
        for cluster, values in charted.items():
            if cluster in self._rings or len(self._rings) < MOST_CLUSTERS:
                rings = self._rings.setdefault(cluster, {})
                for name in values:
                    if name in rings or len(rings) < MOST_SERIES:
                        rings.setdefault(name, [_UNKNOWN] * (self._length - 1))
        for cluster, rings in list(self._rings.items()):
            for name, ring in list(rings.items()):
                ring.append(charted.get(cluster, {}).get(name, _UNKNOWN))
                del ring[:-POINTS]
                if all(map(math.isnan, ring)):
                    del rings[name]
            if not rings:
                del self._rings[cluster]

    def of(self, cluster: str) -> dict[str, tuple[float | None, ...]]:
        """What is drawn of one cluster, oldest first."""
        return {name: tuple(None if math.isnan(v) else v for v in ring) for name, ring in self._of(cluster).items()}

    def document(self) -> HistoryDocument:
        """All of it."""
        clusters = {cluster: self.of(cluster) for cluster in self._rings if cluster != LOOP}
        return HistoryDocument(
            interval_seconds=INTERVAL_SECONDS, ends_at=self._ends_at, loop=self.of(LOOP), clusters=clusters
        )

    def _of(self, cluster: str) -> Mapping[str, list[float]]:
        return self._rings.get(cluster, {})
