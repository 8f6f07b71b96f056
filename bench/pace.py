"""How soon a crossed limit is detected, and with how many requests: a fixed interval and the adaptive one.

It uses no brokers: the collector's own rule (`policies/throttle/pace.py`) watches a day of one broker with a disk of 1
TB, in virtual time, at many phases of each fill. docs/side-by-side.md has the time from a reading to a quota. Takes
seconds:

    python -m bench.pace
"""

import statistics
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from policies.free_space.limits import Limit
from policies.throttle.pace import BrokerPace, PaceBounds, adapt_pace
from policies.throttle.readings import VolumeReading

GIGABYTE, MEGABYTE = 10**9, 10**6
DISK = 1000 * GIGABYTE
HARD, SOFT = 50 * GIGABYTE, 100 * GIGABYTE
DAY_SECONDS = 86_400.0
PHASES = 200


class Fill(NamedTuple):
    """A fill from rest to the hard limit at one rate; before and after it nothing changes."""

    name: str
    bytes_per_second: float
    free_at_rest: int

    @property
    def seconds(self) -> float:
        """Seconds until the hard limit."""
        return (self.free_at_rest - HARD) / self.bytes_per_second


FILLS = (
    Fill("20 MB/s for 5 hours", 20 * MEGABYTE, 410 * GIGABYTE),
    Fill("200 MB/s for 25 min", 200 * MEGABYTE, 350 * GIGABYTE),
    Fill("1 GB/s for 100 s", GIGABYTE, 150 * GIGABYTE),
    Fill("2 GB/s for 10 s, out of the blue", 2 * GIGABYTE, 70 * GIGABYTE),
)
LOOKS = {
    "fixed, 10 s": PaceBounds(10.0, 10.0),
    "fixed, 1 s": PaceBounds(1.0, 1.0),
    "10 s, 1 s when it matters": PaceBounds(1.0, 10.0),
}


def looks(free: Callable[[float], float], until: float, bounds: PaceBounds) -> Iterator[float]:
    """When the collector reads one broker: every `poll_interval`, and in between when the rule says so."""
    limits = (Limit(available_bytes_below=SOFT), Limit(available_bytes_below=HARD))
    now = 0.0
    pace: BrokerPace | None = None
    while now < until:
        yield now
        volume = VolumeReading(log_dir="/data", total_bytes=DISK, usable_bytes=int(free(now)))
        pace = adapt_pace(pace, now, [volume], limits, bounds)
        poll = (now // bounds.longest_seconds + 1) * bounds.longest_seconds
        now = min(now + pace.interval_seconds, poll)


def _free(fill: Fill, begins: float) -> Callable[[float], float]:
    return lambda now: fill.free_at_rest - fill.bytes_per_second * min(max(0.0, now - begins), fill.seconds)


def _seen_after(fill: Fill, begins: float, bounds: PaceBounds) -> float:
    """Seconds from crossing the hard limit to the reading that shows it."""
    crossed = begins + fill.seconds
    return next(now for now in looks(_free(fill, begins), crossed + 60, bounds) if now >= crossed) - crossed


def _requests(fill: Fill, bounds: PaceBounds) -> int:
    """Requests of a day with this one fill."""
    return sum(1 for _ in looks(_free(fill, DAY_SECONDS / 2), DAY_SECONDS, bounds))


def main() -> None:
    """Print the table."""
    print("| a fill of | looks | crossed → seen, s: median, worst | requests a day | of those at 10 s |")
    print("|---|---|---|---|---|")
    for fill in FILLS:
        few = _requests(fill, LOOKS["fixed, 10 s"])
        for name, bounds in LOOKS.items():
            draw = Random(7)
            seen = [_seen_after(fill, 60 + draw.random() * 10, bounds) for _ in range(PHASES)]
            requests = _requests(fill, bounds)
            print(
                f"| {fill.name} | {name} | {statistics.median(seen):.1f}, {max(seen):.1f} | {requests:,} "
                f"| {requests / few:.2f} |"
            )


if __name__ == "__main__":
    main()
