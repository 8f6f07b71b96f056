"""Readings folded into what is known: the last good one, whatever their order."""

from collections.abc import Sequence

from policies.observations import Observation, Outcome

from .readings import UnderReplicated
from .state import LastReading


def fold(known: LastReading | None, observations: Sequence[Observation]) -> LastReading | None:
    """What is known after these; a failed attempt tells nothing."""
    read = (
        LastReading(each.at_ms, each.id, each.reading.under_replicated)
        for each in observations
        if isinstance(each.reading, UnderReplicated) and each.reading.outcome is Outcome.OK
    )
    return max((*read, *((known,) if known else ())), key=lambda reading: (reading.at_ms, reading.id), default=None)
