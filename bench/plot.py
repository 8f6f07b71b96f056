"""Small plots over one time axis, as SVG, and their values as CSV."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

Point = tuple[float, float]
Panel = tuple[str, Mapping[str, Sequence[Point]]]
"""A title, and lines of (seconds, value) by name."""

WIDTH, LEFT, RIGHT, TOP, HEIGHT, GAP = 800, 64, 24, 40, 90, 44
COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#57606a", "#bf3989", "#0a7ea4")
STYLE = """
  :root { color-scheme: light dark }
  svg { --ink: #24292f; --soft: #57606a; --grid: #d0d7de; --back: #ffffff }
  @media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --soft: #9198a1; --grid: #3d444d; --back: #0d1117 } }
  .back { fill: var(--back) }
  text { font: 12px system-ui, sans-serif; fill: var(--soft) }
  .title { font-weight: 600; fill: var(--ink) }
  .grid { stroke: var(--grid) }
  .event { stroke: var(--soft); stroke-dasharray: 2 3 }
  path { fill: none; stroke-width: 1.5 }
"""


def sheet(panels: Sequence[Panel], event_seconds: float) -> str:
    """Return the picture; a dotted line marks one instant in all plots."""
    seconds = max(at for _, lines in panels for points in lines.values() for at, _ in points)
    height = TOP + len(panels) * (HEIGHT + GAP) + 10
    x = LEFT + event_seconds / seconds * (WIDTH - LEFT - RIGHT)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}"/>',
            f'<line class="event" x1="{x:.1f}" y1="{TOP - 22}" x2="{x:.1f}" y2="{height - 40}"/>',
            *(line for number, panel in enumerate(panels) for line in _panel(panel, _top(number), seconds)),
            *_axis(_top(len(panels) - 1) + HEIGHT, seconds),
            "</svg>\n",
        ]
    )


def write_csv(file: Path, samples: Sequence[tuple[float, Mapping[str, float]]]) -> None:
    """Write a row for each sample, and a column for each name."""
    names = list(dict.fromkeys(name for _, values in samples for name in values))
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["seconds", *names])
        rows.writerows([f"{at:.1f}", *(_cell(values.get(name)) for name in names)] for at, values in samples)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _top(number: int) -> float:
    return TOP + number * (HEIGHT + GAP)


def _panel(panel: Panel, top: float, seconds: float) -> Iterator[str]:
    title, lines = panel
    most = 1.1 * max((value for points in lines.values() for _, value in points), default=1.0) or 1.0
    yield f'<text class="title" x="{LEFT}" y="{top - 8}">{escape(title)}</text>'
    for share in (0.0, 0.5, 1.0):
        y = top + HEIGHT * (1 - share)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{most * share:,.0f}</text>'
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(
            f"{LEFT + at / seconds * (WIDTH - LEFT - RIGHT):.1f},{top + HEIGHT * (1 - value / most):.1f}"
            for at, value in points
        )
        yield f'<path style="stroke: {colour}" d="M{path}"><title>{escape(name)}</title></path>'
    yield from _legend(list(lines), top - 8)


def _legend(names: Sequence[str], y: float) -> Iterator[str]:
    if len(names) < 2:
        return
    x = float(WIDTH - RIGHT)
    for number in reversed(range(len(names))):
        style = f"fill: {COLOURS[number % len(COLOURS)]}; font-size: 10px"
        yield f'<text x="{x:.0f}" y="{y}" text-anchor="end" style="{style}">{escape(names[number])}</text>'
        x -= 8 + 5.2 * len(names[number])


def _axis(bottom: float, seconds: float) -> Iterator[str]:
    step = 600 if seconds > 1200 else 60 if seconds > 120 else 10
    for at in range(0, int(seconds) + 1, step):
        x = LEFT + at / seconds * (WIDTH - LEFT - RIGHT)
        label = f"{at // 60} min" if step >= 60 else f"{at} s"
        yield f'<text x="{x:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{label}</text>'
