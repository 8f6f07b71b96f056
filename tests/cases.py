"""Many small cases in one test: pytest's own bookkeeping of a test takes longer than a step of a policy."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(named: object) -> Iterator[None]:
    """What fails within is said to be of this case."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {named}")
        raise
