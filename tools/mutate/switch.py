"""What the mutated source calls: the original value, or that of the mutant that is on."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ON, SEEN = "HEADGATE_MUTANT", "HEADGATE_MUTANTS_SEEN"
"""Environment variables: the number of the mutant that is on; the file of those that tests see."""

Value = TypeVar("Value")

_is_on = int(os.environ.get(ON, "-1"))
_seen_path = os.environ.get(SEEN)
_test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
"""The test that runs, or that started this process."""
_seen: set[int] = set()
"""The mutants that it sees."""


def begin(test: str) -> None:
    """Record what another test sees."""
    global _test
    _test = test
    _seen.clear()


def turn_on(number: int) -> None:
    """Turn a mutant on in this process, and in those that it starts."""
    global _is_on
    _is_on = number
    os.environ[ON] = str(number)
    os.environ.pop(SEEN, None)


def choose(number: int, original: Callable[[], Value], mutated: Callable[[], Value]) -> Value:
    """Return the value of an expression; record the test that runs if the mutant's value differs."""
    if number == _is_on:
        return mutated()
    value = original()
    if _seen_path is not None and number not in _seen and _differs(value, mutated):
        _seen.add(number)
        with Path(_seen_path).open("a") as file:
            file.write(f"{number}\t{_test}\n")
    return value


def _differs(value: object, mutated: Callable[[], object]) -> bool:
    try:
        return bool(mutated() != value)
    except Exception:
        return True
