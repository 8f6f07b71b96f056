"""Terminal output in which text from elsewhere (names, markup, control characters) is always shown as plain text."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from connectors.redaction import without_secrets
from policies.printable import printable


class SafeConsole(Console):
    """A console that spells control characters out, in whatever it is given; its own styles and cursor stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is to be written, piece by piece."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def sentence_console(*, stderr: bool = False) -> SafeConsole:
    """For sentences: a person's terminal wraps them by words; a file or a pipe has each in one line, for `grep`."""
    console = SafeConsole(stderr=stderr, highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def hanging(console: Console, head: Text, body: Text) -> RenderableType:
    """A head and a sentence, whose further lines, where the console wraps it, begin below its first word."""
    if console.soft_wrap:
        return Text.assemble(head, body)
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(head, body)
    return grid


def shown_error(text: str) -> str:
    """What went wrong as anybody may see it: no secret that this process knows, and nothing a terminal obeys."""
    return printable(without_secrets(text))
