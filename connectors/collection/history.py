"""What a collector may know from before its start: the last readings of its own kind."""

from collections.abc import Iterable
from datetime import timedelta
from threading import Event
from typing import Protocol, TypeVar

from policies.observations import Reading

Kind = TypeVar("Kind", bound=Reading, covariant=True)


class Recall(Protocol[Kind]):
    """Gives the last reading of each thing, as far back as is asked for; may take seconds, and ends with the event."""

    def __call__(self, history: timedelta, stop: Event, /) -> Iterable[Kind]:
        """Those there are."""
        ...


def nothing_recalled(history: timedelta, stop: Event, /) -> tuple[()]:  # noqa: ARG001 - as if it had never run before
    """Nothing was read before."""
    return ()
