"""Many small cases in one test: pytest's own bookkeeping of a test takes longer than a step of a policy."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

_ROW_WITH_ID = type(pytest.param())


@contextmanager
def case(named: object) -> Iterator[None]:
    """Name the case in the error of a check that fails within the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {named!s:.300}")
        raise


def for_each(
    names: str | Sequence[str], table: Iterable[Any], ids: Iterable[object] | Callable[[Any], object] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each row of a table as `pytest.mark.parametrize` does, but as one test.

    The error of a row that fails names the row. All rows share the test's fixtures.

    Args:
        names: of the arguments that a row has.
        ids: names of the rows.
    """
    arguments = names.replace(" ", "").split(",") if isinstance(names, str) else [*names]
    rows = [*table]
    named = [*(map(ids, rows) if callable(ids) else ids)]
    assert rows, "a table without rows shows nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run_rows(**fixtures: Any) -> None:
            for name, row in zip(named, rows, strict=True):
                has_id = isinstance(row, _ROW_WITH_ID)
                with case(row.id if has_id else name):
                    values = row.values if has_id else [row] if len(arguments) == 1 else row
                    test(**fixtures, **dict(zip(arguments, values, strict=True)))

        shape = inspect.signature(test)
        given = [each for name, each in shape.parameters.items() if name not in arguments]
        run_rows.__name__, run_rows.__doc__, run_rows.__module__ = test.__name__, test.__doc__, test.__module__
        run_rows.__signature__ = shape.replace(parameters=given)  # type: ignore[attr-defined]
        return run_rows

    return decorate
