"""The terminal, on which names that others chose change nothing but what they are: text."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from connectors.printable import printable
from connectors.redaction import without_secrets


class SafeConsole(Console):
    """A console that spells control characters out, in whatever it is given; its own styles and cursor stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is to be written, piece by piece."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def shown_error(text: str) -> str:
    """What went wrong as anybody may see it: no secret that this process knows, and nothing a terminal obeys."""
    return printable(without_secrets(text))
