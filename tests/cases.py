"""Many small cases in one test: pytest's own bookkeeping of a test takes longer than a step of a policy."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from _pytest.mark import ParameterSet

Test = Callable[..., None]


@contextmanager
def case(named: object) -> Iterator[None]:
    """Name the case in the error of a check that fails within the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {named!s:.300}")
        raise


def for_each(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Run all rows in one test. `pytest.mark.parametrize` makes a test of each row, for rows that need new fixtures."""
    fields = [names] if isinstance(names, str) else list(names)
    sets = [ParameterSet.extract_from(row, force_tuple=len(fields) == 1) for row in rows]
    labels = list(ids or ())

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            for place, (values, _, label) in enumerate(sets):
                with case(label or (labels[place] if labels else values)):
                    test(*args, **fixtures, **dict(zip(fields, values, strict=True)))

        shape = inspect.signature(test)
        run.__signature__ = shape.replace(  # type: ignore[attr-defined]
            parameters=[each for name, each in shape.parameters.items() if name not in fields]
        )
        return run

    return decorate
