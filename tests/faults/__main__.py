"""Injects faults into a real small loop for as long as you like: `python -m tests.faults --count 500 --seed 1`.

Ends with a table and status 0 when the loop recovered from each, nothing was lost and nothing wrong.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from deploy.jars import default_cache_dir, ensure_jars
from tests.faults.matrix import Matrix, Result, plan
from tests.faults.stream import Stream
from tests.faults.world import World


def main() -> int:
    """Run the matrix."""
    options = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    options.add_argument("--count", type=int, default=100, help="how many faults")
    options.add_argument("--seed", type=int, default=1, help="of faults, moments and what is fed")
    options.add_argument("--seconds", type=float, default=20.0, help="how long a fault lasts at most")
    options.add_argument("--only", default="", help="only kinds whose name has one of these words, with commas")
    options.add_argument("--folder", type=Path, help="where logs are left; default: a new one below /tmp")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="headgate-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    result = run(folder, given.count, given.seed, given.seconds, given.only, console.print)
    for complaint in result.complaints:
        console.print(complaint, markup=False)
    console.print(result.table)
    console.print(f"seed {given.seed}, logs in {folder}")
    return 1 if result.complaints else 0


def run(folder: Path, count: int, seed: int, seconds: float, only: str, told: Callable[[str], None]) -> Result:
    """Start a world and run a plan in it."""
    ensure_jars("spark", default_cache_dir())
    with World(folder, ensure_jars("kafka", default_cache_dir())) as world:
        if not world.has_small_disk or not world.has_clock:
            told("left out, as not to be had here: faults of a small disk (root), or of a clock (libfaketime)")
        kinds = plan(count, seed, has_small_disk=world.has_small_disk, has_clock=world.has_clock, only=only)
        with Stream(world.kafka.bootstrap_servers, seed) as stream:
            return Matrix(world, stream, seed, seconds, told).run(kinds)


if __name__ == "__main__":
    sys.exit(main())
