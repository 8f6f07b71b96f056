"""Whose session is whose: a member is known by its registration node, and remembered when that is gone."""

import pytest

from connectors.sessions.session_states import EnsembleSnapshot, MemberTracker
from connectors.zookeeper.server_admin import SessionTable
from policies.sessions.readings import MAX_NAME, SessionState

BROKERS, OTHERS = "/loadbalance/brokers", "/services"
FORGET_SECONDS = 60.0
Sessions = dict[int, tuple[str, ...]]


@pytest.fixture
def tracker() -> MemberTracker:
    return MemberTracker("c1", {BROKERS: "broker", OTHERS: "service"}, forget_after_seconds=FORGET_SECONDS)


def seen(at: float, sessions: Sessions) -> EnsembleSnapshot:
    return EnsembleSnapshot(
        began_at=at, ended_at=at + 0.1, table=SessionTable({s: int(at * 1000) + 6_000 for s in sessions}, sessions),
        connections={}, complete=True,
    )  # fmt: skip


def known(tracker: MemberTracker, at: float, sessions: Sessions) -> dict[str | None, tuple[str, str | None]]:
    return {member.member: (member.role, member.session) for member in tracker.update(seen(at, sessions))}


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        (f"{BROKERS}/b1:8080", True),
        (f"{BROKERS}/b1:8080/below", False),
        (BROKERS, False),
        ("/elsewhere/b1:8080", False),
        (f"{BROKERS}/{'x' * MAX_NAME}", False),
    ],
)
def test_only_nodes_right_below_a_tree_are_registrations(tracker: MemberTracker, path: str, counts: bool) -> None:
    assert tracker.is_registration(path) is counts


def test_a_member_has_the_role_of_its_tree_and_the_session_that_owns_its_node(tracker: MemberTracker) -> None:
    sessions: Sessions = {1: (f"{BROKERS}/b1:8080",), 2: (f"{OTHERS}/s1",), 3: ("/else/where",)}
    assert known(tracker, 0, sessions) == {"b1:8080": ("broker", "0x1"), "s1": ("service", "0x2")}


def test_of_two_nodes_of_one_name_the_one_in_the_tree_named_first_counts(tracker: MemberTracker) -> None:
    assert known(tracker, 0, {1: (f"{OTHERS}/b1",), 2: (f"{BROKERS}/b1",)}) == {"b1": ("broker", "0x2")}


def test_a_member_without_its_node_is_known_as_long_as_its_session_lives(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    assert known(tracker, 10 * FORGET_SECONDS, {1: ()}) == {"b1": ("broker", "0x1")}


def test_a_member_whose_session_ended_is_said_to_have_lost_it_and_then_forgotten(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    (gone,) = tracker.update(seen(10, {}))
    assert (gone.member, gone.state) == ("b1", SessionState.EXPIRED)
    assert "b1" in known(tracker, 10 + FORGET_SECONDS, {})
    assert known(tracker, 10.1 + FORGET_SECONDS, {}) == {}


def test_a_member_that_comes_back_in_time_has_its_new_session(tracker: MemberTracker) -> None:
    known(tracker, 0, {1: (f"{BROKERS}/b1",)})
    known(tracker, 10, {})
    assert known(tracker, 20, {2: (f"{BROKERS}/b1",)}) == {"b1": ("broker", "0x2")}
    assert known(tracker, 20 + 2 * FORGET_SECONDS, {2: ()}) == {"b1": ("broker", "0x2")}
