"""When collectors poll: at a fixed rate with jitter, until they are told to stop."""

import math
import random
import time
from collections.abc import Callable, Iterator

_random = random.SystemRandom()

JITTER = 0.1
"""Share of the interval by which a tick may be early or late, so that many collectors do not ask all at once."""


def ticks(
    interval_seconds: float,
    stopped_within: Callable[[float], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    draw: Callable[[float, float], float] = _random.uniform,
) -> Iterator[int]:
    """Yield at once, and then once an interval, until stopped.

    The rate is fixed: a tick's jitter, or the time spent between ticks, moves no later tick. Ticks that were missed
    because a poll took longer than the interval are left out, not made up for.

    Args:
        interval_seconds: from one tick to the next.
        stopped_within: waits so many seconds at most and tells whether to stop, as `threading.Event.wait` does.
        clock: seconds, never going backwards.
        draw: a number between two others.

    Yields:
        The tick's number.
    """
    start = clock()
    number, jitter = 0, 0.0
    while True:
        due = start + (number + jitter) * interval_seconds
        if stopped_within(max(0.0, due - clock())):
            return
        yield number
        number = max(number + 1, math.floor((clock() - start) / interval_seconds) + 1)
        jitter = draw(-JITTER, JITTER)
