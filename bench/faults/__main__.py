"""Injects faults into a real small loop for as long as you like: `python -m bench.faults --count 500 --seed 1`.

Prints a table. The status is 0 if the loop recovered from each fault, and no record is lost or wrong.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from bench.faults.clocks import why_no_leaps
from bench.faults.matrix import Matrix, Result, plan
from bench.faults.stream import Stream
from bench.faults.world import World
from deploy.java.jars import default_cache_dir, ensure_jars, spark_group


class Wanted(NamedTuple):
    """The plan of a run."""

    faults: int
    seed: int
    seconds: float
    """How long a fault lasts at most."""
    minutes: float = float("inf")
    """No fault begins after this time."""
    only: str = ""
    first: int = 1
    """The number of the first fault of the plan to inject."""


def main() -> int:
    """Run the matrix."""
    options = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    options.add_argument("--count", type=int, default=100, help="how many faults")
    options.add_argument("--seed", type=int, default=1, help="of faults, moments and what is fed")
    options.add_argument("--seconds", type=float, default=20.0, help="how long a fault lasts at most")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no fault after so long")
    options.add_argument("--only", default="", help="only kinds whose name has one of these words, with commas")
    options.add_argument(
        "--first", type=int, default=1, help="begin with the fault of this number, to go on with a plan"
    )
    options.add_argument("--folder", type=Path, help="where logs are left; default: a new one below /tmp")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    folder = given.folder or Path(tempfile.mkdtemp(prefix="headgate-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    wanted = Wanted(given.count, given.seed, given.seconds, given.minutes, given.only, given.first)
    result = run(folder, wanted, console.print)
    for complaint in result.complaints:
        console.print(complaint, markup=False)
    console.print(result.table)
    console.print(f"seed {given.seed}, logs in {folder}")
    return 1 if result.complaints else 0


def run(folder: Path, wanted: Wanted, told: Callable[[str], None]) -> Result:
    """Start a world and run a plan in it."""
    ensure_jars(spark_group(), default_cache_dir())
    ends_at = time.monotonic() + 60 * wanted.minutes
    with World(folder, ensure_jars("kafka", default_cache_dir())) as world:
        if not world.has_small_disk:
            told("left out, as not to be had here: a full disk (mounting one takes root)")
        if world.clocks is None:
            told(f"left out, as not to be had here: clocks that leap ({why_no_leaps()})")
        kinds = plan(
            wanted.faults,
            wanted.seed,
            has_small_disk=world.has_small_disk,
            has_clocks=world.clocks is not None,
            only=wanted.only,
        )
        with Stream(world.kafka.bootstrap_servers, wanted.seed) as stream:
            return Matrix(world, stream, wanted.seed, wanted.seconds, told).run(kinds, ends_at, wanted.first)


if __name__ == "__main__":
    sys.exit(main())
