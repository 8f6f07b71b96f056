"""Folds readings of a member's session, and applies the passing of time to it."""

from msgspec.structs import replace

from policies.observations import Observation
from policies.sessions.decisions import SessionEvent
from policies.sessions.fold import session_machine
from policies.sessions.fold.session_machine import Events, SessionReading, Timeouts
from policies.sessions.readings import ZkSession
from policies.sessions.state import Member

MOST_EVENTS = 8
_BEGINS_ANEW = frozenset(
    {SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED, SessionEvent.CLOSED, SessionEvent.JOINED}
)


def fold(member: Member, seen: Observation, reading: ZkSession, timeouts: Timeouts) -> tuple[Member, Events]:
    """One reading of a member's session; one that failed only tells that somebody tried."""
    if (seen.at_ms, seen.id) <= (member.tried_ms, member.tried_id):
        return member, ()
    outcome = reading.outcome.value
    member = replace(member, tried_ms=seen.at_ms, tried_id=seen.id, outcome=outcome, seen_ms=seen.at_ms)
    if reading.state is None or not reading.is_good:
        return member, ()
    read, before = SessionReading(seen.at_ms, reading.state, reading.session, reading.timeout_ms), member.track
    track, events = (
        session_machine.begin(read, timeouts) if before is None else session_machine.observe(before, read, timeouts)
    )
    if track is before:
        return member, ()
    return _moved(replace(member, track=track, role=reading.role, read_id=seen.id), events), events


def pass_time(member: Member, to_ms: int, timeouts: Timeouts) -> tuple[Member, Events]:
    """What time has made of a member's session by then."""
    track = member.track
    if track is None:
        return member, ()
    after, events = session_machine.pass_time(track, to_ms, timeouts)
    return (member, ()) if after is track else (_moved(replace(member, track=after), events), events)


def _moved(member: Member, events: Events) -> Member:
    """With what happened noted; after a loss, and after what ends one, its recovery begins anew."""
    for event in events:
        if event in _BEGINS_ANEW:
            recovering = event is SessionEvent.SESSION_REESTABLISHED
            member = replace(member, attempts=0, fleet_wide=False, recovering=recovering, awaited_ms=None)
    return replace(member, events=(*member.events, *events)[-MOST_EVENTS:]) if events else member
