"""How fast the machine at hand is, and how busy: measured before the tests, and at each moment of a run.

What tests judge by is *machine seconds*: those that an idle machine of two cores would have counted meanwhile. While
four processes want each of its processors, a second of the clock is a quarter of one; while nothing went on at all (the
machine stood still, or was taken away) it is none. So what counts is the very time that is judged, not how busy it
was before or is by then.
"""

import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

_UNIT = (sys.executable, "-c", "import kazoo.client, confluent_kafka, httpx")
"""Starting a Python process that can talk to all servers: memory, disk and processor, as in every server's start."""
_SLOWNESS = "TESTS_SLOWNESS"
_UNIT_SECONDS = 0.25
"""What that takes on the idle machine of two cores for which all times in these tests are given."""

_LOOK_SECONDS = 0.1
_STOOD_STILL_SECONDS = 2 * _LOOK_SECONDS
"""Whoever looks so much later than it wanted to was held up like everybody else."""
_LOOKS = 9_000
"""Of a quarter of an hour: nobody judges a longer time."""
_PROCESSORS = os.cpu_count() or 1
_LOADAVG = Path("/proc/loadavg")
_monotonic = time.monotonic  # whatever a test makes of the module's


def measure_machine() -> None:
    """Measure how slow the machine is before tests load it; workers that are started later know it too."""
    os.environ[_SLOWNESS] = f"{min(_unit_seconds() for _ in range(3)) / _UNIT_SECONDS:.2f}"


def slowness_at_first() -> float:
    """How many times as long as the idle machine of two cores this one took before the tests; 1 where it took less."""
    if _SLOWNESS not in os.environ:
        measure_machine()
    return max(1.0, float(os.environ[_SLOWNESS]))


def _unit_seconds() -> float:
    began = _monotonic()
    subprocess.run(_UNIT, check=True)
    return _monotonic() - began


class Look(NamedTuple):
    """How busy the machine was at a moment."""

    at: float
    """By the monotonic clock."""
    wait: float
    """How many times as long as alone whoever computes takes: 1 while there are as many processors as are wanted."""


class Watch(threading.Thread):
    """Notes how busy the machine is, ten times a second."""

    def __init__(self) -> None:
        super().__init__(name="machine watch", daemon=True)
        self._looks: deque[Look] = deque(maxlen=_LOOKS)
        self._over = threading.Event()

    def run(self) -> None:
        """Until the process ends."""
        while not self._over.wait(_LOOK_SECONDS):
            self._looks.append(Look(_monotonic(), _wait()))

    def looks(self) -> list[Look]:
        """Those that are known still, oldest first."""
        return list(self._looks)


def _wait() -> float:
    """By the threads that run or would, but for our own; where that is not told, by the average of a minute."""
    try:
        wanted = int(_LOADAVG.read_text().split()[3].partition("/")[0]) - 1
    except OSError:
        wanted = math.floor(os.getloadavg()[0])
    return max(1.0, wanted / _PROCESSORS)


_watch = Watch()


def watch_machine() -> None:
    """From now on it is noted how busy the machine is; harmless when it is already."""
    if not _watch.is_alive():
        _watch.start()


def busy_now() -> float:
    """How many times as long as on the idle machine anything took in the last seconds."""
    now, lasted = _monotonic(), 10.0
    counted = counted_seconds(_watch.looks(), now - lasted, now)
    return slowness_at_first() * lasted / max(counted, 0.1)


def machine_seconds(since: float, until: float | None = None) -> float:
    """Seconds of an idle machine of two cores between two moments of the monotonic clock; 0 where none was between."""
    until = _monotonic() if until is None else until
    return counted_seconds(_watch.looks(), since, until) / slowness_at_first()


def counted_seconds(looks: list[Look], since: float, until: float) -> float:
    """The time between two moments, each part of it by how busy the machine was found at its end.

    What was before the first look, or comes after the last, counts like that one.
    """
    if not looks:
        return max(0.0, until - since)
    counted, end, wait = 0.0, until, looks[-1].wait
    for look in reversed(looks):
        if look.at < end:
            counted += _part(max(look.at, since), end, wait)
            end = max(look.at, since)
        if end <= since:
            return counted
        wait = look.wait
    return counted + max(0.0, end - since) / wait


def _part(began: float, ended: float, wait: float) -> float:
    return min(max(0.0, ended - began), _STOOD_STILL_SECONDS) / wait
