"""The timeline as one self-contained HTML page: bands over time, and a table that says what each band means.

All names are escaped, because they come from elsewhere; the page has no script.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape

from deploy.whatif.timeline import AGAINST, SETTINGS, Lane, Span, told

MOST_LANES = 200
"""So many subjects are drawn, those that differ longest; a line says how many there are beside them."""

_WIDTH, _BAND = 1000.0, 18.0
_TICKS = 6
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --back: #fff;
  --good: #2da44e; --warn: #d4a72c; --bad: #e16f24; --worst: #cf222e; --differs: #8250df }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --back: #0d1117;
  --good: #3fb950; --warn: #d29922; --bad: #db6d28; --worst: #f85149; --differs: #ab7df8 } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1rem; margin: 1.6rem 0 .3rem; overflow-wrap: anywhere }
p, td, th, text { color: var(--soft); fill: var(--soft) } td, th { text-align: left; padding: .1rem .8rem .1rem 0;
  vertical-align: top; font-variant-numeric: tabular-nums; overflow-wrap: anywhere } td:last-child { color: var(--ink) }
svg { width: 100%; height: auto; font-size: 12px } .axis { stroke: var(--line) } .l0 { fill: var(--good) }
.l1 { fill: var(--warn) } .l2 { fill: var(--bad) } .l3 { fill: var(--worst) } .d { fill: var(--differs) }
table { border-collapse: collapse; font-size: .85rem } b { color: var(--ink); font-weight: 600 }
"""


def page(found: Sequence[Lane], title: str) -> str:
    """The whole page.

    Args:
        found: the lanes; of two sides only those that differ are drawn.
        title: what was replayed, in a few words.
    """
    is_compared = any(AGAINST in lane.courses for lane in found)
    drawn = sorted((each for each in found if each.differs or not is_compared), key=lambda each: -each.differs)
    spans = [span for lane in found for course in lane.courses.values() for span in course]
    head = f"<h1>{escape(title)}</h1>\n<p>{_summary(len(drawn), len(found), is_compared)}</p>\n"
    body = ""
    if spans and drawn:
        start, end = min(span.start for span in spans), max(span.end for span in spans)
        body = "\n".join(_lane(lane, start, end) for lane in drawn[:MOST_LANES])
        left = len(drawn) - MOST_LANES
        body += f"\n<p>{left} more are not drawn.</p>" if left > 0 else ""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>\n<body>{head}{body}</body></html>\n"
    )


def _summary(drawn: int, found: int, is_compared: bool) -> str:
    if not is_compared:
        return f"{found} courses."
    if not drawn:
        return f"Both decide the same throughout ({found} courses)."
    return (
        f"{drawn} of {found} courses differ. Above: these settings; below: the others; between them, in violet, where "
        "they differ."
    )


def _lane(lane: Lane, start: datetime, end: datetime) -> str:
    differs = f" <b>differs for {told(lane.differs)}</b>" if lane.differs else ""
    rows = lane.differences() if AGAINST in lane.courses else lane.courses[SETTINGS]
    return (
        f"<h2>{escape(f'{lane.cluster} · {lane.policy} · {lane.about}')}{differs}</h2>\n{_drawing(lane, start, end)}\n"
        f"<table>{''.join(map(_row, rows))}</table>"
    )


def _drawing(lane: Lane, start: datetime, end: datetime) -> str:
    bands = [lane.courses[SETTINGS], *([lane.courses[AGAINST]] if AGAINST in lane.courses else [])]
    height = 2 * _BAND + 8 if len(bands) > 1 else _BAND
    parts = [part for row, course in enumerate(bands) for part in _band(course, row * (_BAND + 8), start, end)]
    parts += [_rect(span, _BAND + 2, 4, "d", start, end) for span in lane.differences()]
    parts += _axis(start, end, height)
    return f'<svg viewBox="0 0 {_WIDTH:g} {height + 20:g}" role="img">{"".join(parts)}</svg>'


def _band(course: Sequence[Span], top: float, start: datetime, end: datetime) -> Iterator[str]:
    return (_rect(span, top, _BAND, f"l{min(3, round(3 * span.level))}", start, end) for span in course)


def _rect(span: Span, top: float, height: float, kind: str, start: datetime, end: datetime) -> str:
    left, right = (_x(instant, start, end) for instant in (span.start, span.end))
    said = f"{span.label}, {span.began} for {told(span.length)}. {span.sentence}"
    box = f'x="{left:.1f}" y="{top:g}" width="{max(0.5, right - left):.1f}" height="{height:g}"'
    return f'<rect class="{kind}" {box}><title>{escape(said)}</title></rect>'


def _axis(start: datetime, end: datetime, top: float) -> Iterator[str]:
    yield f'<line class="axis" x1="0" x2="{_WIDTH:g}" y1="{top + 3:g}" y2="{top + 3:g}"/>'
    for number in range(_TICKS + 1):
        anchor = "start" if number == 0 else "end" if number == _TICKS else "middle"
        at = f"{start + (end - start) * number / _TICKS:%H:%M:%S}"
        yield f'<text x="{_WIDTH * number / _TICKS:g}" y="{top + 16:g}" text-anchor="{anchor}">{at}</text>'


def _row(span: Span) -> str:
    cells = (span.began, told(span.length), f"{span.label}. {span.sentence}")
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _x(instant: datetime, start: datetime, end: datetime) -> float:
    return _WIDTH * ((instant - start) / (end - start)) if end > start else 0.0
