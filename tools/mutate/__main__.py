"""`make mutate`: try whether the tests notice a changed condition; exit code 1 below 95 %.

A copy of the repository gets a switch at each mutant. One run of the tests records which tests see another value there.
Then a forked process for each mutant runs those tests with the mutant on, the shortest first, until one fails.
A mutant that mypy refuses is killed by it: most such conditions only prove to mypy that a value is not None.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutate import switch
from tools.mutate.mutants import Mutant, find_mutants, pick, write_switches
from tools.mutate.plugin import FOLDER, KILLED, PART, SEEN, TRIED, read_pairs

ROOT = Path(__file__).parents[2]
LEAST_PERCENT = 95.0
_NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "dist")
_DEPLOYED = ("query", "commands", "policy_commands", "switch")
_TESTED = ("policies", "streaming", "connectors", *(f"deploy/{room}" for room in _DEPLOYED))
_PYTEST = [sys.executable, "-m", "pytest", "-ptools.mutate.plugin", "-pno:xdist", "-pno:cacheprovider", "-q"]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Try some mutants of the folders; print those that survive, and the share of those that were killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", nargs="+", default=[f"tests/{it}" for it in _TESTED])
    parser.add_argument("folders", nargs="*", default=["policies", "streaming"])
    asked = parser.parse_args(arguments)
    mutants = dict(enumerate(pick(_find_all(root, asked.folders), asked.count, asked.seed)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        clone = Path(folder) / "clone"
        shutil.copytree(root, clone, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        originals = {mutant.path: (clone / mutant.path).read_bytes() for mutant in mutants.values()}
        write_switches(clone, mutants)
        for variables in ({switch.SEEN: f"{folder}/{SEEN}"}, {}):
            _run_tests(clone, asked.processes, asked.tests, {FOLDER: folder, **variables})
        tried = {int(number): result for number, result in read_pairs(Path(folder) / TRIED)}
        for path, source in originals.items():
            (clone / path).write_bytes(source)
        if not _is_refused_by_types(clone, originals):
            survivors = {number: it for number, it in mutants.items() if tried.get(number) != KILLED}
            changed = {number: {it.path: it.change(originals[it.path])} for number, it in survivors.items()}
            tried |= {number: KILLED for number, files in changed.items() if _is_refused_by_types(clone, files)}
    return _report(mutants, tried)


def _find_all(root: Path, folders: Sequence[str]) -> Iterator[Mutant]:
    equivalent = Path(__file__).with_name("equivalent.txt").read_text().splitlines()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        found = find_mutants(name, path.read_bytes())
        yield from (it for it in found if f"{name} {it.original} -> {it.mutated}" not in equivalent)


def _run_tests(clone: Path, processes: int, tests: Sequence[str], environment: dict[str, str]) -> None:
    """Run the tests of the copy in several processes, in which the plugin does its part of the work."""
    command = [*_PYTEST, "-m", "not system and not streaming", *tests]
    variables = {**os.environ, "PYTHONPATH": f"{clone}{os.pathsep}{ROOT}", **environment}
    parts = [{**variables, PART: f"{part}/{processes}"} for part in range(processes)]
    running = [subprocess.Popen(command, cwd=clone, env=part, stdout=subprocess.DEVNULL) for part in parts]
    for process in running:
        process.wait()


def _is_refused_by_types(clone: Path, files: Mapping[str, bytes]) -> bool:
    """Whether mypy refuses one of the files, which have their former text afterwards."""
    before = {path: (clone / path).read_bytes() for path in files}
    for path, source in files.items():
        (clone / path).write_bytes(source)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", *files]
    refused = subprocess.run(command, cwd=clone, stdout=subprocess.DEVNULL).returncode != 0
    for path, source in before.items():
        (clone / path).write_bytes(source)
    return refused


def _report(mutants: dict[int, Mutant], tried: dict[int, str]) -> int:
    """Print the survivors and the share of the killed; return the exit code."""
    survivors = [number for number in mutants if tried.get(number) != KILLED]
    for number in survivors:
        print(f"survives: {mutants[number]} ({tried.get(number, 'no test sees it')})")
    killed = len(mutants) - len(survivors)
    percent = 100.0 * killed / max(len(mutants), 1)
    print(f"mutants: {len(mutants)} valid, {killed} killed, {percent:.1f} %")
    return 0 if percent >= LEAST_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
