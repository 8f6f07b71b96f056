"""How system tests wait: for a condition, with one deadline that is generous on any machine.

No verdict depends on how many seconds something takes. Where a fast path must be told from a slow one, the test makes
the slow one endless: the next poll is an hour away, a frozen server stays frozen. A window that a test must find open
lasts hours.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet

from tests.progress import tell

Value = TypeVar("Value")

DEADLINE_SECONDS = 600.0
"""On an idle machine of two cores, nothing that a test awaits takes a tenth of this."""

_POLL_SECONDS = 0.05
_SLOWEST_POLL_SECONDS = 0.25
"""The polls become rarer the longer a wait lasts, because they take processor time from the awaited process."""
_TELL_SECONDS = 20.0


class Watched(Protocol):
    """A process that must not fail while a test waits."""

    def failure(self) -> str | None:
        """How it failed, with its last output; None while it runs, and after an end that the test wanted."""


watched = WeakSet[Watched]()
"""If one of these fails, no test waits until the deadline for what it was to do."""


def eventually(what: str, find: Callable[[], Value | None]) -> Value:
    """Call `find` until it returns something other than None or False; fail with `what` after the deadline.

    It fails at once when a watched process has failed and `find` still returns nothing. Every 20 s the terminal shows
    what the test waits for.
    """
    began = told = time.monotonic()
    while True:
        failure = next(filter(None, [process.failure() for process in list(watched)]), None)
        found = find()
        if found is not None and found is not False:
            return found
        assert failure is None, f"{failure}\nwhile awaited: {what}"
        now = time.monotonic()
        waited = now - began
        assert waited < DEADLINE_SECONDS, f"not in {waited:.0f} s: {what}"
        if now - told >= _TELL_SECONDS:
            told = now
            tell(f"waits for {waited:.0f} s now: {what}")
        time.sleep(min(max(_POLL_SECONDS, waited / 40), _SLOWEST_POLL_SECONDS))


def within(seconds: float, find: Callable[[], Value | None]) -> Value | None:
    """Like `eventually`, but return None after `seconds`. Not for verdicts: the caller then does something else."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        found = find()
        if found is not None and found is not False:
            return found
        time.sleep(_SLOWEST_POLL_SECONDS)
    return None
