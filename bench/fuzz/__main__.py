"""Fuzzes the parsers at random or guided by coverage: `python -m bench.fuzz codec --count 1000000 --seed 1`.

A document that fails is printed and stored in `tests/data/fuzz/<target>/`, which every run of the tests parses again.
"""

import argparse
import hashlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any

from bench.fuzz.mutations import mutated
from bench.fuzz.targets import TARGETS, Target

_TELL_SECONDS = 20.0
_OURS = ("policies.", "streaming.", "connectors.", "deploy.")
_CORPUS = Path(__file__).parents[2] / "tests" / "data" / "fuzz"


def main() -> int:
    """Run one target."""
    options = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    options.add_argument("target", choices=TARGETS)
    options.add_argument("--count", type=int, default=100_000, help="how many documents")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--atheris", action="store_true", help="guided by coverage, for --seconds (`make fuzz`)")
    options.add_argument("--seconds", type=int, default=300)
    given = options.parse_args()
    target = TARGETS[given.target]
    if given.atheris:
        return _guided(given.target, target, given.seconds)
    return _random(given.target, target, given.count, given.seed)


def _random(name: str, target: Target, count: int, seed: int) -> int:
    random, failures, began = Random(seed), 0, time.monotonic()
    told = began
    for number in range(count):
        document = mutated(random, random.choice(target.seeds))
        try:
            target(document)
        except Exception:
            failures += 1
            traceback.print_exc()
            _keep(name, document)
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            _tell(f"{name}: {number + 1} documents, {failures} failures, {(number + 1) / (told - began):.0f} a second")
    _tell(f"{name}: {count} documents, {failures} failures, {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if failures else 0


def _guided(name: str, target: Target, seconds: int) -> int:
    """Fuzz guided by coverage, up to the first failure; its document is stored, too."""
    try:
        import atheris
    except ImportError:
        _tell("atheris is not installed: make fuzz does that")
        return 2
    (_CORPUS / name).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headgate-fuzz-") as folder:
        for number, seed in enumerate(target.seeds):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        _instrument(atheris.instrument_func)
        options = (f"-max_total_time={seconds}", f"-artifact_prefix={_CORPUS / name}/", "-max_len=20000", "-timeout=60")
        atheris.Setup([sys.argv[0], *options, folder, str(_CORPUS / name)], target)
        atheris.Fuzz()
    return 0


def _instrument(instrumented: Callable[[Any], Any]) -> None:
    """Instrument only Headgate's own functions: with all libraries the start would take minutes."""
    ours = [module for name, module in sys.modules.items() if name.startswith(_OURS)]
    for module in ours:
        for function in list(vars(module).values()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = instrumented(function).__code__


def _keep(name: str, document: bytes) -> None:
    folder = _CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha256(document).hexdigest()[:12]).write_bytes(document)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
