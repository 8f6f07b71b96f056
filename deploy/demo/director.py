"""Directs the demo: samples everything, updates the screen, and frees space when the story asks for it."""

import threading
import time
from collections import deque
from collections.abc import Callable

from deploy.commands.terminal import Terminal
from deploy.demo.load import Load
from deploy.demo.screen import Screen
from deploy.demo.servers import TOPIC, Servers
from deploy.demo.story import DemoSample, DemoSizes, Phase, Story
from deploy.demo.volume import DemoVolume
from policies.bookie_disks import BookieThrottle
from policies.decisions import Decision
from policies.throttle import ThrottleFactor
from policies.units import human_seconds

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
