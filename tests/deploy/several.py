"""Several `headgate` commands in one process of their own: starting one costs a second of processor time."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_RUN_ALL = """
import contextlib, io, json, sys
from deploy.cli import main
for arguments in json.loads(sys.argv[1]):
    out, err, sys.argv, status = io.StringIO(), io.StringIO(), ["headgate", *arguments], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


class Ended(NamedTuple):
    """What one command came to."""

    status: int
    out: str
    err: str


def run_several(commands: Sequence[Sequence[object]], *, path: Sequence[Path] = (ROOT,)) -> list[Ended]:
    """Run them one after the other.

    Args:
        commands: what follows `headgate`.
        path: where Python finds packages.
    """
    asked = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUN_ALL, asked],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [Ended(*json.loads(line)) for line in done.stdout.splitlines()]
