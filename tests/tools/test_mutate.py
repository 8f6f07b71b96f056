"""The mutation check: its verdicts are those of the tests on a file in which the mutant stands plainly."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools.mutate import Mutant, find_mutants, main, pick

SOURCE = dedent(
    '''\
    """A gate."""
    from collections.abc import Sequence

    LIMITS = (3, 5)


    def may_open(level: int, limit: int | None = None, *, held: bool = False) -> bool:
        """Whether it may open."""
        if held:
            return False
        return level >= LIMITS[0] and (limit is None or not level > limit)


    def count(levels: Sequence[int]) -> int:
        """Count the levels at which it may open."""
        found = [level for level in levels if may_open(level)]
        return len(found) if found else 0


    def name(level: int) -> str:
        """Name a level."""
        assert level != 9
        return f"{level if level < 3 else 'high'}" if level != 7 else "seven"
    '''
)
GOOD = {
    "test_bounds": "assert may_open(3) and not may_open(2) and may_open(3, 3) and not may_open(4, 3)",
    "test_held": "assert not may_open(4, held=True)",
    "test_count": "assert count([1, 3, 5]) == 2 and count([]) == 0 == count([1])",
    "test_name": "assert (name(7), name(2), name(3)) == ('seven', '2', 'high')",
}
WEAK = {"test_count": GOOD["test_count"], "test_name": "assert (name(7), name(2)) == ('seven', '2')"}


def write(root: Path, tests: dict[str, str]) -> Path:
    """A repository of one module with tests."""
    for name, text in {
        "rules/gate.py": SOURCE,
        "tests/test_gate.py": "from rules.gate import *\n"
        + "".join(f"def {test}():\n    {line}\n" for test, line in tests.items()),
        "pytest.ini": "[pytest]\nmarkers =\n    system\n    streaming\naddopts = -p no:hypothesispytest\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def survives(mutant: Mutant, tests: dict[str, str]) -> bool:
    """Whether all tests pass with the mutant in the place of the original."""
    source = SOURCE.encode()
    names: dict[str, object] = {}
    exec(source[: mutant.start] + f"({mutant.mutated})".encode() + source[mutant.end :], names)
    try:
        for line in tests.values():
            exec(line, names)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("tests", [GOOD, WEAK], ids=["good tests", "weak tests"])
def test_what_survives_is_what_the_tests_do_not_notice(
    tests: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = pick(find_mutants("rules/gate.py", SOURCE.encode()), 100, seed=3)
    expected = [f"survives: {mutant}" for mutant in tried if survives(mutant, tests)]
    code = main(["--seed", "3", "--tests", "tests", "--", "rules"], write(tmp_path, tests))
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines if line.startswith("survives")] == expected
    killed = len(tried) - len(expected)
    assert last == f"mutants: {len(tried)} valid, {killed} killed, {100 * killed / len(tried):.1f} %"
    assert (code, bool(expected)) == ((0, False) if tests is GOOD else (1, True))


def test_every_kind_of_condition_has_mutants_and_an_assertion_has_none() -> None:
    changes = {f"{it.line}: {it.original} -> {it.mutated}" for it in find_mutants("rules/gate.py", SOURCE.encode())}
    both, either = "level >= LIMITS[0] and (limit is None or not level > limit)", "limit is None or not level > limit"
    assert changes == {
        "9: held -> not held",
        "10: False -> True",
        "11: level >= LIMITS[0] -> level > LIMITS[0]",
        f"11: {both} -> level >= LIMITS[0]",
        f"11: {both} -> level >= LIMITS[0] or ({either})",
        f"11: {both} -> {either}",
        "11: limit is None -> limit is not None",
        f"11: {either} -> limit is None",
        f"11: {either} -> limit is None and (not level > limit)",
        f"11: {either} -> not level > limit",
        "11: not level > limit -> level > limit",
        "11: level > limit -> level >= limit",
        "16: may_open(level) -> not may_open(level)",
        "17: found -> not found",
        "23: level < 3 -> level <= 3",
        "23: level != 7 -> level == 7",
    }
