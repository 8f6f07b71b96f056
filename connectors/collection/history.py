"""The readings from before a collector's start, as far as the collector needs them."""

from collections.abc import Iterable
from datetime import timedelta
from threading import Event
from typing import Protocol, TypeVar

from policies.observations import Reading

Kind = TypeVar("Kind", bound=Reading, covariant=True)


class ReadingHistory(Protocol[Kind]):
    """Returns the last reading of each subject; may block for seconds, and returns early when the event is set."""

    def __call__(self, history: timedelta, stop: Event, /) -> Iterable[Kind]:
        """Read back as far as `history`."""
        ...


def no_history(history: timedelta, stop: Event, /) -> tuple[()]:  # noqa: ARG001 - as at the very first start
    """Return no reading."""
    return ()
