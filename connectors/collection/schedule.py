"""The schedule of polls: a fixed rate with jitter, until a stop."""

import math
import random
import time
from collections.abc import Callable, Iterator

_random = random.SystemRandom()

JITTER = 0.1
"""Maximum shift of a tick as a fraction of the interval, so that many collectors do not poll at the same time."""


def ticks(
    interval_seconds: float,
    stopped_within: Callable[[float], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    draw: Callable[[float, float], float] = _random.uniform,
) -> Iterator[int]:
    """Yield the number of each tick, the first at once, until stopped.

    The rate is fixed: neither jitter nor the duration of a poll moves later ticks. A tick that is due during a long
    poll is skipped.

    Args:
        stopped_within: waits at most the given seconds, and returns whether to stop, like `threading.Event.wait`.
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
