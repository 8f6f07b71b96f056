"""`make mutate`: try whether the tests notice a changed condition; exit code 1 below 95 %.

A copy of the repository gets a switch at each mutant. One run of the tests records which tests see another value there.
Then a forked process for each mutant runs those tests with the mutant on, the shortest first, until one fails.
A mutant that mypy refuses is killed by it: most such conditions only prove to mypy that a value is not None.

This file is also the pytest plugin of both runs, and the switch that the copy imports.
"""

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
LEAST_PERCENT = 95.0
KILLED = "killed"
_EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt").read_text().splitlines()
_NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "dist")
_DEPLOYED = ("query", "commands", "policy_commands", "switch")
_TESTED = ("policies", "streaming", "connectors", *(f"deploy/{room}" for room in _DEPLOYED))
_PYTEST = [sys.executable, "-m", "pytest", "-ptools.mutate", "-pno:xdist", "-pno:cacheprovider", "-q"]
_PYTEST += ["-m", "not system"]

_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_CHANGED = {**_BOUNDS, **_OPPOSITES, **{after: before for before, after in _OPPOSITES.items()}}
_IMPORT = b"from tools.mutate import choose as _choose\n"

_FOLDER, _PART, _ON = "HEADGATE_MUTANTS", "HEADGATE_MUTANTS_PART", "HEADGATE_MUTANT"
"""Environment variables: the folder of the files below; this process's part of the work, `0/2`; the mutant that is on,
or `record`."""
_RECORD = "record"
_SEEN, _PASSED, _TRIED = "seen", "passed", "tried"
"""Files: (mutant, test) that see each other; seconds of each test that passed; result of each mutant."""
_SURVIVED, _UNDECIDED = 0, 3  # exit codes of the process that tries a mutant; undecided counts as not killed
_MOST_BYTES = 4 << 30
_MOST_SECONDS = 60  # of the processor, after which a mutant gets no further test

_folder = Path(os.environ.get(_FOLDER, "."))
_part, _parts = map(int, os.environ.get(_PART, "0/1").split("/"))
_is_on = os.environ.get(_ON, "")
_seen: set[int] = set()
"""The mutants that the running test sees."""

