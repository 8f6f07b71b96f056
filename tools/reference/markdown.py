"""Markdown tables."""

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table and an empty one; `|` in a cell is escaped."""
    yield _line(head)
    yield "|" + "---|" * len(head)
    yield from map(_line, body)
    yield ""


def code(names: Iterable[str]) -> str:
    """Format names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
