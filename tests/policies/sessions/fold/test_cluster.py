"""Readings of every kind, each to the read model of its kind."""

import pytest

from policies.observations import Observation
from policies.sessions.fold import ClusterState
from policies.sessions.readings import registration_path
from policies.sessions.settings import SessionsSettings
from policies.sessions.state import SESSIONS, SessionsState
from policies.units import to_millis
from tests.policies.sessions.course import BUNDLE, absent, at, health, owned, recovery, session, tree, unread


def folded(*readings: Observation, until: float = 60) -> ClusterState:
    cluster = ClusterState(SessionsState(0), SessionsSettings())
    cluster.fold(readings, to_millis(at(until)))
    return cluster


def test_that_one_member_cannot_be_read_says_nothing_of_the_sessions() -> None:
    cluster = folded(session(5, "b1", "connected", "0xa"), unread(9, "b1"))
    assert (cluster.sources[SESSIONS].outcome, cluster.members["b1"].outcome) == ("ok", "timeout")
    assert folded(session(5, "b1", "connected", "0xa"), unread(9)).sources[SESSIONS].outcome == "timeout"


def test_a_tree_that_was_read_later_goes_before_one_that_comes_later() -> None:
    cluster = folded(owned(1, "b1", "0xa"), tree(9, outcome="timeout"), tree(5))
    record = cluster.nodes.by_path.get(BUNDLE)
    assert record is not None
    assert (record.exists, cluster.sources["/namespace"].outcome) == (False, "timeout")


def test_the_registrations_of_known_members_are_expected_in_their_tree() -> None:
    cluster = folded(session(1, "b1", "connected", "0xa"), health(1, "b2"), tree(5, name="/loadbalance/brokers"))
    assert set(cluster.nodes.by_path) == {registration_path("b1"), registration_path("b2")}


def test_reports_of_an_unknown_member_say_nothing() -> None:
    assert folded(recovery(5, "b1", "reconnect", "failed")).members == {}


def test_a_loss_by_time_lies_between_the_readings_around_it() -> None:
    """What b1 owned at its loss (at 30 s) is claimed by it, though its node went before the batch was folded."""
    lost = [session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa")]
    cluster = folded(*lost, absent(40))
    assert cluster.claims.by_path[BUNDLE]["b1"].since_ms == to_millis(at(30))


@pytest.mark.parametrize("split", range(1, 6))
def test_batches_make_no_difference(split: int) -> None:
    readings = [
        session(0, "b1", "connected", "0xa"), owned(1, "b1", "0xa"), session(5, "b1", "disconnected", "0xa"),
        health(31, "b1"), absent(40), session(50, "b1", "connected", "0xb"),
    ]  # fmt: skip
    whole = folded(*reversed(readings))
    parts = folded(*readings[:split], until=0)
    parts.fold(readings[split:], to_millis(at(60)))
    assert (parts.members, parts.nodes.by_path, parts.claims.by_path) == (
        whole.members, whole.nodes.by_path, whole.claims.by_path,
    )  # fmt: skip
