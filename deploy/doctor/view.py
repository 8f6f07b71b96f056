"""Shows the doctor's results on a terminal of 80 columns."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deploy.commands.remedies import complete_commands
from deploy.doctor.results import Result, Verdict
from policies.units import counted

_STYLES = {
    Verdict.WORKS: "green",
    Verdict.SLOW: "yellow",
    Verdict.OPEN: "yellow",
    Verdict.NOT_ALLOWED: "bold red",
    Verdict.TOO_OLD: "yellow",
    Verdict.NO_ANSWER: "bold red",
    Verdict.WRONG: "bold red",
}


def doctor_view(results: Sequence[Result]) -> RenderableType:
    """Return one line for each result, by system, and the number of results with something to fix."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("checked", ratio=None, overflow="fold", max_width=24)
    table.add_column("", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for system, answers in groupby(results, key=lambda each: each.system):
        table.add_row(Text(system, style="bold"))
        for each in answers:
            verdict = Text(each.verdict.value, style=_STYLES[each.verdict])
            table.add_row(
                Padding(escape(each.asked), (0, 0, 0, 2)), verdict, str(each.milliseconds), escape(each.detail)
            )
    return Group(table, "", _in_all(results))


def remedies(results: Sequence[Result]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the remedies by system, as lines to copy, which must not be wrapped to a terminal's width."""
    for each in results:
        if each.remedies and not each.is_good:
            yield f"{each.system}, {each.asked}", tuple(map(complete_commands, each.remedies))


def _in_all(results: Sequence[Result]) -> Text:
    bad = sum(not each.is_good for each in results)
    slow = sum(each.verdict is Verdict.SLOW for each in results)
    also = f", {slow} slow" if slow else ""
    if not bad:
        return Text(f"all of {counted(len(results), 'check')} good{also}", style="green")
    return Text(f"{bad} of {counted(len(results), 'check')} not good{also}", style="bold red")
