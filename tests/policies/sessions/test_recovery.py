"""What becomes of the bundles, the load data, and what is said when too little is known."""

from typing import Any

from tests.policies.sessions.course import BUNDLE, Run, absent, at, owned, recovery, registered, session, tree

SHUTDOWN: dict[str, Any] = {"on_session_lost": "shutdown"}


def start(*members: str, **settings: Any) -> Run:
    return Run(**settings).together(*[session(0, m, "connected", f"0x{m}") for m in members])


# --- bundles


def reestablished(**settings: Any) -> Run:
    return start("b1", "b2", **settings).see(
        owned(1, "b1", "0xb1"), session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew")
    )


def test_a_node_of_the_old_session_is_waited_for_until_the_time_is_over() -> None:
    run = reestablished(ownership_rules="pip57").see(owned(21, "b1", "0xb1")).until(60)
    assert run.ruled("b1") == [(21, "wait old_session"), (50, "unload old_session_persists")]
    assert run.bundles[0].seconds_left == 29


def test_a_bundle_that_is_not_read_in_the_interval_of_its_readings_waits_and_says_so() -> None:
    """A `wait` is no record of its own where another ruling follows within one interval, here of five seconds."""
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), owned(6, "b1", "0xb1"), session(10, "b1", "expired", "0xb1"))
    run.see(session(20, "b1", "connected", "0xnew")).until(40)
    assert run.ruled("b1") == [(25, "wait unread")]


def test_a_node_of_the_old_session_is_replaced_under_current_rules() -> None:
    run = reestablished(ownership_rules="current").see(owned(21, "b1", "0xb1", version=4))
    assert run.ruled("b1")[-1] == (21, "re-own old_session")
    decision = run.bundles[-1]
    assert (decision.delete_first, decision.expected_version, decision.preload) == (True, 4, True)


def test_a_node_that_is_not_ephemeral_is_unloaded_and_named() -> None:
    run = reestablished().see(owned(21, "b1", "0xnew", ephemeral=False))
    assert run.ruled("b1")[-1] == (21, "unload not_ephemeral")
    assert ("bundle-not-ephemeral", "t/ns/0x00000000_0x40000000") in run.firing()


def test_an_unreadable_value_is_tried_again_ever_less_often() -> None:
    run = reestablished().see(*[owned(21 + n, None, "0xnew") for n in range(3)])
    assert [d.retry_ms for d in run.bundles if d.reason == "unreadable"] == [100, 200, 400]


def test_two_members_that_believe_they_own_a_bundle_are_an_alert_and_one_lets_go() -> None:
    run = reestablished().see(owned(21, "b2", "0xb2"))
    assert run.ruled("b1")[-1] == (21, "unload double_ownership")
    assert run.ruled("b2") == [(21, "keep own_session")]
    assert run.said("double-ownership") == [(21, "t/ns/0x00000000_0x40000000", "firing")]
    run.see(recovery(25, "b1", "unload", path=BUNDLE)).until(30)
    assert run.firing() == set()
    assert run.told("b1")[-1][1] == "resume recovered"


def test_a_report_that_the_last_reading_contradicts_is_decided_by_the_next_reading() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), recovery(2, "b2", "re-own", path=BUNDLE)).until(60)
    assert run.ruled("b2") == []
    assert run.see(owned(61, "b1", "0xb1")).ruled("b2") == [(61, "unload double_ownership")]


def test_a_bundle_that_changes_hands_in_order_is_nobodys_double() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), absent(10), owned(11, "b2", "0xb2")).until(100)
    assert run.published == []


def test_a_node_that_names_one_and_belongs_to_the_session_of_another_is_the_sessions() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb2"))
    assert run.ruled("b1") == [(1, "unload double_ownership")]
    assert run.ruled("b2") == [(1, "keep own_session")]


def test_a_process_with_two_names_and_one_session_contests_nothing() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), session(2, "p1", "connected", "0xb1", role="proxy")).until(60)
    assert run.published == []


def test_a_bundle_that_nobody_owns_is_an_orphan_after_its_time() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), tree(10)).until(100)
    assert run.said("orphan-bundle") == [(70, "t/ns/0x00000000_0x40000000", "firing")]
    run.see(owned(110, "b2", "0xb2"))
    assert run.firing() == set()


def test_a_bundle_is_no_orphan_while_its_owner_is_without_a_session() -> None:
    run = start("b1", "b2").see(owned(1, "b1", "0xb1"), session(5, "b1", "expired", "0xb1"), absent(10)).until(100)
    assert run.said("orphan-bundle") == []


def test_load_data_that_is_missing_is_asked_for_and_then_an_alert() -> None:
    run = reestablished().see(owned(25, "b1", "0xnew"), registered(26, "b1", "0xb1")).until(90)
    assert run.told("b1")[-1] == (55.0, "republish-load-data load_data_missing")
    assert run.said("load-data-missing") == [(85.0, "b1", "firing")]
    run.see(registered(95, "b1", "0xnew"))
    assert run.told("b1")[-1] == (95, "resume registered")
    assert run.firing() == set()


# --- what is not known


def test_nothing_is_decided_on_readings_past_their_validity() -> None:
    run = start("b1", "b2", "b3", **SHUTDOWN, validity="10s", shutdown_delay="20s")
    run.see(session(10, "b1", "expired", "0xb1")).until(500)
    assert run.told("b1")[-1][1] != "shutdown session_lost"
    assert ("session-lost", "b1") in run.firing()
    assert ("zookeeper-unread", "messaging") in run.firing()


def test_a_verdict_that_still_holds_is_said_again_when_it_lapses() -> None:
    run = start("b1", "b2", reconnect_deadline="30m").see(session(10, "b1", "expired", "0xb1"))
    for seconds in range(60, 700, 60):
        run.see(session(seconds, "b1", "expired", "0xb1"))
    assert run.told("b1") == [(s, "reconnect session_lost") for s in (10, 310, 610)]


def test_a_step_at_the_same_moment_says_nothing_twice() -> None:
    run = reestablished(ownership_rules="pip57").see(owned(21, "b1", "0xb1"))
    before = len(run.published)
    run.step((), at(21))
    run.step((), at(22))
    assert len(run.published) == before
