"""What a member's own reports make of what is remembered of it."""

from dataclasses import replace

from policies.observations import Observation
from policies.sessions.decisions import SessionStatus
from policies.sessions.readings import Recovery, SessionState
from policies.sessions.session_machine import fold_report
from policies.sessions.state import Member, SessionTrack
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, at, recovery

LOST_MS = to_millis(at(10))
LOST = Member(
    "b1", track=SessionTrack(SessionStatus.SESSION_LOST, LOST_MS, LOST_MS, SessionState.EXPIRED, lost_ms=LOST_MS)
)


def after(*readings: Observation, member: Member = LOST) -> Member:
    for seen in readings:
        assert isinstance(seen.reading, Recovery)
        member = fold_report(member, seen, seen.reading)
    return member


def failed(seconds: float, attempt: int = 0) -> Observation:
    return recovery(seconds, "b1", "reconnect", "failed", attempt=attempt)


def test_failed_attempts_since_the_loss_are_counted_each_once() -> None:
    assert after(failed(11), failed(12), failed(12), failed(11.5)).attempts == 2


def test_a_report_that_is_delivered_again_later_is_the_same_attempt() -> None:
    again = replace(failed(12), at=at(15))
    assert after(failed(11), failed(12), again).attempts == 2


def test_the_member_s_own_count_goes_before() -> None:
    assert after(failed(11, attempt=7)).attempts == 7
    assert after(failed(11, attempt=7), failed(12, attempt=3)).attempts == 8


def test_what_failed_before_the_loss_counts_for_the_loss_before() -> None:
    assert after(failed(9)).attempts == 0
    assert after(failed(11), member=Member("b1")).attempts == 0


def test_load_data_is_published_when_that_is_reported() -> None:
    assert after(recovery(12, "b1", "republish-load-data")).republished_ms == to_millis(at(12))
    assert after(recovery(12, "b1", "republish-load-data", "failed")).republished_ms == LOST.republished_ms


@for_each("action", ["re-own", "unload", "reconnect", "republish-load-data"])
@for_each("result", ["ok", "failed"])
def test_whoever_reports_is_heard_of(action: str, result: str) -> None:
    assert after(recovery(12, "b1", action, result, path=BUNDLE)).seen_ms == to_millis(at(12))
