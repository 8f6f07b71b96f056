"""Shows the numbers behind a decision, and the readings that it rests on, as tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.table import Table

from policies.units import human_bytes, human_seconds

_MOST_ROWS = 20
_LONGEST_VALUE = 200
_WIDEST = 10_000


def number_tables(numbers: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield a table of the single values, then one for each list of objects."""
    single: dict[str, Any] = {}
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for name, value in _flatten("", numbers):
        if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            lists[name] = value
        else:
            single[name] = value
    if single:
        yield _make_table(("name", "value"), [(name, _show(name, value)) for name, value in single.items()])
    for name, rows in lists.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [tuple(_show(key, row.get(key)) for key in columns) for row in rows[:_MOST_ROWS]]
        more = f" (the first {_MOST_ROWS} of {len(rows)})" if len(rows) > _MOST_ROWS else ""
        yield f"{escape(name)}{more}"
        yield _TableOrLines(_make_table(columns, cells), [escape(summarize(row)) for row in rows[:_MOST_ROWS]])


@dataclass
class _TableOrLines:
    """A table; on a terminal that is too narrow for it, a line for each row, because broken words cannot be read."""

    table: Table
    lines: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        fits = console.measure(self.table, options=options.update(width=_WIDEST)).maximum <= options.max_width
        yield from [self.table] if fits else self.lines


def summarize(data: Mapping[str, Any]) -> str:
    """Return the values of a reading in one line; a list of objects as their number, or the only one's values."""
    shown = []
    for name, value in _flatten("", data):
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            shown.append(f"{name}: {summarize(value[0])}")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            shown.append(f"{len(value)} {name}")
        elif value not in (None, "", [], {}):
            shown.append(f"{name} {_show(name, value)}")
    return ", ".join(shown)


def _flatten(prefix: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _show(name: str, value: Any) -> str:
    """Return a value with its unit, which its name tells."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    if "bytes_per_second" in name:
        return f"{human_bytes(value)}/s"
    if "bytes" in name:
        return human_bytes(value)
    if "seconds" in name or name.endswith("_ms"):
        return human_seconds(value / 1000 if name.endswith("_ms") else value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _make_table(columns: tuple[str, ...] | list[str], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(escape(column.replace("_", " ")), overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
