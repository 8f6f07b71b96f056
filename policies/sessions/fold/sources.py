"""Folds attempts to read a source: a ZooKeeper tree, or all sessions."""

from msgspec.structs import replace

from policies.observations import Observation
from policies.sessions.state import SourceRecord


def fold(source: SourceRecord, seen: Observation, *, good: bool, validity_ms: int) -> SourceRecord:
    """One attempt, and whether it was good; the same record when it is older than the last."""
    if (seen.at_ms, seen.id) <= (source.tried_ms, source.tried_id):
        return source
    outcome = seen.reading.outcome.value
    source = replace(source, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome)
    if not good:
        return source
    since_ms = source.since_ms if seen.at_ms - source.read_ms <= validity_ms else seen.at_ms
    return replace(source, read_ms=seen.at_ms, read_id=seen.id, since_ms=since_ms)
