"""All benchmarks that need only this machine, in one table with commit and machine.

They run one after the other with short durations: about twenty minutes on two idle cores, and none longer than ten. If
one fails or takes longer, the table says so, and the others go on. Java is needed, and for `peers` the network, once.

    python bench/all.py
    python bench/all.py --only idle latency
    python bench/all.py --against HEAD~20
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.turns import BenchmarkError, Figures, figures_of, run

HERE = Path(__file__).parent
LONGEST_SECONDS = 600.0
SCRIPTS: Mapping[str, Sequence[str]] = {
    "idle": (),
    "latency": ("--seconds", "30", "--warmup", "30"),
    "start": (),
    "fleet": ("--clusters", "300", "--seconds", "30"),
    "peers": ("--seconds", "15", "--warmup", "10"),
    "steps": (),
}
"""Each script with the arguments that shorten it."""


def measure(given: argparse.Namespace) -> Figures:
    """Run each script in turn, with the code on this process's path."""
    figures: Figures = {}
    for name in given.only:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found = figures_of(HERE / f"{name}.py", SCRIPTS[name], longest_seconds=LONGEST_SECONDS)
        except BenchmarkError as error:
            print(error, file=sys.stderr, flush=True)
            found = {"failed": float("nan")}
        figures |= {f"{name}: {what}": value for what, value in found.items()}
    return figures


if __name__ == "__main__":
    run(measure, only=([*SCRIPTS], "some of them"))
