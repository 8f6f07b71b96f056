"""The status of one kind of reading: whether a new one is newer than the last, and how it went."""

from msgspec.structs import replace

from policies.isolation.state import ReadingStatus
from policies.observations import Observation, Outcome


def is_newer(status: ReadingStatus, seen: Observation) -> bool:
    """Whether it is news, and no older than the last attempt."""
    known = seen.id in (status.read_id, status.tried_id)
    return not known and (seen.at_ms, seen.id) > (status.tried_ms, status.tried_id)


def after_good(seen: Observation) -> ReadingStatus:
    """With this as the last good reading."""
    return ReadingStatus(seen.at_ms, seen.id, seen.at_ms, seen.id, Outcome.OK.value)


def after_attempt(status: ReadingStatus, seen: Observation, outcome: str | None = None) -> ReadingStatus:
    """With this as the last attempt: by its own outcome, unless another is named."""
    return replace(status, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome or seen.reading.outcome.value)
