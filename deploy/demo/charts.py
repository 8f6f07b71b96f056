"""Charts of a few rows of characters, as wide as the terminal is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.text import Text

LABEL_COLUMNS, MARK_COLUMNS = 16, 14
"""Left and right of the bars."""

_ROWS = 3
_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*%@"

Value = TypeVar("Value")


@dataclass(frozen=True)
class BarChart:
    """A row of bars, a column each, with what it is on the left and what its heights mean on the right.

    - `label`: a line each row.
    - `top`: the value that is as high as the chart.
    - `marks`: what stands at the right, by the value at whose height.
    """

    label: Sequence[str]
    top: float
    marks: Mapping[float, str] = field(default_factory=dict)

    def lines(self, values: Sequence[float], styles: Sequence[str], columns: int, *, only_ascii: bool) -> list[Text]:
        """The chart's rows, the highest first; of each value its style."""
        rows = [self._row(row, values, styles, columns, only_ascii) for row in range(_ROWS)]
        for value, name in self.marks.items():
            rows[self._row_of(value)].append(f" {name}"[:MARK_COLUMNS], "dim")
        return rows

    def _row(self, row: int, values: Sequence[float], styles: Sequence[str], columns: int, only_ascii: bool) -> Text:
        line = Text(no_wrap=True).append(self.label[row].ljust(LABEL_COLUMNS), "" if row else "bold")
        for value, style in zip(values, styles, strict=True):
            line.append(_bar(value / self.top, row, only_ascii), style)
        return line.append(" " * (columns - len(values)))

    def _row_of(self, value: float) -> int:
        return min(_ROWS - 1, max(0, int((1 - value / self.top) * _ROWS)))


def resampled(values: Sequence[Value], columns: int) -> list[Value]:
    """At most so many values: as they are, or so many of them, evenly, the first and the last included."""
    if len(values) <= columns:
        return list(values)
    return [values[round(column * (len(values) - 1) / (columns - 1))] for column in range(columns)]


def _bar(share: float, row: int, only_ascii: bool) -> str:
    """What of a bar is in a row, 0 the highest; a bar of more than nothing is an eighth high at the least."""
    eighths = round(min(max(share, 0.0), 1.0) * _ROWS * 8) or (share > 0)
    return (_ASCII if only_ascii else _BLOCKS)[min(max(eighths - 8 * (_ROWS - 1 - row), 0), 8)]
