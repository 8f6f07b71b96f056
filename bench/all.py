"""The benchmarks that need no more than this machine, in one table with commit and machine.

python bench/all.py
python bench/all.py --against HEAD~20
"""

import argparse
from pathlib import Path

from bench.turns import Figures, figures_of, run

HERE = Path(__file__).parent
SCRIPTS = ("idle.py", "latency.py", "start.py")


def main() -> None:
    """Measure and print."""
    run(__doc__ or "", measure, argparse.ArgumentParser())


def measure(_: argparse.Namespace) -> Figures:
    """Each script in turn, of the code on this process's path."""
    figures: Figures = {}
    for script in SCRIPTS:
        figures |= figures_of(HERE / script, ())
    return figures


if __name__ == "__main__":
    main()
