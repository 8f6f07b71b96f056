"""Folds readings about one member: its session, its health endpoint, and its own reports during a recovery.

Each reading changes one field of the member's read model. A reading that is older than the last one changes nothing.
"""

from msgspec.structs import replace

from policies.confirmation import MOST_CHANGES
from policies.observations import Observation, Outcome
from policies.sessions.decisions import SessionEvent
from policies.sessions.fold import session_machine
from policies.sessions.fold.session_machine import Events, SessionReading, Timeouts
from policies.sessions.readings import MemberHealth, Recovery, RecoveryAction, RecoveryResult, SessionState, ZkSession
from policies.sessions.state import NEVER, Health, Member

MOST_EVENTS = 8
_STARTS_RECOVERY_AGAIN = frozenset(
    {SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED, SessionEvent.CLOSED, SessionEvent.JOINED}
)
_NEVER_READ = Health(NEVER, "", "", healthy=None, listed=None)


def fold_session(member: Member, seen: Observation, reading: ZkSession, timeouts: Timeouts) -> tuple[Member, Events]:
    """Return the member after a reading of its session, and the events; a failed reading counts as an attempt only."""
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
    # A collector takes a silent session for connected until T/2 after its last sign of life.
    is_same = before is not None and before.session == track.session and track.state is SessionState.CONNECTED
    if member.died_ms != NEVER and is_same and seen.at_ms >= member.died_ms + track.timeout_ms // 2:
        member = replace(member, died_ms=NEVER)
    return _add_events(replace(member, track=track, role=reading.role, read_id=seen.id), events), events


def pass_time(member: Member, to_ms: int, timeouts: Timeouts) -> tuple[Member, Events]:
    """Return the member as of `to_ms` if no further reading comes, and the events."""
    track = member.track
    if track is None:
        return member, ()
    after, events = session_machine.pass_time(track, to_ms, timeouts)
    return (member, ()) if after is track else (_add_events(replace(member, track=after), events), events)


def _add_events(member: Member, events: Events) -> Member:
    """Record the events. A recovery starts from the beginning after a loss, and after an event that ends one."""
    for event in events:
        if event in _STARTS_RECOVERY_AGAIN:
            recovering = event is SessionEvent.SESSION_REESTABLISHED
            member = replace(member, attempts=0, fleet_wide=False, recovering=recovering, awaited_ms=None)
    return replace(member, events=(*member.events, *events)[-MOST_EVENTS:]) if events else member


def fold_health(member: Member, seen: Observation, reading: MemberHealth, timeouts: Timeouts) -> Member:
    """Return the member after a reading of its health endpoint.

    After a gap longer than `validity`, the process may have been down in between, so it counts as down until now.
    """
    last, at_ms = member.health or _NEVER_READ, seen.at_ms
    if (at_ms, seen.id) <= (last.at_ms, last.id):
        return member
    is_well = reading.outcome is Outcome.OK and reading.healthy is True
    has_gap = last.at_ms != NEVER and at_ms - last.at_ms > timeouts.validity_ms
    unlisted_ms = at_ms if last.unlisted_ms == NEVER or has_gap else last.unlisted_ms
    # States of older versions have no `answered_ms` and no `listed_ms`, so the last reading fills them in.
    has_answered = last.outcome not in ("", Outcome.UNREACHABLE.value)
    answered_ms = last.at_ms if has_answered else last.answered_ms
    was_unwell = last is not _NEVER_READ and not (last.outcome == Outcome.OK.value and last.healthy)
    has_started = last.outcome == Outcome.UNREACHABLE.value and reading.outcome is not Outcome.UNREACHABLE
    listed_ms = last.at_ms if last.listed else last.listed_ms
    starts = last.starts
    if has_started:
        starts = session_machine.add_recent(starts, at_ms, timeouts)[-MOST_CHANGES - 1 :]
    health = Health(
        at_ms,
        seen.id,
        reading.outcome.value,
        reading.healthy,
        reading.listed,
        down_ms=last.down_ms if is_well and not has_gap else at_ms,
        before_ms=last.at_ms if at_ms > last.at_ms else last.before_ms,
        answered_ms=answered_ms if reading.outcome is Outcome.UNREACHABLE else at_ms,
        listed_ms=at_ms if reading.listed else listed_ms,
        unlisted_ms=unlisted_ms if reading.listed is False else NEVER,
        started_ms=at_ms if has_started else last.started_ms,
        recovered_ms=at_ms if is_well and was_unwell else last.recovered_ms,
        starts=starts,
    )
    attempts = 0 if has_started else member.attempts  # the attempts were those of the process before
    died_ms = at_ms if member.died_ms == NEVER and health.has_refused_twice() else member.died_ms
    return replace(member, health=health, attempts=attempts, seen_ms=max(member.seen_ms, at_ms), died_ms=died_ms)


def fold_report(member: Member, seen: Observation, reading: Recovery) -> Member:
    """Return the member after a report of its own; `claims` handles reports about bundles."""
    member = replace(member, seen_ms=max(member.seen_ms, seen.at_ms))
    match reading.action, reading.result:
        case RecoveryAction.RECONNECT, RecoveryResult.FAILED:
            return _count_attempt(member, seen, reading.attempt)
        case RecoveryAction.REPUBLISH_LOAD_DATA, RecoveryResult.OK:
            return replace(member, republished_ms=max(member.republished_ms, seen.at_ms))
    return member


def _count_attempt(member: Member, seen: Observation, attempt: int) -> Member:
    track = member.track
    # A report from before this loss belongs to the loss before.
    is_about_loss = track is not None and track.is_lost and seen.at_ms >= track.since_ms
    if not is_about_loss or (seen.at_ms, seen.id) <= member.attempted or seen.id == member.attempted[1]:
        return member
    attempts, before_ms = max(member.attempts + 1, attempt), member.attempted[0]
    return replace(member, attempts=attempts, attempted=(seen.at_ms, seen.id), attempted_before_ms=before_ms)
