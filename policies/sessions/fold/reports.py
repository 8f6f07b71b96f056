"""Folds members' own reports during a recovery: failed attempts to reconnect, and published load data."""

from msgspec.structs import replace

from policies.observations import Observation
from policies.sessions.readings import Recovery, RecoveryAction, RecoveryResult
from policies.sessions.state import Member


def fold(member: Member, seen: Observation, reading: Recovery) -> Member:
    """One report; what it says of a bundle is for the claims."""
    member = replace(member, seen_ms=max(member.seen_ms, seen.at_ms))
    match reading.action, reading.result:
        case RecoveryAction.RECONNECT, RecoveryResult.FAILED:
            return _failed_to_reconnect(member, seen, reading.attempt)
        case RecoveryAction.REPUBLISH_LOAD_DATA, RecoveryResult.OK:
            return replace(member, republished_ms=max(member.republished_ms, seen.at_ms))
    return member


def _failed_to_reconnect(member: Member, seen: Observation, attempt: int) -> Member:
    track = member.track
    # What came before the loss counts for the loss before.
    of_this_loss = track is not None and track.is_lost and seen.at_ms >= track.since_ms
    if not of_this_loss or (seen.at_ms, seen.id) <= member.attempted or seen.id == member.attempted[1]:
        return member
    attempts, before_ms = max(member.attempts + 1, attempt), member.attempted[0]
    return replace(member, attempts=attempts, attempted=(seen.at_ms, seen.id), attempted_before_ms=before_ms)
