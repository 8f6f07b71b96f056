"""The timeline as a terminal table: what was in force from when and for how long, and where two replays differ."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deploy.whatif.timeline import AGAINST, SETTINGS, Lane, Span, told

_STYLES = ("green", "yellow", "dark_orange", "red")


def timeline_view(found: Sequence[Lane]) -> RenderableType:
    """Show the course of each subject; when two are compared, only where they differ, and for how long."""
    is_compared = any(AGAINST in lane.courses for lane in found)
    shown = [lane for lane in found if not is_compared or lane.differs]
    if not shown:
        return "Both decide the same throughout." if is_compared else "Nothing is decided."
    return Group(*(part for lane in shown for part in _lane(lane, is_compared)))


def _lane(lane: Lane, is_compared: bool) -> Iterator[RenderableType]:
    head = Text(f"{lane.cluster} · {lane.policy} · {lane.about}", style="bold")
    if is_compared:
        head.append(f"   differs for {told(lane.differs)}", style="bold yellow")
    yield head
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("from", "for", "what"):
        table.add_column(column, overflow="fold", no_wrap=column != "what")
    for span in lane.differences() if is_compared else lane.courses[SETTINGS]:
        table.add_row(f"  {span.began}", told(span.length), _what(span, is_compared))
    yield table
    yield ""


def _what(span: Span, is_compared: bool) -> Text:
    if is_compared:
        return Text(span.label)
    return Text(span.label, style=_STYLES[min(3, round(3 * span.level))]).append(f"  {escape(span.sentence)}", "dim")
