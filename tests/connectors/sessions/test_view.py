"""The metrics of the sessions policy, from the policy's own decisions, in virtual time."""

from datetime import timedelta
from typing import Any

import pytest

from connectors.exporter.loop_view import LoopView
from connectors.sessions.view import SessionsView
from policies.observations import Outcome, Reading
from policies.sessions import Ownerships, SessionsSettings, ZkSession
from policies.sessions.policy import SessionsPolicy
from policies.sessions.readings import OwnedNode, SessionState
from policies.units import to_millis
from tests.connectors.exporter.loop import PREFIX, PolicyLoop, standing

CLUSTER = "messaging"
B1, B2 = "b1:8080", "b2:8080"
CONNECTED, DISCONNECTED, EXPIRED = SessionState.CONNECTED, SessionState.DISCONNECTED, SessionState.EXPIRED
OBSERVED, DECIDED = f"{PREFIX}.observed.sessions", f"{PREFIX}.decided.sessions"


def session(state: SessionState, member: str = B1, number: int = 1, **fields: Any) -> ZkSession:
    given = {"member": member, "session": f"0x{number}{member[1]}", "state": state, "timeout_ms": 6000, **fields}
    return ZkSession(cluster=CLUSTER, **given)


def owned(*bundles: str, owner: str | None = B1, number: int = 1, ephemeral: bool = True) -> Ownerships:
    nodes = [
        OwnedNode(
            path=f"/namespace/{bundle}", owner_member=owner, session=f"0x{number}1", czxid=number, version=0,
            ephemeral=ephemeral,
        )
        for bundle in bundles
    ]  # fmt: skip
    return Ownerships(cluster=CLUSTER, outcome=Outcome.OK, tree="/namespace", nodes=tuple(nodes))


class Loop(PolicyLoop):
    """That of the sessions policy."""

    def __init__(self, **settings: Any) -> None:
        block = SessionsSettings.model_validate(settings)
        super().__init__(SessionsPolicy(CLUSTER, block), CLUSTER, LoopView(PREFIX, {"sessions": block}))

    def sessions(self, *, after: float = 0.0, role: str = "broker") -> dict[str, float]:
        """By status, without those that nobody has."""
        found = self.series("headgate_sessions", after=after)
        return {status: count for (_, of, status), count in found.items() if of == role and count}


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.step(session(CONNECTED), session(CONNECTED, B2), owned("t/ns/0x0_0x8", "t/ns/0x8_0xf"))
    return loop


def test_members_are_counted_by_role_and_status_and_every_status_is_there(loop: Loop) -> None:
    loop.step(session(CONNECTED, "k1:1", role="keeper"), after=1)
    assert loop.sessions() == {"established": 2}
    assert loop.sessions(role="keeper") == {"established": 1}
    statuses = {"established", "connection_lost", "session_lost", "closed", "unknown"}
    assert set(loop.series("headgate_sessions")) == {
        (CLUSTER, role, status) for role in ("broker", "keeper") for status in statuses
    }


def test_the_seconds_to_expiry_run_down_by_themselves_and_then_the_session_is_lost(loop: Loop) -> None:
    assert loop.series("headgate_session_seconds_to_expiry") == {}
    loop.step(session(DISCONNECTED), after=1)
    assert loop.sessions() == {"established": 1, "connection_lost": 1}
    assert loop.series("headgate_session_seconds_to_expiry") == {(CLUSTER, B1): 5.0}
    assert loop.series("headgate_session_seconds_to_expiry", after=3.5) == {(CLUSTER, B1): 1.5}
    assert loop.series("headgate_session_seconds_to_expiry", after=5) == {(CLUSTER, B1): 0.0}
    assert loop.sessions(after=5) == {"established": 1, "session_lost": 1}
    loop.step(session(CONNECTED), after=2)
    assert loop.series("headgate_session_seconds_to_expiry") == {}
    assert loop.sessions() == {"established": 2}


def test_a_session_that_is_no_longer_read_is_unknown(loop: Loop) -> None:
    assert loop.sessions(after=300) == {"established": 2}
    assert loop.sessions(after=301) == {"unknown": 2}
    loop.step(session(CONNECTED), after=300)
    assert loop.sessions() == {"established": 2}
    loop.step(session(CONNECTED), after=1)
    assert loop.sessions() == {"established": 1}  # the others were read, so the second one is gone


def test_a_member_that_has_shut_down_in_order_is_closed(loop: Loop) -> None:
    loop.step(session(SessionState.CLOSED), after=1)
    assert loop.sessions() == {"established": 1, "closed": 1}


