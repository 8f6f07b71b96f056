"""Drives the demo: polls everything, updates the screen, and frees space when the script says so."""

import threading
import time
from collections import deque
from collections.abc import Callable

from deploy.demo.load import Load
from deploy.demo.screen import Screen
from deploy.demo.servers import TOPIC, Servers
from deploy.demo.story import DemoSizes, Look, Phase, Story
from deploy.demo.volume import DemoVolume
from policies.decisions import Decision
from policies.throttle import ThrottleFactor
from policies.units import human_seconds

_LOOK_SECONDS = 0.5
_RATE_LOOKS = 4
"""Over so many looks the produced rate is taken."""
_PATIENCE_SECONDS = 300.0
"""On an idle machine of two cores the story takes a quarter of this."""


class DemoFailedError(Exception):
    """The story did not come to its end; the message says what happened instead, in a sentence or two."""


class DemoPart:
    """The demo's own part beside those of the loop.

    Args:
        sizes: the sizes of everything.
        servers: what the producers write to.
        volume: what fills up.
        quota: the quota in force, in bytes a second.
        screen: is told of everything.
    """

    def __init__(
        self, sizes: DemoSizes, servers: Servers, volume: DemoVolume, quota: Callable[[], int | None], screen: Screen
    ) -> None:
        self._sizes = sizes
        self._servers = servers
        self._volume = volume
        self._quota = quota
        self._screen = screen
        self._story = Story(sizes.load)
        self._factor = 1.0
        self._taken: deque[tuple[float, int]] = deque(maxlen=_RATE_LOOKS + 1)
        self._everything_runs = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the story has come to its end."""
        return self._story.phase is Phase.DONE

    def open(self) -> None:
        """Everything runs: the producers may begin."""
        self._screen.ready()
        self._everything_runs.set()

    def decided(self, decision: Decision, caught_up: bool) -> None:
        """Take a decision of the loop's."""
        if isinstance(decision, ThrottleFactor):
            self._factor = decision.factor
        self._screen.decision(decision, caught_up)

    def run(self, stop: threading.Event, over: Callable[[], None]) -> None:
        """Play until `stop` is set; calls `over` when the story is.

        Raises:
            DemoFailedError: it does not come to its end.
        """
        while not self._everything_runs.wait(_LOOK_SECONDS):
            if stop.is_set():
                return
        self._screen.begin(Phase.FILL)
        servers = self._servers.watched.bootstrap_servers
        with Load(servers, TOPIC, self._sizes.load) as load, self._screen:
            began = time.monotonic()
            while not (self.is_over or stop.wait(_LOOK_SECONDS)):
                self._take(self._look(load, time.monotonic() - began))
        over()
        stop.wait()

    def _take(self, look: Look) -> None:
        self._screen.look(look)
        self._require_going_on(look)
        phase = self._story.take(look)
        if phase is not None:
            self._screen.begin(phase)
        if phase is Phase.RECOVERY:
            self._servers.make_space()

    def _look(self, load: Load, at_seconds: float) -> Look:
        self._taken.append((at_seconds, load.acknowledged_bytes))
        (since, before), (_, taken) = self._taken[0], self._taken[-1]
        rate = (taken - before) / (at_seconds - since) if at_seconds > since else 0.0
        return Look(at_seconds, self._volume.free_bytes(), self._factor, self._quota(), rate)

    def _require_going_on(self, look: Look) -> None:
        """Else say so: a demo that stands still shows nothing."""
        if not self._servers.watched.pids:
            raise DemoFailedError("The broker ended before its producers did: the disk was full.")
        if look.at_seconds > _PATIENCE_SECONDS:
            raise DemoFailedError(
                f"After {human_seconds(look.at_seconds)} the demo has not come further than `{self._story.phase.title}`"
                ": this machine may be too busy for three Java processes."
            )
