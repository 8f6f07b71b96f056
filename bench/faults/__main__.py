"""Injects faults into a real small loop for as long as you like: `python -m bench.faults --count 500 --seed 1`.

Prints a table. The status is 0 if the loop recovered from each fault, and no record is lost or wrong.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench.faults.matrix import Matrix, Result, plan
from bench.faults.stream import Stream
from bench.faults.world import World
from deploy.java.jars import ensure_jars, spark_group
from deploy.settings.folders import default_cache_dir


def main() -> int:
    """Run the matrix."""
    options = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    options.add_argument("--count", type=int, default=100, help="how many faults")
    options.add_argument("--seed", type=int, default=1, help="of faults, moments and what is fed")
    options.add_argument("--seconds", type=float, default=20.0, help="how long a fault lasts at most")
    options.add_argument("--only", default="", help="only kinds whose name has one of these words, with commas")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    folder, console = Path(tempfile.mkdtemp(prefix="headgate-faults-")), Console()
    result = run(folder, given.count, given.seed, given.seconds, console.print, given.only)
    for complaint in result.complaints:
        console.print(complaint, markup=False)
    console.print(result.table)
    console.print(f"seed {given.seed}, logs in {folder}")
    return 1 if result.complaints else 0


def run(folder: Path, count: int, seed: int, seconds: float, told: Callable[[str], None], only: str = "") -> Result:
    """Start a world and run a plan in it."""
    ensure_jars(spark_group(), default_cache_dir())
    with World(folder, ensure_jars("kafka", default_cache_dir())) as world:
        if not world.has_small_disk:
            told("left out, as not to be had here: a full disk (mounting one takes root)")
        kinds = plan(count, seed, has_small_disk=world.has_small_disk, only=only)
        with Stream(world.kafka.bootstrap_servers, seed) as stream:
            return Matrix(world, stream, seed, seconds, told).run(kinds)


if __name__ == "__main__":
    sys.exit(main())
