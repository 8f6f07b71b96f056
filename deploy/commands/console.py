"""Terminal output: text from elsewhere (names, markup, control characters) is always plain, and times are local."""

import os
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from connectors.redaction import without_secrets
from deploy.commands.remedies import complete_commands
from deploy.commands.times import show_local
from policies.printable import printable

_PRIORITIES = {"critical": 2, "error": 3, "warning": 4}
"""Syslog's priorities of the levels; 6 is `info`."""


class SafeConsole(Console):
    """A console that escapes control characters in all content; its own styles and cursor movements stay.

    On a terminal, instants in any text are local times; in a file or pipe they stay in UTC.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to write."""
        if self.is_terminal and isinstance(renderable, str):
            renderable = show_local(renderable)
        elif self.is_terminal and isinstance(renderable, Text) and (local := show_local(renderable.plain)):
            renderable = renderable.copy()
            renderable.plain = local
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


def journal_priority(stream: TextIO, level: str) -> str:
    """Return the prefix by which systemd's journal takes a line for this level; empty for any other stream.

    systemd names the stream in a variable by device and inode, because a child may have redirected it.
    """
    if (journal := os.environ.get("JOURNAL_STREAM")) is None:
        return ""
    file = os.fstat(stream.fileno())
    return f"<{_PRIORITIES.get(level, 6)}>" if journal == f"{file.st_dev}:{file.st_ino}" else ""


def shown_error(text: str) -> str:
    """Return an error's text for printing, without known secrets and control characters."""
    return printable(without_secrets(complete_commands(text)))
