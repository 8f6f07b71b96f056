"""The fills of the last day: free space of the limiting disk, its limits and the factor, in bounded memory."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from connectors.exporter.page.status import HistoryDocument
from connectors.views import Fill

INTERVAL_SECONDS = 15.0
POINTS = 240
"""Number of points in each window."""
MOST_FILLS = 1000
"""A fill has 240 points of 5 numbers in each of 3 windows: 32 kB as measured, so all fills have 32 MB at most."""
_MOST_PLACES = 64
_OTHER_PLACE = "another disk"

Key = tuple[str, str]
"""Cluster and policy."""


class Window(NamedTuple):
    """A length of time that the page shows."""

    name: str
    """Its name in the page's path."""
    title: str
    every: int
    """Number of recorded moments of which it keeps one: that with the least free space."""

    @property
    def step(self) -> timedelta:
        """Time between two points."""
        return timedelta(seconds=INTERVAL_SECONDS * self.every)


WINDOWS = {each.name: each for each in (Window("1h", "1 h", 1), Window("6h", "6 h", 6), Window("1d", "1 d", 24))}
HOUR = WINDOWS["1h"]


class Moment(NamedTuple):
    """A point of a course."""

    at: datetime
    fill: Fill
    bytes_per_second: float | None
    """How fast the disk filled until then, deletions deducted; None if it did not limit before."""


@dataclass(frozen=True)
class Course:
    """A fill in a window."""

    window: Window
    moments: tuple[Moment | None, ...]
    """Oldest first, and at most `POINTS`; None: unknown or stale."""


class History:
    """Keeps the fills of all clusters; the oldest moments are dropped."""

    def __init__(self) -> None:
        self._kept: dict[Key, _KeptFill] = {}
        self._count = 0
        self._ends_at: datetime | None = None

    def add(self, at: datetime, fills: Mapping[Key, Fill]) -> None:
        """Add a moment. A fill without a value is unknown now, and is dropped after a day."""
        self._ends_at, self._count = at, self._count + 1
        for key in fills:
            if len(self._kept) < MOST_FILLS:
                self._kept.setdefault(key, _KeptFill())
        for key, kept in list(self._kept.items()):
            kept.add(fills.get(key), self._count)
            if kept.unknown_for > POINTS * WINDOWS["1d"].every:
                del self._kept[key]

    def course(self, key: Key, window: Window = HOUR) -> Course | None:
        """Return a fill in a window; None if nothing is known of it there."""
        if self._ends_at is None or key not in self._kept:
            return None
        fills = self._kept[key].fills(window)
        began = self._ends_at - window.step * (len(fills) - 1)
        moments = [
            None if fill is None else Moment(began + window.step * at, fill, _rate(fills, at, window))
            for at, fill in enumerate(fills)
        ]
        return Course(window, tuple(moments)) if any(moments) else None

    def document(self) -> HistoryDocument:
        """Return the last hour of all fills."""
        clusters: dict[str, dict[str, tuple[float | None, ...]]] = {}
        for (cluster, policy), kept in self._kept.items():
            fills = kept.fills(HOUR)
            for name in ("free_bytes", "soft_bytes", "hard_bytes", "factor"):
                values = tuple(None if fill is None else getattr(fill, name) for fill in fills)
                clusters.setdefault(cluster, {})[f"{policy} {name}".replace("_", " ")] = values
        return HistoryDocument(interval_seconds=INTERVAL_SECONDS, ends_at=self._ends_at, clusters=clusters)


def _rate(fills: list[Fill | None], at: int, window: Window) -> float | None:
    """Return the speed over the last minute, or the last step if that is longer.

    Of disks that are equally full each limits in turn, so a moment of the same disk up to five times as old will do.
    """
    now, least = fills[at], max(1, round(timedelta(minutes=1) / window.step))
    for apart in range(least, min(at, 5 * least) + 1):
        before = fills[at - apart]
        if now is not None and before is not None and now.place == before.place:
            return (before.free_bytes - now.free_bytes) / (apart * window.step.total_seconds())
    return None


_Row = tuple[float, ...]
"""Free space, both limits, factor, and the number of the place; NaN: none."""
_WIDTH = 5
_UNKNOWN: _Row = (math.nan,) * _WIDTH


class _KeptFill:
    """One fill: a ring of numbers for each window."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._rings = {name: array("d") for name in WINDOWS}
        self._least = dict.fromkeys(WINDOWS, _UNKNOWN)
        """By window: the moment with the least free space since its last point."""
        self.unknown_for = 0

    def add(self, fill: Fill | None, count: int) -> None:
        """Add a moment, the `count`th of all."""
        self.unknown_for = self.unknown_for + 1 if fill is None else 0
        row = _UNKNOWN if fill is None else self._row(fill)
        for name, ring in self._rings.items():
            self._least[name] = min(
                self._least[name], row, key=lambda each: math.inf if each[0] != each[0] else each[0]
            )
            if count % WINDOWS[name].every == 0:
                ring.extend(self._least[name])
                self._least[name] = _UNKNOWN
                del ring[: -POINTS * _WIDTH]

    def fills(self, window: Window) -> list[Fill | None]:
        """Return the points of a window, and the moment with the least free space since the last point."""
        ring, since = self._rings[window.name], self._least[window.name]
        rows = [*zip(*[iter(ring)] * _WIDTH, strict=True), *([] if math.isnan(since[0]) else [since])]
        return [self._fill(*row) for row in rows[-POINTS:]]

    def _row(self, fill: Fill) -> _Row:
        if fill.place not in self._places and len(self._places) < _MOST_PLACES:
            self._places.append(fill.place)
        number = self._places.index(fill.place) if fill.place in self._places else _MOST_PLACES
        limits = (math.nan if limit is None else limit for limit in (fill.soft_bytes, fill.hard_bytes, fill.factor))
        return (fill.free_bytes, *limits, number)

    def _fill(self, free: float, *rest: float) -> Fill | None:
        if math.isnan(free):
            return None
        soft, hard, factor = (None if math.isnan(each) else each for each in rest[:3])
        number = int(rest[3])
        return Fill(self._places[number] if number < _MOST_PLACES else _OTHER_PLACE, free, soft, hard, factor)
