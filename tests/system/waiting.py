"""How system tests wait, and how they judge time: by conditions, and by what the machine at hand needs itself.

No test says how many seconds something may take. It waits with `eventually`, whose one deadline is generous, or
compares what it measured with `on_this_machine`, which stretches what is enough on an idle machine of two cores. What
must last long enough for something to happen within is `paced`.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import TypeVar

from tests.progress import tell

Value = TypeVar("Value")

DEADLINE_SECONDS = 240.0
"""On an idle machine nothing that a test awaits takes a quarter of this."""

_POLL_SECONDS = 0.05
_SLOWEST_POLL_SECONDS = 0.25
"""What takes long is asked for less and less often: asking costs whoever is awaited its processor."""
_TOLD_EACH_SECONDS = 20.0

_UNIT = (sys.executable, "-c", "import kazoo.client, confluent_kafka, httpx")
"""Starting a Python process that can talk to all servers: memory, disk and processor, as in every server's start."""
_SLOWNESS = "TESTS_SLOWNESS"
_UNIT_SECONDS = 0.25
"""What that takes on the idle machine of two cores for which all times in these tests are given."""
_MOMENT_SECONDS = 10.0
_last_measured = [-math.inf, 1.0]
"""When (monotonic), and what came of it."""

_MOST_PACE = 5.0
"""Beyond that a run would take all day; what is measured once may have been a moment's load."""


def eventually(what: str, find: Callable[[], Value | None]) -> Value:
    """Ask over and over until `find` gives something; fail with `what` was awaited.

    It says every 20 s what is waited for, in the terminal of who runs the tests.
    """
    began = time.monotonic()
    for told in count(1):
        found = _found_before(find, began, began + told * _TOLD_EACH_SECONDS)
        if found is not None:
            return found
        waited = time.monotonic() - began
        assert waited < DEADLINE_SECONDS or waited < on_this_machine(DEADLINE_SECONDS), f"not in {waited:.0f} s: {what}"
        tell(f"waits for {waited:.0f} s now: {what}")
    raise AssertionError(what)


def within(seconds: float, find: Callable[[], Value | None]) -> Value | None:
    """What `find` gives in this time, or None: for who then does something else."""
    began = time.monotonic()
    return _found_before(find, began, began + on_this_machine(seconds))


def on_this_machine(seconds: float) -> float:
    """A time that is enough on an idle machine of two cores, stretched as much as this one is slower or busier."""
    return seconds * max(1.0, slowness_at_first(), _slowness())


def is_soon(took_seconds: float, seconds: float) -> bool:
    """Whether it took no longer than `on_this_machine(seconds)`, which is measured, in a second, only if need be."""
    return took_seconds < seconds or took_seconds < on_this_machine(seconds)


def paced(seconds: float) -> float:
    """A time that a test sets up, such as a session's timeout: longer on a slow machine, the same in a whole run."""
    return round(seconds * min(max(1.0, slowness_at_first()), _MOST_PACE), 1)


def measure_machine() -> None:
    """Measure how slow the machine is before tests load it; workers that are started later know it too."""
    os.environ[_SLOWNESS] = f"{min(_unit_seconds() for _ in range(3)) / _UNIT_SECONDS:.2f}"


def slowness_at_first() -> float:
    """How many times as long as the idle machine of two cores this one took before the tests."""
    if _SLOWNESS not in os.environ:
        measure_machine()
    return float(os.environ[_SLOWNESS])


def _slowness() -> float:
    """Of just now; measured anew when that is longer ago than such a moment."""
    measured_at, slowness = _last_measured
    if time.monotonic() - measured_at > _MOMENT_SECONDS:
        slowness = median(_unit_seconds() for _ in range(3)) / _UNIT_SECONDS
        _last_measured[:] = time.monotonic(), slowness
    return slowness


def _unit_seconds() -> float:
    began = time.monotonic()
    subprocess.run(_UNIT, check=True)
    return time.monotonic() - began


def _found_before(find: Callable[[], Value | None], began: float, deadline: float) -> Value | None:
    while True:
        found = find()
        if found is not None and found is not False:
            return found
        if time.monotonic() >= deadline:
            return None
        time.sleep(min(max(_POLL_SECONDS, (time.monotonic() - began) / 40), _SLOWEST_POLL_SECONDS))
