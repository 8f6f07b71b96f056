"""How long from an observation's append to the append of the decision of its batch, per event, none left out.

Every observation changes its cluster's factor (holds and min_change are 0), so each batch that holds one decides.

    python bench/latency.py --rates 1 100 1000 --seconds 60 --warmup 60
    python bench/latency.py --against HEAD~20 --turns 2
"""

import argparse

from bench.loop import PREFIX, Throttled, loop_kafka, quantile, start_throttle
from bench.turns import Figures, run
from tests.eager import EAGER
from tests.system.waiting import eventually


def measure(given: argparse.Namespace) -> Figures:
    """Measure each rate in turn."""
    figures: Figures = {}
    with loop_kafka(PREFIX) as (folder, servers):
        throttled = Throttled(servers)
        start_throttle(folder, servers, {}, EAGER)
        throttled.produce(given.rates[0], 1)
        eventually("the first decision", lambda: sum(throttled.marks()[1].values()))
        throttled.produce(given.rates[0], given.warmup)
        for rate in given.rates:
            marks = throttled.marks()
            throttled.produce(rate, given.seconds)
            millis = throttled.await_latencies(marks)
            for percent in (50, 99):
                figures[f"{rate}/s, p{percent}, ms"] = quantile(millis, percent)
            figures[f"{rate}/s, longest, ms"] = millis[-1]
    return figures


if __name__ == "__main__":
    run(
        measure,
        rates=([1, 100, 1000], "observations a second"),
        seconds=(60, "measured time for each rate"),
        warmup=(60, "seconds of the first rate that do not count"),
    )