def test_so_many_members_are_kept(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.sessions.view.MOST_SERVERS", 2)
    loop.step(session(CONNECTED, "forged:1"), session(SessionState.CLOSED, B2), after=1)
    assert loop.sessions() == {"established": 1, "closed": 1}


def test_losses_are_counted_from_nothing_on_and_each_once(loop: Loop) -> None:
    assert loop.series("headgate_session_losses") == {(CLUSTER, "total"): 0}
    loop.step(session(EXPIRED), after=1)
    loop.step(session(EXPIRED), after=1)
    assert loop.series("headgate_session_losses") == {(CLUSTER, "total"): 1}
    loop.step(session(CONNECTED, number=2), after=1)
    loop.step(session(DISCONNECTED, number=2), after=1)
    assert loop.series("headgate_session_losses") == {(CLUSTER, "total"): 1}
    loop.step(after=5)
    assert loop.series("headgate_session_losses") == {(CLUSTER, "total"): 2}


def recover(loop: Loop, *, live: bool = True) -> None:
    """The first broker loses its session, has another four seconds later, and its bundles after seven."""
    loop.step(session(EXPIRED), after=1, live=live)
    loop.step(session(CONNECTED, number=2), after=4, live=live)
    loop.step(session(CONNECTED, number=2), owned("t/ns/0x0_0x8", "t/ns/0x8_0xf", number=2), after=3, live=live)
    loop.step(session(CONNECTED, number=2), after=0.5, live=live)


def test_a_recovery_is_measured_from_the_loss_until_all_is_owned_again(loop: Loop) -> None:
    assert loop.series("headgate_session_recovery_seconds") == {}
    recover(loop)
    found = loop.series("headgate_session_recovery_seconds")
    assert found == {(CLUSTER, "count"): 1, (CLUSTER, "sum"): pytest.approx(7.0, abs=0.51)}


def test_what_was_decided_before_this_process_listened_is_not_counted(loop: Loop) -> None:
    before = loop.series("headgate_session_decisions")
    recover(loop, live=False)
    assert loop.series("headgate_session_recovery_seconds") == {}
    assert loop.series("headgate_session_losses") == {(CLUSTER, "total"): 0}
    assert loop.series("headgate_session_decisions") == before
    assert loop.series("headgate_decision_latency_seconds") == {}


def test_decisions_about_members_and_bundles_are_counted_by_verdict_and_reason(loop: Loop) -> None:
    loop.step(session(EXPIRED), after=1)
    loop.step(session(CONNECTED, number=2), Ownerships(cluster=CLUSTER, outcome=Outcome.OK, tree="/namespace"), after=2)
    found = loop.series("headgate_session_decisions")
    assert found[CLUSTER, "reconnect", "session_lost", "total"] == 1
    assert found[CLUSTER, "recover", "session_reestablished", "total"] == 1
    assert found[CLUSTER, "re-own", "absent", "total"] == 2


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        pytest.param(owned("t/ns/0x0_0x8"), {"owned": 1, "unowned": 1}, id="gone"),
        pytest.param(owned("t/ns/0x0_0x8", "t/ns/0x8_0xf", owner=None), {"unreadable": 2}, id="unreadable"),
        pytest.param(owned("t/ns/0x0_0x8", "t/ns/0x8_0xf", ephemeral=False), {"not_ephemeral": 2}, id="not ephemeral"),
        pytest.param(owned("t/ns/0x0_0x8", "t/ns/0x8_0xf", owner=B2), {"owned": 2}, id="another's"),
    ],
)
def test_bundles_are_counted_by_the_state_of_their_node(loop: Loop, reading: Reading, expected: dict[str, int]) -> None:
    assert loop.series("headgate_bundles") == {
        (CLUSTER, state): 2 if state == "owned" else 0 for state in ("owned", "unowned", "not_ephemeral", "unreadable")
    }
    loop.step(reading, after=1)
    found = {state: count for (_, state), count in loop.series("headgate_bundles").items() if count}
    assert found == expected


def test_bundles_that_have_long_been_gone_are_forgotten_even_after_a_loss(loop: Loop) -> None:
    loop.step(session(EXPIRED), after=1)
    loop.step(owned(), after=1)
    assert loop.series("headgate_bundles")[CLUSTER, "unowned"] == 2
    loop.step(session(CONNECTED, number=2), owned(), after=3601)
    assert loop.series("headgate_bundles")[CLUSTER, "unowned"] == 0


LATENCIES = "headgate_decision_latency_seconds"


def latencies(loop: Loop) -> float:
    return sum(count for labels, count in loop.series(LATENCIES).items() if labels[-1] == "count")


def test_only_decisions_that_a_reading_has_caused_have_a_latency(loop: Loop) -> None:
    before = latencies(loop)
    loop.step(session(DISCONNECTED), after=1)
    once = latencies(loop) - before
    assert once > 0
    loop.step(after=5)  # the session is lost by a timer, five seconds after its last reading
    assert latencies(loop) - before == once


def test_a_cluster_that_is_watched_no_more_is_shown_no_more(loop: Loop) -> None:
    heartbeat = standing("sessions", loop.now, CLUSTER)
    loop.view.fold([heartbeat, heartbeat._replace(value=None)], live=True)
    assert loop.sessions() == {}
    assert loop.series("headgate_bundles") == {}


def test_every_family_and_histogram_has_been_seen_and_is_listed(loop: Loop) -> None:
    recover(loop)
    loop.step(session(DISCONNECTED, B2), after=1)
    assert all(loop.series(family.name.removesuffix("_total")) for family in SessionsView.families)
    listed = {metric.name for metric in loop.view.families()}
    assert {metric.name for metric in loop.view.metrics(to_millis(loop.now))} <= listed
    assert "headgate_session_recovery_seconds" in listed


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 300), ({"validity": "20m"}, 1200), ({"clusters": {"a": {"validity": "2h"}}}, 7200)]
)
def test_history_reaches_as_far_as_a_reading_may_count(settings: dict[str, Any], expected: int) -> None:
    view = SessionsView(SessionsSettings.model_validate(settings))
    assert view.history == timedelta(seconds=expected)


def test_bundles_whose_owners_zookeeper_does_not_show_are_not_counted_as_none(loop: Loop) -> None:
    assert loop.series("headgate_bundles")[CLUSTER, "owned"] == 2
    loop.step(Ownerships(cluster=CLUSTER, outcome=Outcome.UNSUPPORTED, tree="/namespace"), after=1)
    assert loop.series("headgate_bundles") == {}
