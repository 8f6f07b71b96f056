"""The demo's story as a pure state machine: each phase follows from decisions, actions and measurements."""

import fcntl
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from textwrap import indent
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from deploy.console.terminal import Terminal
from deploy.demo.load import Load
from deploy.demo.servers import TOPIC, DemoVolume, Servers
from deploy.processes.signals import set_in_handler
from policies.bookie_disks import BookieThrottle
from policies.decisions import Decision
from policies.throttle import ThrottleFactor
from policies.units import human_bytes, human_seconds

_STOPPED_SECONDS = 5.0
"""How long a stop is shown before space is freed."""
_STANDS_STILL = 0.1
"""Below this share of their wanted rate, producers count as stopped."""
_IS_BACK = 0.85
"""Above this share of their wanted rate, producers count as released."""
_BACK_SECONDS = 3.0


@dataclass(frozen=True)
class DemoSizes:
    """The sizes of everything, in bytes."""

    total: int
    """The size of the volume."""
    soft: int
    hard: int
    load: int
    """Bytes a second that the producers want to write."""

    def as_texts(self) -> dict[str, str]:
        """The sizes as text, by the name in the phases' sentences."""
        return {
            "total": human_bytes(self.total),
            "soft": human_bytes(self.soft),
            "hard": human_bytes(self.hard),
            "load": f"{human_bytes(self.load)}/s",
        }


class Phase(Enum):
    """The phases of the story in their order, each with the sentence that is printed when it begins."""

    FILL = "fill", "Producers write {load} and nothing is deleted: the disk of {total} fills up."
    THROTTLE = (
        "throttle",
        "Less than {soft} free, the soft limit: the less space is left, the slower producers may write.",
    )
    STOP = "stop", "Less than {hard} free, the hard limit: producers are stopped. The disk will not fill."
    RECOVERY = (
        "recovery",
        "An operator frees space (here: old records are deleted). Headgate removes the quota by itself.",
    )
    DONE = "done", "Producers write {load} again, and there is no quota, as before."

    def __init__(self, title: str, sentence: str) -> None:
        self.title = title
        self.sentence = sentence


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


@dataclass
class Story:
    """Moves from one phase to the next with the samples.

    Args:
        load: bytes a second that producers want to write.
    """

    load: float
    phase: Phase = Phase.FILL
    _since_seconds: float = 0.0
    _back_since: float | None = field(default=None)

    def advance(self, sample: DemoSample) -> Phase | None:
        """Return the phase that begins with this sample, if one does."""
        if not self._is_over(sample):
            return None
        phases = list(Phase)
        self.phase, self._since_seconds = phases[phases.index(self.phase) + 1], sample.at_seconds
        return self.phase

    def _is_over(self, sample: DemoSample) -> bool:
        match self.phase:
            case Phase.FILL:
                return sample.factor < 1.0 and sample.quota is not None
            case Phase.THROTTLE:
                return sample.factor == 0.0
            case Phase.STOP:
                lasted = sample.at_seconds - self._since_seconds
                return lasted >= _STOPPED_SECONDS and sample.produced < _STANDS_STILL * self.load
            case Phase.RECOVERY:
                return self._are_back(sample)
        return False

    def _are_back(self, sample: DemoSample) -> bool:
        if sample.factor < 1.0 or sample.quota is not None or sample.produced < _IS_BACK * self.load:
            self._back_since = None
        elif self._back_since is None:
            self._back_since = sample.at_seconds
        return self._back_since is not None and sample.at_seconds - self._back_since >= _BACK_SECONDS


def describe_volume(volume: DemoVolume) -> str:
    """Describe the disk that fills up, for the first lines of the output."""
    size = human_bytes(volume.total_bytes)
    if volume.is_disk:
        return f"a disk of {size} in memory (tmpfs), mounted for this process alone"
    return (
        f"this system does not allow mounting a disk, so a folder stands for one of {size}: free space is its size "
        "minus the size of its files. Only the demo's own limits keep it from growing."
    )


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


# Directs the demo: samples everything, updates the screen, and frees space when the story asks for it.

_SAMPLE_SECONDS = 0.5
_RATE_SAMPLES = 4
"""Number of samples over which the produced rate is averaged."""
_PATIENCE_SECONDS = 300.0
"""Limit for the whole story, which takes a quarter of this on an idle machine of two cores."""


class DemoFailedError(Exception):
    """The story did not reach its end. The message says what happened instead, in a sentence or two."""


