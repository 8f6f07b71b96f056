"""What readings of a session make of what is remembered of its member."""

import pytest

from policies.observations import Observation
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import ZkSession
from policies.sessions.session_machine import Timeouts, fold_session, pass_member_time
from policies.sessions.state import Member
from tests.policies.sessions.course import session, unread

TIMEOUTS = Timeouts(settle_ms=180_000, validity_ms=300_000)


def after(*readings: Observation, member: Member | None = None) -> Member:
    member = member or Member("b1")
    for seen in readings:
        assert isinstance(seen.reading, ZkSession)
        member, _ = fold_session(member, seen, seen.reading, TIMEOUTS)
    return member


def test_the_last_attempt_counts_and_an_older_one_changes_nothing() -> None:
    member = after(session(10, "b1", "connected", "0xa"))
    assert after(session(5, "b1", "expired", "0xa"), member=member) == member
    assert after(session(10, "b1", "connected", "0xa"), member=member) == member


def test_a_reading_that_failed_only_tells_that_somebody_tried() -> None:
    before = after(session(0, "b1", "connected", "0xa"))
    member = after(unread(10, "b1", "timeout"), member=before)
    assert (member.outcome, member.tried_id) == ("timeout", "session-b1-None-None@10")
    assert (member.track, member.read_id, member.role) == (before.track, before.read_id, before.role)


def test_a_reading_of_a_session_of_the_past_is_no_evidence() -> None:
    before = after(session(0, "b1", "connected", "0xa"), session(5, "b1", "connected", "0xb"))
    member = after(session(10, "b1", "expired", "0xa"), member=before)
    assert (member.read_id, member.track) == (before.read_id, before.track)


@pytest.mark.parametrize(
    ("state", "id_", "recovering"),
    [("expired", "0xa", False), ("closed", "0xa", False), ("connected", "0xb", True)],
    ids=["lost", "closed", "established again"],
)
def test_what_was_remembered_of_the_way_back_ends_with_the_session(state: str, id_: str, recovering: bool) -> None:
    before = Member("b1", attempts=3, fleet_wide=True, recovering=True, awaited_ms=7)
    member = after(session(0, "b1", "connected", "0xa"), session(5, "b1", state, id_), member=before)
    assert (member.attempts, member.fleet_wide, member.awaited_ms) == (0, False, None)
    assert member.recovering is recovering


def test_a_connection_that_comes_back_in_time_leaves_the_way_back_alone() -> None:
    connected = after(session(0, "b1", "connected", "0xa"), member=Member("b1", recovering=True, awaited_ms=7))
    member = after(session(5, "b1", "disconnected", "0xa"), session(9, "b1", "connected", "0xa"), member=connected)
    assert (member.recovering, member.awaited_ms) == (True, 7)
    assert member.events == (SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED)


def test_the_last_eight_events_are_kept() -> None:
    states = [session(n, "b1", "disconnected" if n % 2 else "connected", "0xa") for n in range(20)]
    assert after(*states).events == (SessionEvent.RECONNECTED, SessionEvent.CONNECTION_LOST) * 4


def test_time_alone_loses_a_disconnected_session() -> None:
    member = after(session(0, "b1", "connected", "0xa"), session(5, "b1", "disconnected", "0xa"))
    assert member.track is not None
    assert member.track.lapse_ms is not None
    assert pass_member_time(member, member.track.lapse_ms - 1, TIMEOUTS) == (member, ())
    lost, events = pass_member_time(member, member.track.lapse_ms, TIMEOUTS)
    assert lost.track is not None
    assert (lost.track.status, events) == (SessionStatus.SESSION_LOST, (SessionEvent.SESSION_LOST,))
