"""The state machine of one session, and what readings of health and a member's own reports change."""

import dataclasses
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.observations import Observation
from policies.sessions.decisions import SessionEvent, SessionStatus
from policies.sessions.readings import MemberHealth, Recovery, SessionState, ZkSession
from policies.sessions.session_machine import fold_health, fold_report, observe, pass_time
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, Member, SessionTrack
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import at, health, recovery

SETTINGS = SessionsSettings()
SeenSession = tuple[ZkSession, int]
CONNECTED, DISCONNECTED, EXPIRED, CLOSED = SessionState
EVENT = SessionEvent
LOST_AND_BACK = [EVENT.SESSION_LOST, EVENT.RECONNECTED, EVENT.SESSION_REESTABLISHED]


def seen(seconds: float, state: SessionState, session: str | None = "0xa", timeout_ms: int = 30_000) -> SeenSession:
    reading = ZkSession(cluster="a", member="b1", state=state, session=session, timeout_ms=timeout_ms)
    return reading, round(seconds * 1000)


def after(*readings: SeenSession) -> SessionTrack:
    track, _ = observe(None, *readings[0], SETTINGS)
    for reading in readings[1:]:
        track, _ = observe(track, *reading, SETTINGS)
    return track


STATUSES = {
    SessionStatus.ESTABLISHED: after(seen(0, CONNECTED)),
    SessionStatus.CONNECTION_LOST: after(seen(0, CONNECTED), seen(5, DISCONNECTED)),
    SessionStatus.SESSION_LOST: after(seen(0, CONNECTED), seen(5, EXPIRED)),
    SessionStatus.CLOSED: after(seen(0, CONNECTED), seen(5, CLOSED)),
}


@for_each(
    ("before", "reading", "status", "events"),
    [
        (SessionStatus.ESTABLISHED, seen(10, EXPIRED), SessionStatus.SESSION_LOST, [EVENT.SESSION_LOST]),
        (SessionStatus.ESTABLISHED, seen(10, DISCONNECTED), SessionStatus.CONNECTION_LOST, [EVENT.CONNECTION_LOST]),
        (SessionStatus.ESTABLISHED, seen(10, CONNECTED), SessionStatus.ESTABLISHED, []),
        (SessionStatus.ESTABLISHED, seen(10, CLOSED), SessionStatus.CLOSED, [EVENT.CLOSED]),
        (SessionStatus.ESTABLISHED, seen(10, CONNECTED, "0xb"), SessionStatus.ESTABLISHED, LOST_AND_BACK),
        (SessionStatus.CONNECTION_LOST, seen(10, EXPIRED), SessionStatus.SESSION_LOST, [EVENT.SESSION_LOST]),
        (SessionStatus.CONNECTION_LOST, seen(29.999, DISCONNECTED), SessionStatus.CONNECTION_LOST, []),
        (SessionStatus.CONNECTION_LOST, seen(30, DISCONNECTED), SessionStatus.SESSION_LOST, [EVENT.SESSION_LOST]),
        (SessionStatus.CONNECTION_LOST, seen(29.999, CONNECTED), SessionStatus.ESTABLISHED, [EVENT.RECONNECTED]),
        (SessionStatus.CONNECTION_LOST, seen(10, CLOSED), SessionStatus.CLOSED, [EVENT.CLOSED]),
        (SessionStatus.CONNECTION_LOST, seen(10, CONNECTED, "0xb"), SessionStatus.ESTABLISHED, LOST_AND_BACK),
        (SessionStatus.SESSION_LOST, seen(10, EXPIRED), SessionStatus.SESSION_LOST, []),
        (SessionStatus.SESSION_LOST, seen(10, DISCONNECTED), SessionStatus.SESSION_LOST, []),
        (SessionStatus.SESSION_LOST, seen(100, DISCONNECTED), SessionStatus.SESSION_LOST, []),
        (SessionStatus.SESSION_LOST, seen(10, CONNECTED), SessionStatus.ESTABLISHED, LOST_AND_BACK[1:]),
        (SessionStatus.SESSION_LOST, seen(10, CONNECTED, "0xb"), SessionStatus.ESTABLISHED, LOST_AND_BACK[1:]),
        (SessionStatus.SESSION_LOST, seen(10, CLOSED), SessionStatus.CLOSED, [EVENT.CLOSED]),
        (SessionStatus.CLOSED, seen(10, EXPIRED), SessionStatus.CLOSED, []),
        (SessionStatus.CLOSED, seen(10, DISCONNECTED), SessionStatus.CLOSED, []),
        (SessionStatus.CLOSED, seen(10, CLOSED), SessionStatus.CLOSED, []),
        (SessionStatus.CLOSED, seen(10, CONNECTED), SessionStatus.CLOSED, []),
        (SessionStatus.CLOSED, seen(10, CONNECTED, "0xb"), SessionStatus.ESTABLISHED, [EVENT.JOINED]),
    ],
)
def test_every_status_and_every_observation(
    before: SessionStatus, reading: SeenSession, status: SessionStatus, events: list[SessionEvent]
) -> None:
    track, happened = observe(STATUSES[before], *reading, SETTINGS)
    assert (track.status, list(happened)) == (status, events)


