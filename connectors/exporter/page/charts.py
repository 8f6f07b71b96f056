"""The charts of the last hour: keeps a few numbers in bounded memory, and draws them as the points of SVG lines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from connectors.exporter.page.documents import HistoryDocument

INTERVAL_SECONDS = 15.0
POINTS = 240
"""An hour."""
MOST_SERIES = 6
"""Limit for one cluster; a policy has one or two."""
MOST_CLUSTERS = 1000

LOOP = ""
"""Stands for the loop itself where a cluster's name is expected."""

WIDTH, HEIGHT = 240.0, 40.0
_INSET = 2.0
"""Distance from the edge, so that a line there is drawn with its full width."""
_UNKNOWN = math.nan


class History:
    """The last hour's numbers, by cluster and series."""

    def __init__(self) -> None:
        self._rings: dict[str, dict[str, list[float]]] = {}
        self._length = 0
        self._ends_at: datetime | None = None

    def add(self, at: datetime, charted: Mapping[str, Mapping[str, float]]) -> None:
        """Add one point to every series. A series without a value is unknown now, and is dropped after an hour."""
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

    def series(self, cluster: str) -> dict[str, tuple[float | None, ...]]:
        """Return the series of one cluster, oldest first."""
        rings = self._rings.get(cluster, {})
        return {name: tuple(None if math.isnan(v) else v for v in ring) for name, ring in rings.items()}

    def document(self) -> HistoryDocument:
        """Return all series."""
        clusters = {cluster: self.series(cluster) for cluster in self._rings if cluster != LOOP}
        return HistoryDocument(
            interval_seconds=INTERVAL_SECONDS, ends_at=self._ends_at, loop=self.series(LOOP), clusters=clusters
        )


class Chart(NamedTuple):
    """A chart's shapes, and the numbers that describe it to a reader without sight."""

    name: str
    lines: tuple[str, ...]
    """`points` of polylines: one for each stretch of known values."""
    areas: tuple[str, ...]
    """The areas below them, as `points` of polygons."""
    least: float
    most: float
    now: float | None


def draw_chart(name: str, values: Sequence[float | None], *, top: float | None = None) -> Chart | None:
    """Draw a series, with its newest value at the right edge; None if no value is known.

    Args:
        values: at most `POINTS`, oldest first; None: unknown.
        top: the value at the upper edge; by default the greatest value, at least 1. The lower edge is 0.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    highest = top if top is not None else max(1.0, *known)
    step, first = WIDTH / (POINTS - 1), POINTS - len(values)

    def place(number: int, value: float) -> _Point:
        share = min(1.0, max(0.0, value / highest)) if highest else 0.0
        return _Point((first + number) * step, _INSET + (HEIGHT - 2 * _INSET) * (1 - share))

    points = [None if value is None else place(number, value) for number, value in enumerate(values)]
    stretches = list(_split_stretches(points))
    ground = [(_Point(s[-1].x, HEIGHT), _Point(s[0].x, HEIGHT)) for s in stretches]
    return Chart(
        name=name,
        lines=tuple(map(_format_points, stretches)),
        areas=tuple(_format_points((*s, *below)) for s, below in zip(stretches, ground, strict=True)),
        least=min(known),
        most=max(known),
        now=values[-1],
    )


class _Point(NamedTuple):
    x: float
    y: float


def _split_stretches(points: Sequence[_Point | None]) -> Iterator[list[_Point]]:
    """Yield runs of known points; a single point becomes a short line."""
    stretch: list[_Point] = []
    for point in (*points, None):
        if point is not None:
            stretch.append(point)
        elif stretch:
            yield stretch if len(stretch) > 1 else [stretch[0]._replace(x=stretch[0].x - 1.0), *stretch]
            stretch = []


def _format_points(points: Sequence[_Point]) -> str:
    return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)
