"""Terminal output that shows text from elsewhere (names, markup, control characters) always as plain text."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from connectors.redaction import without_secrets
from policies.printable import printable


class SafeConsole(Console):
    """A console that escapes control characters in all content; its own styles and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to write."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def sentence_console(*, stderr: bool = False) -> SafeConsole:
    """Return a console for sentences: a terminal wraps them; in a file or pipe each is one line, for `grep`."""
    console = SafeConsole(stderr=stderr, highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def indent_body(console: Console, head: Text, body: Text) -> RenderableType:
    """Return a head and a sentence, whose wrapped lines are indented to its first word."""
    if console.soft_wrap:
        return Text.assemble(head, body)
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(head, body)
    return grid


def shown_error(text: str) -> str:
    """Return an error's text for printing, without known secrets and control characters."""
    return printable(without_secrets(text))