@for_each("state", SessionState)
@for_each("before", SessionStatus)
def test_a_reading_of_a_past_session_changes_nothing(before: SessionStatus, state: SessionState) -> None:
    renewed, _ = observe(STATUSES[before], *seen(10, CONNECTED, "0xb"), SETTINGS)
    denied_ms = 11_000 if state is CONNECTED else -1
    assert observe(renewed, *seen(11, state, "0xa"), SETTINGS) == (replace(renewed, denied_ms=denied_ms), ())


@pytest.mark.parametrize("before", SessionStatus)
def test_two_readings_in_a_row_of_a_past_session_show_that_it_is_the_present_one(before: SessionStatus) -> None:
    track, _ = observe(STATUSES[before], *seen(10, CONNECTED, "0xb"), SETTINGS)
    for second, session, expected in ((11, "0xa", "0xb"), (12, "0xb", "0xb"), (13, "0xa", "0xb"), (14, "0xa", "0xa")):
        track, _ = observe(track, *seen(second, CONNECTED, session), SETTINGS)
        assert (track.session, track.status) == (expected, SessionStatus.ESTABLISHED)
    assert track.past == ("0xb",)


def test_a_closed_session_that_is_read_as_connected_twice_was_not_closed() -> None:
    once, _ = observe(STATUSES[SessionStatus.CLOSED], *seen(10, CONNECTED), SETTINGS)
    twice, events = observe(once, *seen(11, CONNECTED), SETTINGS)
    assert (once.status, twice.status, events) == (SessionStatus.CLOSED, SessionStatus.ESTABLISHED, (EVENT.JOINED,))


@for_each("state", SessionState)
def test_an_older_reading_changes_nothing(state: SessionState) -> None:
    track = after(seen(20, CONNECTED))
    assert observe(track, *seen(19, state), SETTINGS) == (track, ())


def test_elapsed_counts_from_the_first_reading_without_a_connection() -> None:
    track = after(seen(0, CONNECTED), seen(5, DISCONNECTED), seen(20, DISCONNECTED))
    assert pass_time(track, 29_999, SETTINGS)[0].status is SessionStatus.CONNECTION_LOST
    assert pass_time(track, 30_000, SETTINGS)[0].status is SessionStatus.SESSION_LOST


def test_a_connection_that_comes_after_the_loss_by_time_is_a_new_establishment() -> None:
    track, events = observe(STATUSES[SessionStatus.CONNECTION_LOST], *seen(40, CONNECTED), SETTINGS)
    assert events == (EVENT.SESSION_LOST, EVENT.RECONNECTED, EVENT.SESSION_REESTABLISHED)
    assert (track.lost_ms, track.reestablished_ms) == (30_000, 40_000)


@pytest.mark.parametrize("state", SessionState)
def test_a_reading_that_arrives_after_the_loss_by_time_counts_from_there(state: SessionState) -> None:
    lost, _ = pass_time(STATUSES[SessionStatus.CONNECTION_LOST], 30_000, SETTINGS)
    track, _ = observe(lost, *seen(20, state), SETTINGS)
    assert (track.read_ms, track.since_ms) == (20_000, 30_000)


def test_a_reading_past_its_validity_loses_no_session() -> None:
    track = after(seen(0, CONNECTED, timeout_ms=600_000), seen(5, DISCONNECTED, timeout_ms=600_000))
    late, events = pass_time(track, 506_000, SETTINGS)
    assert (late.status, events) == (SessionStatus.CONNECTION_LOST, ())
    again, events = observe(late, *seen(520, DISCONNECTED, timeout_ms=600_000), SETTINGS)
    assert (again.status, events) == (SessionStatus.CONNECTION_LOST, ()), "nobody knows what was in between"
    assert pass_time(again, 1_020_000, SETTINGS)[0].status is SessionStatus.CONNECTION_LOST
    assert pass_time(replace(again, read_ms=1_000_000), 1_020_000, SETTINGS)[0].status is SessionStatus.SESSION_LOST


def flapping(losses: int, every: float) -> SessionTrack:
    readings = [seen(0, CONNECTED, "0x0")]
    for n in range(1, losses + 1):
        readings += [seen(n * every, EXPIRED, f"0x{n - 1}"), seen(n * every + 1, CONNECTED, f"0x{n}")]
    return after(*readings)


def test_more_than_three_losses_within_settle_are_flapping_until_it_has_been_stable_as_long() -> None:
    assert not flapping(3, 20).unsettled
    track = flapping(4, 20)
    assert track.unsettled
    for read_ms, unsettled in ((81_000, True), (81_000 + 179_999, True), (81_000 + 180_000, False)):
        read = replace(track, read_ms=read_ms)
        assert pass_time(read, 81_000 + 180_000, SETTINGS)[0].unsettled is unsettled, "that takes a reading"


def test_a_member_that_flapped_and_closed_its_session_is_settled() -> None:
    track, _ = observe(flapping(4, 20), *seen(82, CLOSED), SETTINGS)
    assert not track.unsettled


