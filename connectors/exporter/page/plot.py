"""Draws the fill of a cluster as SVG: its free space with both limits, and below it the factor and the rate. Pure.

The page allows no style inside it, so shapes have classes. Curves lie in pictures that stretch with the window, which
texts do not: they keep their size on a phone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from markupsafe import Markup

from connectors.exporter.page.history import Course, Moment, Window
from connectors.views import Fill
from policies.units import format_instant, human_bytes, human_rate, printable_line

COLUMNS = 48
"""Number of columns that show their values on hover; the table has one row for each."""
_FREE, _FACTOR, _RATE = (36, 130), (206, 42), (288, 50)
"""Upper edge and height of each panel, in pixels; its title stands above it."""
_HEIGHT = 364
_TICKS = 4

Value = Callable[[Moment], float | None]


class Row(NamedTuple):
    """The values of one column."""

    column: int
    moment: Moment
    text: str


class Plot(NamedTuple):
    """A course as a picture, and in words."""

    window: Window
    place: str
    svg: Markup
    rows: tuple[Row, ...]
    """The moment with the least free space of each column, the newest first."""


@dataclass(frozen=True)
class _Panel:
    """One of the panels: its place in the picture, and the values at its edges."""

    top: int
    height: int
    low: float
    high: float

    def y(self, value: float) -> float:
        """Return the distance from its upper edge."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.height * (1 - min(1.0, max(0.0, share))), 1)

    def curve(self, moments: Sequence[Moment | None], of: Value, kind: str, *, steps: bool = False) -> Markup:
        """Return a line through the known values."""
        path, before = "", None
        for number, moment in enumerate(moments):
            value = None if moment is None else of(moment)
            if moment is None or value is None:
                before = None
            elif before is None:
                path += f"M{number - 0.5:g},{self.y(value):g}h.5"
                before = moment
            else:
                path += f"H{number}V{self.y(value):g}" if steps else f"L{number},{self.y(value):g}"
                before = moment
        return Markup('<path class="{}" d="{}"/>').format(kind, path) if path else Markup("")

    def stretched(self, points: int, *shapes: Markup) -> Markup:
        """Return shapes of `points` moments in a picture that stretches to the width of the plot."""
        box = Markup('<svg y="{}" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>')
        return box.format(self.top, self.height, points - 1, self.height, Markup("").join(shapes))

    def grid(self, title: str, ticks: Sequence[tuple[float, str]]) -> Iterator[Markup]:
        """Yield the title, and a line with its value for each tick."""
        yield Markup('<text class="title" y="{}">{}</text>').format(self.top - 18, title)
        for value, text in ticks:
            y = self.top + self.y(value)
            yield Markup('<line class="grid" x2="100%" y1="{0:g}" y2="{0:g}"/>').format(y)
            yield Markup('<text y="{:g}">{}</text>').format(y - 3, text)


def draw_fill(course: Course) -> Plot:
    """Draw a course that has a known moment."""
    known = [each for each in course.moments if each is not None]
    # A course that began lately has the whole width.
    moments = [*[None] * (COLUMNS - len(course.moments)), *course.moments]
    last, points = known[-1], len(moments)
    limits = [limit for each in known for limit in (each.fill.soft_bytes, each.fill.hard_bytes) if limit is not None]
    step = _round_up(max([1.0, *(each.fill.free_bytes for each in known), *limits]) / _TICKS)
    ticks = [(step * number, human_bytes(step * number)) for number in range(1, _TICKS + 1)]
    free = _Panel(*_FREE, 0, _TICKS * step)
    factor = _Panel(*_FACTOR, 0, 1)
    rates = [each.bytes_per_second for each in known if each.bytes_per_second is not None]
    rate = _rate_panel(rates)
    # Free space and factor of now stand beside the plot, up to 15 s newer than its last point.
    rows = tuple(_choose_rows(moments))
    now = moments[-1]
    shapes = [
        *free.grid(_name_limits("Free space", last.fill), [(0, ""), *ticks]),
        free.stretched(
            points,
            free.curve(moments, lambda m: m.fill.soft_bytes, "soft limit", steps=True),
            free.curve(moments, lambda m: m.fill.hard_bytes, "hard limit", steps=True),
            free.curve(moments, lambda m: m.fill.free_bytes, "free"),
        ),
        *factor.grid("Factor", ((1, "1"), (0, "0"))),
        factor.stretched(points, factor.curve(moments, lambda m: m.fill.factor, "factor", steps=True)),
        *rate.grid(
            f"Fills at {_show_rate(now and now.bytes_per_second)}, deletions deducted",
            [(rate.high, human_rate(rate.high)), (rate.low, human_rate(rate.low) if rate.low else ""), (0, "")],
        ),
        rate.stretched(points, rate.curve(moments, lambda m: m.bytes_per_second, "rate")),
        *_time_axis(course.window.step * points),
        *map(_hover, rows),
    ]
    label = _describe(known, now)
    svg = Markup('<svg class="fill" width="100%" height="{}" role="img" aria-label="{}">{}</svg>').format(
        _HEIGHT, label, Markup("").join(shapes)
    )
    return Plot(course.window, last.fill.place, svg, rows[::-1])


