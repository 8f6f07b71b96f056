"""Runs a benchmark in turn on this commit and on another, so that both meet the same load of the machine.

Figures of one machine at one time mean little elsewhere; the ratio of two commits, measured in turn, is meaningful.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import policies
from bench.processes import kill_tree

ROOT = Path(__file__).parents[1]

Figures = dict[str, float]
"""The measurements of a benchmark, by name with its unit."""


def run(measure: Callable[[argparse.Namespace], Figures], **options: tuple[Any, str]) -> None:
    """Measure and print a table, with `--against REF` next to another commit's; `--json` prints only the figures.

    Args:
        measure: takes what the command line gives.
        options: of the script, each with its default and help. A list takes several values; of words, only its own.
    """
    turns = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    turns.add_argument("--against", metavar="REF", help="measure this commit too, in turn, in a tree of its own")
    turns.add_argument("--turns", type=int, default=2, help="with --against: how often each is measured")
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[turns],
        allow_abbrev=False,
    )
    for name, (default, says) in options.items():
        if isinstance(default, list):
            words = default if isinstance(default[0], str) else None
            parser.add_argument(
                f"--{name}", type=type(default[0]), nargs="+", choices=words, default=default, help=says
            )
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default, help=says)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    if given.against:
        try:
            print(table(in_turn(Path(sys.argv[0]), turns.parse_known_args()[1], given.against, given.turns)))
        except BenchmarkError as error:
            raise SystemExit(str(error)) from None
        return
    figures = measure(given)
    print(json.dumps(figures) if given.json else table({"now": figures}))


def in_turn(script: Path, arguments: Sequence[str], ref: str, turns: int) -> dict[str, Figures]:
    """Return the medians of both commits: old, new, and so on."""
    taken: dict[str, list[Figures]] = {ref: [], "now": []}
    with _tree(ref) as old:
        for _ in range(turns):
            for name, tree in ((ref, old), ("now", ROOT)):
                taken[name].append(figures_of(script, arguments, tree))
    common = [what for what in taken["now"][0] if all(what in figures for of in taken.values() for figures in of)]
    return {name: {what: statistics.median(f[what] for f in of) for what in common} for name, of in taken.items()}


class BenchmarkError(Exception):
    """A script failed or took too long."""


def figures_of(
    script: Path, arguments: Sequence[str], tree: Path | None = None, longest_seconds: float | None = None
) -> Figures:
    """Run a script on the code in `tree`, whose own script of that name goes first; by default on this process's code.

    Raises:
        BenchmarkError: it failed or took too long.
    """
    tree = tree or Path(policies.__file__).parents[1]
    own = tree / "bench" / script.name  # as another commit's `bench` may have other functions
    command = [sys.executable, str(own if own.exists() else script.absolute()), *arguments, "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tree, ROOT)))}
    with subprocess.Popen(
        command, env=environment, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said, errors = process.communicate(timeout=longest_seconds)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            raise BenchmarkError(f"{script.name} on {tree} took longer than {longest_seconds:.0f} s") from None
    if process.returncode:
        raise BenchmarkError(f"{script.name} on {tree} failed:\n{errors[-2000:]}")
    return dict(json.loads(said.splitlines()[-1]))


def table(columns: Mapping[str, Figures]) -> str:
    """Return a Markdown table: a row a figure, a column a commit; with two commits, also the ratio."""
    names, (first, *_) = list(columns), columns.values()
    heads = [*names, "ratio"] if len(names) == 2 else names
    rows = [f"{machine()}\n", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for what in first:
        values = [columns[name][what] for name in names]
        ratio = [f"{values[0] / values[1]:.2f}"] if len(values) == 2 and values[1] else []
        rows.append(f"| {what} | {' | '.join([*(f'{value:.3g}' for value in values), *ratio])} |")
    return "\n".join(rows)


def machine() -> str:
    """Return commit, processors and their load in a line."""
    try:
        commit = _git("rev-parse", "--short", "HEAD") + ("" if not _git("status", "--porcelain") else " with changes")
    except subprocess.CalledProcessError:  # a source archive
        commit = "unknown"
    model = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu, load = model[1] if model else platform.machine(), os.getloadavg()[0]
    return f"commit {commit}; {os.cpu_count()} cores, {cpu}; load {load:.1f}; Python {platform.python_version()}"


@contextmanager
def _tree(ref: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-tree-") as folder:
        _git("worktree", "add", "--detach", folder, ref)
        try:
            yield Path(folder)
        finally:
            _git("worktree", "remove", "--force", folder)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