Value = TypeVar("Value")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Try some mutants of the folders; print those that survive, and the share of those that were killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", default=[f"tests/{it}" for it in _TESTED])
    parser.add_argument("folders", nargs="*", default=["policies", "streaming"])
    asked = parser.parse_args(arguments)
    files = {str(path.relative_to(root)): path for each in asked.folders for path in (root / each).rglob("*.py")}
    found = (mutant for name, path in files.items() for mutant in find_mutants(name, path.read_bytes()))
    not_equivalent = (it for it in found if f"{it.path} {it.original} -> {it.mutated}" not in _EQUIVALENT)
    mutants = dict(enumerate(pick(not_equivalent, asked.count, asked.seed)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        clone = Path(folder) / "clone"
        shutil.copytree(root, clone, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        originals = {mutant.path: (clone / mutant.path).read_bytes() for mutant in mutants.values()}
        _write_switches(clone, mutants)
        for is_on in (_RECORD, ""):
            _run_tests(clone, asked.tests, {_FOLDER: folder, _ON: is_on})
        tried = {int(number): result for number, result in _read_pairs(_TRIED, Path(folder))}
        if not _is_refused_by_types(clone, originals):
            for number, it in mutants.items():
                if tried.get(number) != KILLED:
                    if _is_refused_by_types(clone, {it.path: it.change(originals[it.path])}):
                        tried[number] = KILLED
                    (clone / it.path).write_bytes(originals[it.path])
    survivors = {number: tried.get(number, "no test sees it") for number in mutants if tried.get(number) != KILLED}
    for number, why in survivors.items():
        print(f"survives: {mutants[number]} ({why})")
    killed = len(mutants) - len(survivors)
    percent = 100.0 * killed / max(len(mutants), 1)
    print(f"mutants: {len(mutants)} valid, {killed} killed, {percent:.1f} %")
    return 0 if percent >= LEAST_PERCENT else 1


def _run_tests(clone: Path, tests: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the tests of the copy in several processes, in which the plugin does its part of the work."""
    variables, count = {**os.environ, "PYTHONPATH": f"{clone}{os.pathsep}{ROOT}", **environment}, os.cpu_count() or 1
    parts = [{**variables, _PART: f"{part}/{count}"} for part in range(count)]
    running = [subprocess.Popen([*_PYTEST, *tests], cwd=clone, env=it, stdout=subprocess.DEVNULL) for it in parts]
    for process in running:
        process.wait()


def _is_refused_by_types(clone: Path, files: Mapping[str, bytes]) -> bool:
    """Write the files, and return whether mypy refuses one of them."""
    for path, source in files.items():
        (clone / path).write_bytes(source)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", *files]
    return subprocess.run(command, cwd=clone, stdout=subprocess.DEVNULL).returncode != 0


# The mutants


class Mutant(NamedTuple):
    """A changed expression of a file, which stands from byte `start` to `end`."""

    path: str
    line: int
    start: int
    end: int
    original: str
    mutated: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.original} -> {self.mutated}"

    def change(self, source: bytes, expression: str = "") -> bytes:
        """Return the source with the mutant, or an expression, in the place of the original."""
        return source[: self.start] + f"({expression or self.mutated})".encode() + source[self.end :]


def find_mutants(path: str, source: bytes) -> list[Mutant]:
    """Find all mutants of the functions of a file, outside assertions, which tests are not to reach."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, tree = set(), ast.parse(source)
    asserted = {id(node) for each in ast.walk(tree) if isinstance(each, ast.Assert) for node in ast.walk(each)}
    statements = (each for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for each in node.body)
    nodes = (node for each in statements for node in ast.walk(each) if id(node) not in asserted)
    for node, changed in chain.from_iterable(map(_change, nodes)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        if _can_move(source[start:end], node):
            found.add(Mutant(path, node.lineno, start, end, ast.unparse(node), ast.unparse(changed)))
    return sorted(found)


def pick(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants of which no two overlap."""
    drawn = sorted(mutants)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a sample that can be repeated
    picked: list[Mutant] = []
    for one in drawn:
        beside = (one.path != other.path or one.end <= other.start or other.end <= one.start for other in picked)
        if len(picked) < count and all(beside):
            picked.append(one)
    return sorted(picked)


def _write_switches(root: Path, mutants: Mapping[int, Mutant]) -> None:
    """Let each mutant's expression ask the switch which value it has; each file has a docstring."""
    for path in {mutant.path for mutant in mutants.values()}:
        source = (root / path).read_bytes()
        after_docstring = ast.parse(source).body[0].end_lineno
        for number, it in reversed([*mutants.items()]):  # the last first, so that the others keep their places
            if it.path == path:
                source = it.change(source, f"_choose({number}, lambda: {it.original}, lambda: {it.mutated})")
        lines = source.splitlines(keepends=True)
        (root / path).write_bytes(b"".join([*lines[:after_docstring], _IMPORT, *lines[after_docstring:]]))


def _can_move(text: bytes, node: ast.expr) -> bool:
    """Whether a node stands where it claims to, and has the same meaning within a lambda."""
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr | ast.Yield | ast.Await) or getattr(part, "id", "") == "super":
            return False
    try:  # Python 3.11 misplaces nodes within f-strings.
        return ast.dump(ast.parse(b"(" + text + b")", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


def _change(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return the changed expressions of a node, each with the original one."""
    match node:
        case ast.Compare(ops=ops):
            for n, operator in enumerate(ops):
                changed = [*ops[:n], _CHANGED[type(operator)](), *ops[n + 1 :]]
                yield node, ast.Compare(node.left, changed, node.comparators)
        case ast.BoolOp(op=operator, values=values):
            yield node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for n in range(len(values)):
                left = [*values[:n], *values[n + 1 :]]
                yield node, left[0] if len(left) == 1 else ast.BoolOp(operator, left)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
            # Conditions that are compared or composed have mutants of their own.
            if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.Constant(value=bool(value)) as constant):
            yield constant, ast.Constant(not value)
        case ast.Return(value=ast.Constant(value=int() | str() as value) as constant):
            yield constant, ast.Constant(value + 1 if isinstance(value, int) else f"{value}x")


# The switch


def choose(number: int, original: Callable[[], Value], mutated: Callable[[], Value]) -> Value:
    """Return the value of an expression; record the test that runs if the mutant's value differs."""
    if _is_on != _RECORD:
        return mutated() if str(number) == _is_on else original()
    value = original()
    if number not in _seen:
        try:
            if mutated() == value:
                return value
        except Exception:  # noqa: S110 - an exception is a difference, too
            pass
        _seen.add(number)
        _note(_SEEN, number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
    return value


def _note(name: str, *pair: object) -> None:
    with (_folder / name).open("a") as file:
        file.write("{}\t{}\n".format(*pair))


def _read_pairs(name: str, folder: Path = _folder) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file, each split at its first tab; none if there is no file."""
    if (folder / name).exists():
        for line in (folder / name).read_text().splitlines():
            first, _, second = line.partition("\t")
            yield first, second


# The plugin: hooks of pytest, for both runs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of this part while recording."""
    if _is_on == _RECORD:
        items[:] = [each for each in items if zlib.crc32(each.nodeid.encode()) % _parts == _part]


def pytest_runtest_logstart() -> None:
    """Let the switch record what the next test sees."""
    _seen.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took that passed; end the trial of a mutant at the first test that fails."""
    if _is_on == _RECORD and report.when == "call" and report.passed:
        _note(_PASSED, report.duration, report.nodeid)
    elif _is_on != _RECORD and report.failed:
        os._exit(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Try each mutant of this part in a process of its own; a signal that ends it kills the mutant, too."""
    if _is_on == _RECORD:
        return None
    seconds = {test: float(took) for took, test in _read_pairs(_PASSED)}
    items = {item.nodeid: item for item in session.items if item.nodeid in seconds}
    seen: dict[str, list[pytest.Item]] = defaultdict(list)
    for number, test in _read_pairs(_SEEN):
        if test in items:
            seen[number].append(items[test])
    for number in sorted(seen)[_part::_parts]:
        if (child := os.fork()) == 0:
            _try(number, sorted(seen[number], key=lambda item: seconds[item.nodeid]), seconds)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        survived = {_SURVIVED: f"{len(seen[number])} tests see it", _UNDECIDED: "undecided"}
        _note(_TRIED, number, survived.get(status, KILLED))
    return True


def _try(number: str, items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> None:
    """Run the tests with the mutant on, in this process and in those that it starts; end the process."""
    global _is_on
    status = 1
    try:
        os.dup2(nowhere := os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
        _is_on = os.environ[_ON] = number
        begun = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            if time.process_time() - begun > _MOST_SECONDS:
                os._exit(_UNDECIDED)
            # A test that takes ten times as long does not end: the signal ends the process.
            signal.setitimer(signal.ITIMER_PROF, 5 + 10 * seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        status = _SURVIVED
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
