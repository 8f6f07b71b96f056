"""The demo's terminal output: sentences as they come, and three live charts below them."""

import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from deploy.commands.console import SafeConsole, hanging
from deploy.commands.terminal import Terminal
from deploy.demo.charts import LABEL_COLUMNS, MARK_COLUMNS, BarChart, resampled
from deploy.demo.story import DemoSizes, Look, Phase
from policies.units import human_bytes

_MOST_COLUMNS = 120
_PLAIN_SECONDS = 5.0
"""Without a terminal, numbers are said so often."""
_PICTURE_COLUMNS = 96
_SAID_A_PHASE = 3
"""So many of the loop's last sentences of a phase are in the picture: those that led to the next."""
_LOW_ROWS = 20
"""A terminal so low has no room for empty lines."""
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""In rich's pictures: they would be fetched from elsewhere."""


class Screen(Terminal):
    """Draws on a terminal, and prints plain lines elsewhere; use it as a context manager while the story goes on."""

    def __init__(self, console: Console, sizes: DemoSizes) -> None:
        super().__init__(console)
        self._sizes = sizes
        self._looks: list[Look] = []
        self._phase = Phase.FILL
        self._said: dict[Phase, list[tuple[Text, Text]]] = {phase: [] for phase in Phase}
        self._plain_at = 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_interactive else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, phase: Phase) -> None:
        """A part of the story begins."""
        self._phase, self._said[phase] = phase, []
        sentence = phase.sentence.format(**self._sizes.named())
        self._print(Text(f"{phase.title:8}  ", "bold cyan"), Text(sentence, "cyan"))

    def carried_out(self, sentence: str) -> None:
        """What an actuator did, in its words."""
        at = Text(f"{datetime.now(UTC):%H:%M:%S}  ", "dim")
        self._print(at, Text.assemble(("quota applied", "bold magenta"), "  ", sentence))

    def look(self, look: Look) -> None:
        """What is seen now."""
        self._looks.append(look)
        if self._live is not None:
            self._live.update(self._charts(self._console), refresh=True)
        elif look.at_seconds >= self._plain_at:
            self._plain_at = look.at_seconds + _PLAIN_SECONDS
            self._console.print(_in_words(look))

    def save_picture(self, file: Path) -> None:
        """Write what there was to see as an SVG: the charts, and of each phase the first sentences."""
        console = SafeConsole(
            record=True, width=_PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
        )
        for said in self._said.values():
            for head, body in [*said[:1], *said[1:][-_SAID_A_PHASE:]]:
                console.print(hanging(console, head, body))
        console.print(self._charts(console))
        console.save_svg(str(file), title="headgate demo", code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT))

    def _print(self, head: Text, body: Text) -> None:
        self._said[self._phase].append((head, body))
        super()._print(head, body)

    def _charts(self, console: Console) -> RenderableType:
        columns = min(max(console.width - LABEL_COLUMNS - MARK_COLUMNS, 8), _MOST_COLUMNS)
        shown, now, sizes = resampled(self._looks, columns), self._looks[-1], self._sizes
        free = BarChart(
            ("free space", human_bytes(now.free_bytes), f"of {human_bytes(sizes.total)}"),
            sizes.total,
            {sizes.soft: "soft limit", sizes.hard: "hard limit"},
        )
        factor = BarChart(("factor", f"{now.factor:.2f}", ""), 1.0, {1.0: "as usual", 0.0: "stop"})
        produced = BarChart(
            ("produced", f"{human_bytes(now.produced)}/s", _quota(now)), 1.25 * sizes.load, {sizes.load: "wanted"}
        )
        bars = (
            (free, [float(look.free_bytes) for look in shown], [_level(look, sizes) for look in shown]),
            (factor, [look.factor for look in shown], ["magenta"] * len(shown)),
            (produced, [look.produced for look in shown], ["blue"] * len(shown)),
        )
        gap = [] if console.height < _LOW_ROWS else [Text()]
        lines = [
            line
            for chart, values, styles in bars
            for line in [*gap, *chart.lines(values, styles, columns, only_ascii=console.options.ascii_only)]
        ]
        return Group(Rule(style="dim"), _phases(self._phase, now), *lines)


def _phases(current: Phase, now: Look) -> Text:
    """Which part of the story is on."""
    line = Text(f"{now.at_seconds:3.0f} s".ljust(LABEL_COLUMNS), "dim")
    for phase in Phase:
        line.append(f"{phase.title}  ", "reverse bold cyan" if phase is current else "dim")
    return line


def _level(look: Look, sizes: DemoSizes) -> str:
    if look.free_bytes > sizes.soft:
        return "green"
    return "yellow" if look.free_bytes > sizes.hard else "red"


def _quota(look: Look) -> str:
    return "no quota" if look.quota is None else f"quota {human_bytes(look.quota)}/s"


def _in_words(look: Look) -> str:
    free, produced = human_bytes(look.free_bytes), human_bytes(look.produced)
    return f"{look.at_seconds:6.0f} s  {free} free, factor {look.factor:.2f}, {_quota(look)}, {produced}/s produced"
