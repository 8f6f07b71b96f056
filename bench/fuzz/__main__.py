"""Fuzzes the parsers, guided by coverage: `make fuzz TARGET=codec SECONDS=300` installs Atheris and runs this.

It ends at the first failure. The document is printed and stored in `tests/data/fuzz/<target>/`, which every run of the
tests parses again. `make thorough` mutates valid documents at random, as `make unit` does a little.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from bench.fuzz.targets import TARGETS

_OURS = ("policies.", "streaming.", "connectors.", "deploy.")
_CORPUS = Path(__file__).parents[2] / "tests" / "data" / "fuzz"


def main() -> None:
    """Run one target."""
    options = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    options.add_argument("target", choices=TARGETS)
    options.add_argument("--seconds", type=int, default=300)
    given = options.parse_args()
    try:
        import atheris
    except ImportError:
        raise SystemExit("atheris is not installed: make fuzz does that") from None
    corpus = _CORPUS / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headgate-fuzz-") as folder:
        for number, seed in enumerate(TARGETS[given.target].seeds):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        _instrument(atheris.instrument_func)
        limits = (f"-max_total_time={given.seconds}", "-max_len=20000", "-timeout=60")
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus}/", folder, str(corpus)], TARGETS[given.target])
        atheris.Fuzz()


def _instrument(instrumented: Callable[[Any], Any]) -> None:
    """Instrument only Headgate's own functions: with all libraries the start would take minutes."""
    ours = [module for name, module in sys.modules.items() if name.startswith(_OURS)]
    for module in ours:
        for function in list(vars(module).values()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = instrumented(function).__code__


if __name__ == "__main__":
    main()
