"""The demo's terminal output: sentences as they come, and three live bars below them."""

from datetime import UTC, datetime
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from deploy.commands.terminal import Terminal
from deploy.demo.story import DemoSample, DemoSizes, Phase
from policies.units import human_bytes

_PLAIN_SECONDS = 5.0
"""Without a terminal, the numbers are printed at this interval."""


class Screen(Terminal):
    """Draws on a terminal, and prints plain lines elsewhere; use it as a context manager while the story runs."""

    def __init__(self, console: Console, sizes: DemoSizes) -> None:
        super().__init__(console)
        self._sizes = sizes
        self._phase = Phase.FILL
        self._plain_at = 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_interactive else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """Print several lines unchanged."""
        with self._lock:
            self._console.print(text, markup=False)

    def begin(self, phase: Phase) -> None:
        """Print the sentence of the phase that begins."""
        self._phase = phase
        sentence = phase.sentence.format(**self._sizes.as_texts())
        self._print(Text(f"{phase.title:8}  ", "bold cyan"), Text(sentence, "cyan"))

    def show_action(self, sentence: str) -> None:
        """Print what an actuator did, in its own words."""
        now = self._show_time(datetime.now(UTC))
        self._print(now, Text.assemble(("quota applied", "bold magenta"), "  ", sentence))

    def show_sample(self, sample: DemoSample) -> None:
        """Show the present numbers."""
        if self._live is not None:
            self._live.update(self._bars(sample), refresh=True)
        elif sample.at_seconds >= self._plain_at:
            self._plain_at = sample.at_seconds + _PLAIN_SECONDS
            free, produced = human_bytes(sample.free_bytes), human_bytes(sample.produced)
            self._console.print(
                f"{sample.at_seconds:6.0f} s  {free} free, factor {sample.factor:.2f}, {_quota(sample)}, "
                f"{produced}/s produced"
            )

    def _bars(self, sample: DemoSample) -> RenderableType:
        sizes = self._sizes
        level = "green" if sample.free_bytes > sizes.soft else "yellow" if sample.free_bytes > sizes.hard else "red"
        limits = f"of {human_bytes(sizes.total)}; limits {human_bytes(sizes.soft)}, {human_bytes(sizes.hard)}"
        rows = (
            ("free space", human_bytes(sample.free_bytes), sample.free_bytes / sizes.total, level, limits),
            ("factor", f"{sample.factor:.2f}", sample.factor, "magenta", "1 as usual, 0 stop"),
            ("produced", f"{human_bytes(sample.produced)}/s", sample.produced / sizes.load, "blue", _quota(sample)),
        )
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(ratio=1)
        table.add_column(style="dim")
        table.expand = True
        for label, value, share, style, note in rows:
            bar = ProgressBar(total=1.0, completed=min(1.0, share), complete_style=style, finished_style=style)
            table.add_row(label, value, bar, note)
        phases = Text(f"{sample.at_seconds:3.0f} s  ", "dim")
        for phase in Phase:
            phases.append(f"{phase.title}  ", "reverse bold cyan" if phase is self._phase else "dim")
        return Group(Rule(style="dim"), phases, table)


def _quota(sample: DemoSample) -> str:
    return "no quota" if sample.quota is None else f"quota {human_bytes(sample.quota)}/s"
