"""Many small cases in one test: pytest's own bookkeeping of a test takes longer than a step of a policy."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(named: object) -> Iterator[None]:
    """Name the case in the error of a check that fails within the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {named!s:.300}")
        raise