readings = st.lists(
    st.builds(
        seen,
        st.sampled_from([0, 1, 5, 24, 25, 26, 60, 200, 299, 300, 301, 900]),
        st.sampled_from(SessionState),
        st.sampled_from([None, "0xa", "0xb", "0xc"]),
        st.sampled_from([1_000, 30_000, 600_000]),
    ),
    min_size=1,
    max_size=12,
)


def looked_at(track: SessionTrack, until_ms: int, moments: Iterable[int]) -> SessionTrack:
    """A track after looks at these moments, and at the one at which the policy asks to be woken."""
    for moment in sorted(moments):
        if track.lapse_ms is not None and track.lapse_ms < moment:
            track, _ = pass_time(track, track.lapse_ms, SETTINGS)
        track, _ = pass_time(track, moment, SETTINGS)
    due = track.lapse_ms is not None and track.lapse_ms <= until_ms
    return pass_time(track, track.lapse_ms or 0, SETTINGS)[0] if due else track


@given(readings, st.lists(st.integers(0, 1_500_000), max_size=12))
def test_steps_in_between_make_no_difference(course: list[SeenSession], moments: list[int]) -> None:
    """Only readings and the time that has passed count, not how often somebody looked besides."""
    course = sorted(course, key=lambda r: r[1])
    plain, _ = observe(None, *course[0], SETTINGS)
    other = plain
    for before, reading in pairwise(course):
        within = [moment for moment in moments if before[1] <= moment <= reading[1]]
        plain, _ = observe(looked_at(plain, reading[1], ()), *reading, SETTINGS)
        other, _ = observe(looked_at(other, reading[1], within), *reading, SETTINGS)
    assert plain == other


REFUSED = (health(1, "b1", "unreachable"), health(2, "b1", "unreachable"))
WELL = (health(2, "b1"), health(3, "b1"))


@for_each(
    ("readings", "name", "seconds"),
    [
        pytest.param(REFUSED, "started_ms", None, id="a process that refuses connections has not started"),
        pytest.param((*REFUSED, health(3, "b1")), "started_ms", 3, id="it has when it answers after that"),
        pytest.param(WELL, "recovered_ms", None, id="a process that was healthy has not recovered"),
        pytest.param((health(1, "b1"), *WELL), "recovered_ms", None, id="nor one that was before"),
        pytest.param((health(1, "b1", healthy=False), *WELL), "recovered_ms", 2, id="one that was unwell has"),
        pytest.param((health(1, "b1", "timeout"), *WELL), "recovered_ms", 2, id="and one that was silent"),
        pytest.param((health(1, "b1", "timeout"), health(2, "b1", healthy=False)), "recovered_ms", None, id="unwell"),
        pytest.param((health(5, "b1"), health(305, "b1")), "down_ms", None, id="it was healthy within its validity"),
        pytest.param((health(5, "b1"), health(306, "b1")), "down_ms", 306, id="after a gap it was down until now"),
        *(
            pytest.param(tuple(health(s, "b1", listed=False) for s in (5, last)), "unlisted_ms", since, id=f"{last}")
            for last, since in ((305, 5), (306, 306))
        ),
    ],
)
def test_what_the_answers_of_a_process_show(readings: tuple[Observation, ...], name: str, seconds: int | None) -> None:
    member = Member("b1")
    for seen in readings:
        assert isinstance(seen.reading, MemberHealth)
        member = fold_health(member, seen, seen.reading, SETTINGS)
    assert getattr(member.health, name) == (NEVER if seconds is None else to_millis(at(seconds)))


LOST_MS = to_millis(at(10))
LOST = Member("b1", track=SessionTrack(SessionStatus.SESSION_LOST, LOST_MS, LOST_MS, EXPIRED, lost_ms=LOST_MS))


def failed(seconds: float, attempt: int = 0) -> Observation:
    return recovery(seconds, "b1", "reconnect", "failed", attempt=attempt)


@for_each(
    ("member", "reports", "attempts"),
    [
        pytest.param(LOST, [failed(11), failed(12), failed(12), failed(11.5)], 2, id="each counts once"),
        pytest.param(
            LOST, [failed(11), failed(12), dataclasses.replace(failed(12), at=at(15))], 2, id="one comes again later"
        ),
        pytest.param(LOST, [failed(11, attempt=7)], 7, id="the member's own count goes before"),
        pytest.param(LOST, [failed(11, attempt=7), failed(12, attempt=3)], 8, id="and they go on from there"),
        pytest.param(LOST, [failed(9)], 0, id="of the loss before"),
        pytest.param(Member("b1"), [failed(11)], 0, id="nothing is known of its session"),
        pytest.param(Member("b1", track=STATUSES[SessionStatus.ESTABLISHED]), [failed(11)], 0, id="it has a session"),
    ],
)
def test_failed_attempts_to_reconnect(member: Member, reports: list[Observation], attempts: int) -> None:
    for seen in reports:
        assert isinstance(seen.reading, Recovery)
        member = fold_report(member, seen, seen.reading)
    assert member.attempts == attempts
