"""How system tests wait, and how they judge time: by conditions, and by what the machine at hand needs itself.

No test says how many seconds something may take. It waits with `eventually`, whose one deadline is generous, or judges
by `is_soon` what it took in seconds of the machine itself (`tests/system/machine.py`). A timeout that must be long
enough is stretched by `on_this_machine`; what must last long enough for something to happen within is `paced`.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeVar

from tests.progress import tell
from tests.system.machine import busy_now, machine_seconds, slowness_at_first

Value = TypeVar("Value")

DEADLINE_SECONDS = 240.0
"""On an idle machine nothing that a test awaits takes a quarter of this."""

_POLL_SECONDS = 0.05
_SLOWEST_POLL_SECONDS = 0.25
"""What takes long is asked for less and less often: asking costs whoever is awaited its processor."""
_TOLD_EACH_SECONDS = 20.0

_MOST_PACE = 5.0
"""Beyond that a run would take all day; what is measured once may have been a moment's load."""


def eventually(what: str, find: Callable[[], Value | None]) -> Value:
    """Ask over and over until `find` gives something; fail with `what` was awaited.

    It says every 20 s what is waited for, in the terminal of who runs the tests.
    """
    began = time.monotonic()
    for told in count(1):
        found = _found_before(find, began, partial(_is_past, began + told * _TOLD_EACH_SECONDS))
        if found is not None:
            return found
        waited = time.monotonic() - began
        assert is_soon(began, DEADLINE_SECONDS), f"not in {waited:.0f} s: {what}"
        tell(f"waits for {waited:.0f} s now: {what}")
    raise AssertionError(what)


def within(seconds: float, find: Callable[[], Value | None]) -> Value | None:
    """What `find` gives in this time of the machine, or None: for who then does something else."""
    began = time.monotonic()
    return _found_before(find, began, lambda: not is_soon(began, seconds))


def is_soon(since: float, seconds: float, until: float | None = None) -> bool:
    """Whether so much is not over between two moments of the monotonic clock, by the time of the machine itself.

    Args:
        since: when it began. Where one waits for a timeout besides, that is its end.
        seconds: what is enough on an idle machine of two cores.
        until: when it was there; None: now.
    """
    ended = time.monotonic() if until is None else until
    return ended - since < seconds or machine_seconds(since, ended) < seconds


def moment_of(time_ms: float) -> float:
    """Where an instant in milliseconds since the epoch is on the monotonic clock."""
    return time.monotonic() - (time.time() - time_ms / 1000)


def on_this_machine(seconds: float) -> float:
    """A timeout that is enough on an idle machine of two cores, stretched as much as this one is slower or busier."""
    return seconds * busy_now()


def paced(seconds: float) -> float:
    """A time that a test sets up, such as a session's timeout: longer on a slow machine, the same in a whole run."""
    return round(seconds * min(slowness_at_first(), _MOST_PACE), 1)


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _found_before(find: Callable[[], Value | None], began: float, is_over: Callable[[], bool]) -> Value | None:
    while True:
        found = find()
        if found is not None and found is not False:
            return found
        if is_over():
            return None
        time.sleep(min(max(_POLL_SECONDS, (time.monotonic() - began) / 40), _SLOWEST_POLL_SECONDS))