class LoopWatcher:
    """Waits until the loop runs, and follows its decisions; those of `kind` have a factor."""

    def __init__(self, terminal: Terminal, kind: type[ThrottleFactor | BookieThrottle]) -> None:
        self._terminal = terminal
        self._kind = kind
        self._everything_runs = threading.Event()
        self._factor = 1.0

    def start_producers(self) -> None:
        """Let the producers begin; called when every component is ready."""
        self._terminal.ready()
        self._everything_runs.set()

    def show_decision(self, decision: Decision, caught_up: bool) -> None:
        """Show a decision of the loop and remember its factor."""
        if isinstance(decision, self._kind):
            self._factor = decision.factor
        self._terminal.decision(decision, caught_up)

    def await_start(self, stop: threading.Event) -> bool:
        """Wait until the producers may begin; return False if `stop` was set before."""
        while not self._everything_runs.wait(_SAMPLE_SECONDS):
            if stop.is_set():
                return False
        return True


class Director(LoopWatcher):
    """The demo's own component, which runs beside those of the loop.

    Args:
        servers: the broker that the producers write to, and the loop's own.
        quota: returns the quota in force, in bytes a second.
    """

    def __init__(
        self, sizes: DemoSizes, servers: Servers, volume: DemoVolume, quota: Callable[[], int | None], screen: Screen
    ) -> None:
        super().__init__(screen, ThrottleFactor)
        self._sizes = sizes
        self._servers = servers
        self._volume = volume
        self._quota = quota
        self._screen = screen
        self._story = Story(sizes.load)
        self._taken: deque[tuple[float, int]] = deque(maxlen=_RATE_SAMPLES + 1)

    @property
    def is_over(self) -> bool:
        """Whether the story has come to its end."""
        return self._story.phase is Phase.DONE

    def run(self, stop: threading.Event, over: Callable[[], None]) -> None:
        """Run until `stop` is set; call `over` at the end of the story.

        Raises:
            DemoFailedError: the story does not reach its end.
        """
        if not self.await_start(stop):
            return
        self._screen.begin(Phase.FILL)
        servers = self._servers.watched.bootstrap_servers
        with Load(servers, TOPIC, self._sizes.load) as load, self._screen:
            began = time.monotonic()
            while not (self.is_over or stop.wait(_SAMPLE_SECONDS)):
                self._advance(self._sample(load, time.monotonic() - began))
        over()
        stop.wait()

    def _advance(self, sample: DemoSample) -> None:
        self._screen.show_sample(sample)
        self._require_progress(sample)
        phase = self._story.advance(sample)
        if phase is not None:
            self._screen.begin(phase)
        if phase is Phase.RECOVERY:
            self._servers.free_space()

    def _sample(self, load: Load, at_seconds: float) -> DemoSample:
        self._taken.append((at_seconds, load.acknowledged_bytes))
        (since, before), (_, taken) = self._taken[0], self._taken[-1]
        rate = (taken - before) / (at_seconds - since) if at_seconds > since else 0.0
        return DemoSample(at_seconds, self._volume.free_bytes(), self._factor, self._quota(), rate)

    def _require_progress(self, sample: DemoSample) -> None:
        if not self._servers.watched.pids:
            raise DemoFailedError("The broker ended before its producers did: the disk was full.")
        if sample.at_seconds > _PATIENCE_SECONDS:
            raise DemoFailedError(
                f"After {human_seconds(sample.at_seconds)} the demo is still in its phase `{self._story.phase.title}`: "
                "this machine may be too busy for three Java processes."
            )


# Cleans up however the demo ends: signals, and the demo's working folder.

_PREFIX = "headgate-demo-"
_LOCK = "lock"


class Shutdown:
    """Handles SIGINT, SIGTERM and SIGHUP (a closed terminal): the first ends the demo in order, a second at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set by the first signal if `in_order` is true."""
        self.in_order = False
        """False until everything runs: until then a signal ends the process at once."""
        self._signal: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    @property
    def status(self) -> int | None:
        """The exit status after a signal; None without one."""
        return None if self._signal is None else 128 + self._signal

    def _on_signal(self, number: int, _frame: object) -> None:
        first, self._signal = self._signal is None, number
        if not (first and self.in_order):
            raise SystemExit(self.status)
        set_in_handler(self.stop)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder and remove it at the end; remove the folders of demos that were killed, too."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # A demo that is still running holds the lock.
        with suppress(OSError), (old / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (folder / "unlocked").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(folder / _LOCK)  # only now, so that no other demo sees it before it is held
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
