"""Several `headgate` commands in one process of their own: starting one costs a second of processor time."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_RUN_ALL = """
import contextlib, importlib, io, json, os, runpy, sys

def load_anew():
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith((os.getcwd() + os.sep, *before)):
            del sys.modules[name]
    importlib.invalidate_caches()

usual, before = sys.path, []
for packages, module, *arguments in json.loads(sys.argv[1]):
    if before != packages:
        load_anew()
    before, sys.path, sys.argv = packages, [*packages, *usual], [module, *arguments]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


class Ended(NamedTuple):
    """What one command came to."""

    status: int
    out: str
    err: str


class Command(NamedTuple):
    """What follows `headgate`, or `python -m` and another module; and the folders in which packages are installed."""

    arguments: Sequence[object]
    packages: Sequence[Path] = ()
    module: str = "deploy.cli"


def run_several(commands: Sequence[Command], environment: Mapping[str, str] | None = None) -> list[Ended]:
    """Run commands one after the other, with some variables; load Headgate again when the installed packages change."""
    asked = json.dumps([[[*map(str, c.packages)], c.module, *map(str, c.arguments)] for c in commands])
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUN_ALL, asked],
        env={**os.environ, **(environment or {}), "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [Ended(*json.loads(line)) for line in done.stdout.splitlines()]
