"""Finds the mutants of a source file, and writes switches for some of them into it."""

import ast
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_CHANGED = {**_BOUNDS, **_OPPOSITES, **{after: before for before, after in _OPPOSITES.items()}}
_IMPORT = b"from tools.mutate.switch import choose as _choose\n"


@dataclass(frozen=True, order=True)
class Mutant:
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
    """Find all mutants of the functions of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    nodes = (node for function in functions for statement in function.body for node in _walk(statement))
    for node, changed in chain.from_iterable(map(_change, nodes)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        if _is_text_of(source[start:end], node) and not any(map(_cannot_move, ast.walk(node))):
            found.add(Mutant(path, node.lineno, start, end, ast.unparse(node), ast.unparse(changed)))
    return sorted(found)


def pick(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants of which no two overlap."""
    drawn = sorted(mutants)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a sample that can be repeated
    picked: list[Mutant] = []
    for one in drawn:
        if len(picked) < count and all(
            one.path != other.path or one.end <= other.start or other.end <= one.start for other in picked
        ):
            picked.append(one)
    return sorted(picked)


def write_switches(root: Path, mutants: Mapping[int, Mutant]) -> None:
    """Let each mutant's expression ask the switch which value it has."""
    for path in {mutant.path for mutant in mutants.values()}:
        source = (root / path).read_bytes()
        mine = [(number, mutant) for number, mutant in mutants.items() if mutant.path == path]
        for number, it in sorted(mine, key=lambda each: -each[1].start):
            source = it.change(source, f"_choose({number}, lambda: {it.original}, lambda: {it.mutated})")
        (root / path).write_bytes(_add_import(source))


def _add_import(source: bytes) -> bytes:
    lines = source.splitlines(keepends=True)
    body = ast.parse(source).body
    last = max(n for n, node in enumerate(body) if n == 0 or isinstance(node, ast.Import | ast.ImportFrom))
    at = body[last].end_lineno if isinstance(body[last], ast.Expr | ast.Import | ast.ImportFrom) else 0
    return b"".join([*lines[:at], _IMPORT, *lines[at:]])


def _is_text_of(text: bytes, node: ast.expr) -> bool:
    """Whether a node stands where it claims to; Python 3.11 misplaces those within f-strings."""
    try:
        return ast.dump(ast.parse(b"(" + text + b")", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over all nodes outside assertions, which tests are not to reach."""
    if not isinstance(node, ast.Assert):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def _cannot_move(node: ast.AST) -> bool:
    """Whether a part of an expression has another meaning within a lambda."""
    return isinstance(node, ast.NamedExpr | ast.Yield | ast.Await) or (
        isinstance(node, ast.Name) and node.id == "super"
    )


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
