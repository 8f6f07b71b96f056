"""Runs a function on a background thread for as long as a `with` block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` until the block ends, which sets the event it is given, or until it returns by itself.

    Args:
        name: of the thread.
        work: must return soon after its event is set.
    """
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
