"""The readings from before a collector's start, as far as the collector needs them."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from threading import Event
from typing import TypeVar

from policies.observations import Reading

Kind = TypeVar("Kind", bound=Reading)


ReadingHistory = Callable[[timedelta, Event], Iterable[Kind]]
"""Returns the last reading of each subject, read back as far as the duration; returns early when the event is set."""


def no_history(history: timedelta, stop: Event, /) -> tuple[()]:  # noqa: ARG001 - as at the very first start
    """Return no reading."""
    return ()
