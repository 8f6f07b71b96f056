"""What readings of a health endpoint make of what is remembered of its member."""

from policies.observations import Observation
from policies.sessions.readings import MemberHealth
from policies.sessions.session_machine import fold_health
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import NEVER, Health, Member
from policies.units import to_millis
from tests.policies.sessions.course import at, health


def after(*readings: Observation) -> Health:
    member = Member("b1")
    for seen in readings:
        assert isinstance(seen.reading, MemberHealth)
        member = fold_health(member, seen, seen.reading, SessionsSettings())
    assert member.health is not None
    return member.health


def test_the_last_reading_counts_whatever_the_order() -> None:
    readings = (health(5, "b1", "unreachable"), health(9, "b1", listed=False))
    assert after(*readings) != after(readings[0])
    assert after(readings[1], readings[0]) == after(readings[1])


def test_it_is_remembered_when_it_last_did_not_say_that_it_is_healthy() -> None:
    assert after(health(5, "b1")).down_ms == NEVER
    assert after(health(5, "b1", "unreachable"), health(9, "b1")).down_ms == to_millis(at(5))
    assert after(health(5, "b1", healthy=False), health(9, "b1")).down_ms == to_millis(at(5))
    assert after(health(5, "b1", healthy=None), health(9, "b1")).down_ms == to_millis(at(5))


def test_it_is_heard_of() -> None:
    seen = health(5, "b1", "unreachable")
    assert isinstance(seen.reading, MemberHealth)
    assert fold_health(Member("b1", seen_ms=3), seen, seen.reading, SessionsSettings()).seen_ms == to_millis(at(5))


def test_it_is_remembered_when_it_last_answered_and_when_it_was_listed() -> None:
    seen = after(health(1, "b1", listed=True), health(2, "b1", "timeout"), health(3, "b1", "unreachable", listed=False))
    assert (seen.answered_ms, seen.before_ms) == (to_millis(at(2)), to_millis(at(2)))
    assert (seen.listed_ms, seen.unlisted_ms) == (to_millis(at(1)), to_millis(at(3)))
    later = after(health(1, "b1", listed=False), health(2, "b1", listed=False), health(3, "b1", listed=None))
    assert (later.listed_ms, later.unlisted_ms) == (NEVER, NEVER)


def test_after_a_gap_it_counts_as_unlisted_from_now_on() -> None:
    assert after(health(5, "b1", listed=False), health(305, "b1", listed=False)).unlisted_ms == to_millis(at(5))
    assert after(health(5, "b1", listed=False), health(306, "b1", listed=False)).unlisted_ms == to_millis(at(306))


def test_after_a_gap_it_counts_as_down_until_now() -> None:
    assert after(health(5, "b1"), health(305, "b1")).down_ms == NEVER
    assert after(health(5, "b1"), health(306, "b1")).down_ms == to_millis(at(306))
