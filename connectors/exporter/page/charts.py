"""Small charts: turns numbers into the points of SVG lines. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 240.0, 40.0
_INSET = 2.0
"""A line at the edge is drawn whole."""


class Chart(NamedTuple):
    """What is to be drawn, and what is to be said of it to who does not see it."""

    name: str
    lines: tuple[str, ...]
    """`points` of polylines: one for each stretch that is known."""
    areas: tuple[str, ...]
    """The same down to the ground, as polygons."""
    least: float
    most: float
    now: float | None


def chart(
    name: str, values: Sequence[float | None], *, top: float | None = None, length: int | None = None
) -> Chart | None:
    """Draw a series from the left to the right edge; None where nothing is known.

    Args:
        name: what it is.
        values: oldest first; None: not known then.
        top: what the upper edge stands for; by default the greatest value, at least 1. The lower edge is 0.
        length: how many points the width has room for; the newest is at the right edge. By default all there are.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    highest = top if top is not None else max(1.0, *known)
    room = max(length or len(values), len(values), 2)
    step, first = WIDTH / (room - 1), room - len(values)
    points = [None if v is None else _Point((first + i) * step, _height(v, highest)) for i, v in enumerate(values)]
    stretches = list(_stretches(points))
    return Chart(
        name=name,
        lines=tuple(" ".join(map(_written, stretch)) for stretch in stretches),
        areas=tuple(_area(stretch) for stretch in stretches),
        least=min(known),
        most=max(known),
        now=values[-1],
    )


class _Point(NamedTuple):
    x: float
    y: float


def _height(value: float, top: float) -> float:
    share = min(1.0, max(0.0, value / top)) if top else 0.0
    return _INSET + (HEIGHT - 2 * _INSET) * (1 - share)


def _stretches(points: Sequence[_Point | None]) -> Iterator[list[_Point]]:
    """Neighbours that are known; a single one is drawn as a short line."""
    stretch: list[_Point] = []
    for point in (*points, None):
        if point is not None:
            stretch.append(point)
        elif stretch:
            yield stretch if len(stretch) > 1 else [stretch[0]._replace(x=stretch[0].x - 1.0), *stretch]
            stretch = []


def _area(stretch: Sequence[_Point]) -> str:
    ground = (_Point(stretch[-1].x, HEIGHT), _Point(stretch[0].x, HEIGHT))
    return " ".join(map(_written, (*stretch, *ground)))


def _written(point: _Point) -> str:
    return f"{point.x:.1f},{point.y:.1f}"