def _rate_panel(rates: Sequence[float]) -> _Panel:
    """Make room for the fastest fill, and for deletions as far as they are no faster: they may be a hundred times."""
    high = _round_up(max([1.0, *rates]))
    return _Panel(*_RATE, -min(high, _round_up(-min([0.0, *rates]))), high)


def _show_rate(bytes_per_second: float | None) -> str:
    return "an unknown rate" if bytes_per_second is None else human_rate(bytes_per_second)


def _round_up(value: float) -> float:
    """Return the next of few numbers that are easy to read; 0 of 0."""
    if value <= 0:
        return 0
    power = 10.0 ** math.floor(math.log10(value))
    return next(digit * power for digit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if digit * power >= value * (1 - 1e-9))


def _name_limits(title: str, fill: Fill) -> Markup:
    """Return the title with both limits in the colours of their lines: a name beside its line would hide the curve."""
    named = [("soft", fill.soft_bytes), ("hard", fill.hard_bytes)]
    spans = [
        Markup('<tspan class="{0}" dx="10">{0} limit {1}</tspan>').format(kind, human_bytes(limit))
        for kind, limit in named
        if limit is not None
    ]
    return Markup("").join([title, *spans])


def _time_axis(length: timedelta) -> Iterator[Markup]:
    for share, anchor in ((0, "start"), (25, "middle"), (50, "middle"), (75, "middle"), (100, "end")):
        minutes = length / timedelta(minutes=1) * (100 - share) / 100
        text = f"-{minutes:.0f} min" if length <= timedelta(minutes=90) else f"-{minutes / 60:.3g} h"
        text = text if minutes else "now"
        yield Markup('<text x="{}%" y="{}" text-anchor="{}">{}</text>').format(share, _HEIGHT - 6, anchor, text)


def _choose_rows(moments: Sequence[Moment | None]) -> Iterator[Row]:
    numbered = [(number * COLUMNS // len(moments), each) for number, each in enumerate(moments) if each is not None]
    for column, found in groupby(numbered, key=itemgetter(0)):
        least = min((each for _, each in found), key=lambda each: each.fill.free_bytes)
        yield Row(column, least, _tell(least))


def _tell(moment: Moment) -> str:
    fill = moment.fill
    factor = "" if fill.factor is None else f", factor {fill.factor:.2f}"
    limits = ((f"{name} limit", limit) for name, limit in (("soft", fill.soft_bytes), ("hard", fill.hard_bytes)))
    told = "; ".join(f"{name} {human_bytes(limit)}" for name, limit in limits if limit is not None)
    rate = f", fills at {_show_rate(moment.bytes_per_second)}"
    clock = format_instant(moment.at)[:16].replace("T", " ")
    return printable_line(f"{clock} UTC, {fill.place}: {human_bytes(fill.free_bytes)} free{factor}{rate}; {told}")


def _hover(row: Row) -> Markup:
    rect = Markup('<rect class="column" x="{:.3f}%" width="{:.3f}%" height="{}"><title>{}</title></rect>')
    return rect.format(100 * row.column / COLUMNS, 100 / COLUMNS, _HEIGHT - 22, row.text)


def _describe(known: Sequence[Moment], now: Moment | None) -> str:
    """Return what the picture shows, for those who do not see it."""
    free = sorted(each.fill.free_bytes for each in known)
    at_last = "unknown" if now is None else _tell(now)
    return f"Free space from {human_bytes(free[0])} to {human_bytes(free[-1])}; now {at_last}"
