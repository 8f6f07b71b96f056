"""What kazoo's states mean for the member's own session."""

import pytest
from kazoo.protocol.states import KazooState, KeeperState

from connectors.sessions.agent.contact import NegotiatedTimeout
from connectors.sessions.agent.session_tracker import SessionTracker, StateChange
from policies.sessions.decisions import SessionEvent, SessionStatus

T_SECONDS = 6.0
GIVES_UP_SECONDS = T_SECONDS * 5 / 6
"""PIP-57: a member takes its session for lost before the server does."""


class GrantedTimeout(NegotiatedTimeout):
    """A timeout that was granted, without a client."""

    def __init__(self, ms: int) -> None:
        self.ms, self.granted = ms, True


class Clock:
    seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tracker(clock: Clock) -> SessionTracker:
    return SessionTracker(GrantedTimeout(int(T_SECONDS * 1000)), clock)


def connected(at: float, session: str = "0x1") -> StateChange:
    return StateChange(KazooState.CONNECTED, KeeperState.CONNECTED, session, at)


def suspended(at: float) -> StateChange:
    return StateChange(KazooState.SUSPENDED, KeeperState.CONNECTING, "0x1", at)


def lost(at: float, keeper_state: str = KeeperState.EXPIRED_SESSION) -> StateChange:
    return StateChange(KazooState.LOST, keeper_state, None, at)


def test_nothing_is_known_before_the_first_connection(tracker: SessionTracker) -> None:
    assert tracker.observe(suspended(999)) == ()
    assert (tracker.status, tracker.session, tracker.lost_at, tracker.due) == (None, None, None, None)
    assert tracker.pass_time() == ()


def test_a_connection_is_a_session(tracker: SessionTracker) -> None:
    tracker.observe(connected(1_000))
    assert (tracker.status, tracker.session, tracker.connected) == (SessionStatus.ESTABLISHED, "0x1", True)


def test_a_lost_connection_is_a_lost_session_after_five_sixths_of_the_timeout(
    tracker: SessionTracker, clock: Clock
) -> None:
    tracker.observe(connected(1_000))
    assert tracker.observe(suspended(1_002)) == (SessionEvent.CONNECTION_LOST,)
    assert not tracker.connected
    assert tracker.due == 1_002 + GIVES_UP_SECONDS

    clock.seconds = 1_002 + GIVES_UP_SECONDS - 0.001
    assert tracker.pass_time() == ()
    assert tracker.lost_at is None

    clock.seconds = 1_002 + GIVES_UP_SECONDS
    assert tracker.pass_time() == (SessionEvent.SESSION_LOST,)
    assert tracker.lost_at == 1_002 + GIVES_UP_SECONDS


def test_the_connection_may_come_back_in_time(tracker: SessionTracker) -> None:
    tracker.observe(connected(1_000))
    tracker.observe(suspended(1_002))
    assert tracker.observe(connected(1_003)) == (SessionEvent.RECONNECTED,)
    assert tracker.due is None


@pytest.mark.parametrize(
    ("keeper_state", "status"),
    [(KeeperState.EXPIRED_SESSION, SessionStatus.SESSION_LOST), (KeeperState.CLOSED, SessionStatus.CLOSED)],
)
def test_kazoo_says_lost_for_a_session_that_expired_and_for_one_the_application_closed(
    tracker: SessionTracker, keeper_state: str, status: SessionStatus
) -> None:
    tracker.observe(connected(1_000))
    tracker.observe(lost(1_001, keeper_state))
    assert tracker.status is status


def test_a_new_session_after_a_lost_one_is_established_again(tracker: SessionTracker) -> None:
    tracker.observe(connected(1_000))
    tracker.observe(lost(1_001))
    events = tracker.observe(connected(1_002, "0x2"))
    assert SessionEvent.SESSION_REESTABLISHED in events
    assert (tracker.session, tracker.lost_at) == ("0x2", None)


def test_a_clock_that_went_back_changes_nothing(tracker: SessionTracker, clock: Clock) -> None:
    tracker.observe(connected(1_000))
    tracker.observe(suspended(1_002))
    clock.seconds = 10.0
    assert tracker.pass_time() == ()
    assert tracker.status is SessionStatus.CONNECTION_LOST
