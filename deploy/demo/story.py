"""The demo's story, and what it prints: each phase follows from decisions, actions and measurements."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from textwrap import indent
from threading import Event

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from deploy.console.terminal import Terminal
from policies.bookie_disks import BookieThrottle
from policies.decisions import Decision
from policies.throttle import ThrottleFactor
from policies.units import human_bytes

_MEGABYTE = 1_000_000
TOTAL_BYTES = 200 * _MEGABYTE
SOFT_BYTES = 140 * _MEGABYTE
HARD_BYTES = 80 * _MEGABYTE
LOAD_BYTES_PER_SECOND = 8 * _MEGABYTE

_STANDS_STILL = 0.1 * LOAD_BYTES_PER_SECOND
"""Below this rate, producers count as stopped."""
_IS_BACK = 0.85 * LOAD_BYTES_PER_SECOND
"""Above this rate, producers count as released."""

_SOFT, _HARD = human_bytes(SOFT_BYTES), human_bytes(HARD_BYTES)
_LOAD = f"{human_bytes(LOAD_BYTES_PER_SECOND)}/s"


@dataclass(frozen=True)
class DemoSample:
    """The state of everything at one moment."""

    at_seconds: float
    """Since the producers began."""
    free_bytes: int
    factor: float
    """The factor in force."""
    quota: int | None
    """Bytes a second, read from the broker; None without a quota."""
    produced: float
    """Bytes a second that the broker accepted in the last seconds."""


class Phase(Enum):
    """The phases of the story in their order, each with the sentence that is printed when it begins."""

    FILL = (
        "fill",
        f"Producers write {_LOAD} and nothing is deleted: the disk of {human_bytes(TOTAL_BYTES)} fills up.",
    )
    THROTTLE = (
        "throttle",
        f"Less than {_SOFT} free, the soft limit: the less space is left, the slower producers may write.",
    )
    STOP = "stop", f"Less than {_HARD} free, the hard limit: producers are stopped. The disk will not fill."
    RECOVERY = (
        "recovery",
        "An operator frees space (here: old records are deleted). Headgate removes the quota by itself.",
    )
    DONE = "done", f"Producers write {_LOAD} again, and there is no quota, as before."

    def __init__(self, title: str, sentence: str) -> None:
        self.title = title
        self.sentence = sentence

    def next(self) -> "Phase":
        """Return the phase that follows this one."""
        phases = list(Phase)
        return phases[phases.index(self) + 1]

    def ends_with(self, sample: DemoSample) -> bool:
        """Return whether a sample shows the end of this phase."""
        match self:
            case Phase.FILL:
                return sample.factor < 1.0 and sample.quota is not None
            case Phase.THROTTLE:
                return sample.factor == 0.0
            case Phase.STOP:
                return sample.produced < _STANDS_STILL
            case Phase.RECOVERY:
                return sample.factor == 1.0 and sample.quota is None and sample.produced >= _IS_BACK
        return False


FIRST_SETTINGS = """\
kafka: {bootstrap_servers: "loop-1:9092"}  # Headgate's own topics
clusters:
  payments: {kafka: {bootstrap_servers: "kafka-1:9092"}}
policies:
  throttle:
    mode: shadow
    soft: {available_ratio_below: 0.15}
    hard: {available_ratio_below: 0.05}
"""

NEXT = f"""
This is all that Headgate does here: it read how full the log dir is, decided one factor for the cluster, \
explained it, and set Kafka's own client quota. The broker needed no plugin.

Next:
  headgate up            the same loop on a Kafka it starts, watching your disks
  headgate check FILE    check the settings for your own clusters
  headgate run -s FILE   the loop on your clusters
  headgate status        what is in force; `headgate explain SUBJECT` says why

A first FILE, for a loop that decides but sets no quota yet (shadow):

{indent(FIRST_SETTINGS, "  ")}"""

# The demo's terminal output: sentences as they come, and three live bars below them.

_LOOK_SECONDS = 0.5
_PLAIN_SECONDS = 5.0
"""Without a terminal, the numbers are printed at this interval."""


class Screen(Terminal):
    """Draws on a terminal, where `live` is to be entered while the story runs, and prints plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.factor = 1.0
        """The factor of the loop's last decision."""
        self.live = Live(console=console, auto_refresh=False) if console.is_interactive else None
        self._runs = Event()
        self._phase = Phase.FILL
        self._plain_at = 0.0

    def ready(self) -> None:
        """Print that everything runs."""
        super().ready()
        self._runs.set()

    def decision(self, decision: Decision) -> None:
        """Print a decision and remember its factor."""
        if isinstance(decision, ThrottleFactor | BookieThrottle):
            self.factor = decision.factor
        super().decision(decision)

    def await_ready(self, over: Event) -> bool:
        """Wait until producers may begin; return False if the demo was ended before."""
        while not (is_ready := self._runs.wait(_LOOK_SECONDS)) and not over.is_set():
            pass
        return is_ready

    def tell_next(self) -> None:
        """Print what a user may do after the demo."""
        self._console.print(NEXT, markup=False)

    def begin(self, phase: Phase) -> None:
        """Print the sentence of the phase that begins."""
        self._phase = phase
        self._print(Text(f"{phase.title:8}  ", "bold cyan"), Text(phase.sentence, "cyan"))

    def show_action(self, sentence: str) -> None:
        """Print what an actuator did, in its own words."""
        now = self._show_time(datetime.now(UTC))
        self._print(now, Text.assemble(("quota applied", "bold magenta"), "  ", sentence))

    def show_sample(self, sample: DemoSample) -> None:
        """Show the present numbers."""
        if self.live is not None:
            self.live.update(self._bars(sample), refresh=True)
        elif sample.at_seconds >= self._plain_at:
            self._plain_at = sample.at_seconds + _PLAIN_SECONDS
            free, produced = human_bytes(sample.free_bytes), human_bytes(sample.produced)
            self._console.print(
                f"{sample.at_seconds:6.0f} s  {free} free, factor {sample.factor:.2f}, {_quota(sample)}, "
                f"{produced}/s produced"
            )

    def _bars(self, sample: DemoSample) -> RenderableType:
        free = sample.free_bytes
        level = "green" if free > SOFT_BYTES else "yellow" if free > HARD_BYTES else "red"
        limits = f"of {human_bytes(TOTAL_BYTES)}; limits {_SOFT}, {_HARD}"
        produced = sample.produced / LOAD_BYTES_PER_SECOND
        rows = (
            ("free space", human_bytes(free), free / TOTAL_BYTES, level, limits),
            ("factor", f"{sample.factor:.2f}", sample.factor, "magenta", "1 as usual, 0 stop"),
            ("produced", f"{human_bytes(sample.produced)}/s", produced, "blue", _quota(sample)),
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
