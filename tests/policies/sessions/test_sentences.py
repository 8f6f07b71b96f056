"""Each sentence is true at the moment at which it is published; the values in it are those that decided."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from policies.decisions import Alert
from policies.observations import Observation
from tests.cases import for_each
from tests.policies.sessions.course import BUNDLE, Run, health, owned, recovery, registered, session, tree, unregistered
from tests.policies.sessions.joined import connected, expired
from tests.policies.sessions.world import World

TEN = tuple(f"b{n}" for n in range(10))


def explained(run: Run, reason: str) -> list[str]:
    return [d.explanation for d in run.sessions if d.reason == reason]


def alerted(run: Run, alert: str, status: str = "firing") -> list[Alert]:
    return [a for a in run.alerts if a.alert == alert and a.status == status]


def test_a_budget_that_is_used_up_names_who_is_down_and_since_when() -> None:
    """Said a quarter of an hour after the order, when `shutdown_window` is long over."""
    world = World(*TEN, on_session_lost="shutdown", zombie_after="10h").until(20).lose("b1").until(100)
    world.lose("b2").until(1000)
    said = explained(world.run, "shutdown_budget")[-1]
    assert said.endswith(
        "shut it down as soon as the shutdown budget allows it (1 member at a time; b1 since 08:00:40 is not back yet)."
    )


def test_a_budget_within_its_window_names_the_time_at_which_the_next_may_follow() -> None:
    world = World(*TEN, on_session_lost="shutdown", zombie_after="10h").until(20).lose("b1").until(100).back("b1")
    world.until(120).lose("b2").until(200)
    ((down_at, _, _),) = world.went_down()
    assert down_at == 40
    assert explained(world.run, "shutdown_budget")[-1].endswith("(1 in 10 min; the next may follow at 08:10:40 UTC).")


def test_a_zombie_s_sentence_names_the_age_of_the_reading_of_its_health() -> None:
    world = World("b1", "b2").until(20)
    world.brokers["b1"].registered = False
    world.until(150).silent = {"health"}
    world.until(250)
    (hold,) = explained(world.run, "stale_reading")
    said = re.search(r"reported itself healthy (\d+) s ago", hold)
    assert said is not None
    assert int(said[1]) == 55
    assert "restart it as soon as a fresh reading confirms it (the last one is 55 s old)" in hold


@pytest.mark.parametrize(
    ("readings", "owns"),
    [
        ([], ""),
        ([tree(1)], ", and owns no bundle"),
        ([tree(1), tree(2, outcome="timeout")], ""),
        ([owned(1, "b1", "0xb1")], ", and owns 1 bundle"),
    ],
    ids=["ownership is not read", "none", "not read any more", "one"],
)
def test_a_zombie_s_bundles_are_counted(readings: list, owns: str) -> None:  # type: ignore[type-arg]
    run = Run(zombie_after="1m").see(session(0, "b1", "connected", "0xb1"), *readings)
    for second in range(2, 90, 10):
        run.see(unregistered(second, "b1"), health(second + 1, "b1"))
    (alert,) = alerted(run, "zombie-member")
    said = re.sub(r".* registered since 2026-11-21 08:00:02 UTC", "", alert.summary)
    assert said.removesuffix("; its restart is ordered") == owns


def watched(*seen: Observation) -> Run:
    """Four members with sessions, and then these readings."""
    return Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3", "b4")]).feed(seen)


def unregistered_b1(*then: Observation) -> Run:
    return watched(registered(1, "b1", "0xb1"), unregistered(20, "b1"), health(30, "b1"), *then)


def exhausted(*then: Observation, **settings: Any) -> Run:
    block: dict[str, Any] = {"reconnect_deadline": "1m", "shutdown_budget": 0, "zombie_after": "10h"}
    world = World(*TEN, **block).until(20).lose("b1").until(109)
    world.run.reload(**block | settings)
    return world.run.feed(then) if then else world.until(120).run


def lost_again() -> Run:
    world = World("b1", "b2", "b3", load_data_after="10s").own("b1", BUNDLE).until(20).lose("b1").until(30)
    return world.back("b1", registered=False).until(35).own("b1", BUNDLE).until(120).lose("b1").until(130).run


def silent_when_the_window_ends() -> Run:
    settings: dict[str, Any] = {"on_session_lost": "shutdown", "shutdown_window": "4m", "reconnect_deadline": "1m"}
    world = World(*TEN, **settings, zombie_after="10h").until(20).lose("b2").until(60).back("b2").until(70)
    world.lose("b1").until(250).silent = {"session", "brokers", "namespaces", "health"}
    return world.until(300).run


EXPIRED = session(10, "b1", "expired", "0xb1")
REFUSED = (health(41, "b1", "unreachable"), health(42, "b1", "unreachable"))
TURNS = [session(11 + n, "b1", "expired" if n % 2 else "connected", f"0xb1-{n // 2}") for n in range(6)]
COMES_AND_GOES = [
    seen for s in (1, 3, 5, 7) for seen in (unregistered(s, "b1"), health(s, "b1"), registered(s + 1, "b1", "0xb1"))
]


@for_each(
    ("alert", "run"),
    [
        ("session-lost", lambda: watched(EXPIRED, session(12, "b2", "expired", "0xb2"))),
        ("session-lost", lambda: watched(EXPIRED, *REFUSED)),
        ("session-lost", lambda: watched(EXPIRED, *TURNS)),
        ("session-lost", lambda: watched(EXPIRED).together(*TURNS)),
        ("not-registered", lambda: unregistered_b1(registered(40, "b1", "0xb1"))),
        ("not-registered", lambda: unregistered_b1(session(40, "b1", "closed", "0xb1"))),
        ("not-registered", lambda: unregistered_b1(health(40, "b1", healthy=False))),
        ("not-registered", lambda: unregistered_b1(session(40, "b1", "expired", "0xb1"), *REFUSED)),
        ("not-registered", lambda: watched(*COMES_AND_GOES)),
        ("reconnect-exhausted", lambda: exhausted(shutdown_budget=1)),
        ("reconnect-exhausted", lambda: exhausted(session(110, "b1", "closed", "0xb1-0"))),
        ("reconnect-exhausted", lambda: exhausted(health(110, "b1", "unreachable"), health(115, "b1"))),
        ("reconnect-exhausted", silent_when_the_window_ends),
        ("load-data-missing", lost_again),
    ],
    ids=[
        "it is one of the fleet's", "the process is gone", "the member flaps", "it flaps within a batch", "registered",
        "closed", "unwell", "dead", "it comes and goes", "a shutdown is ordered", "closed before", "a new process",
        "a shutdown waits for a fresh reading", "the session is lost again",
    ],
)  # fmt: skip
def test_an_alert_ends_when_it_is_another_s_or_its_cause_is_gone(alert: str, run: Callable[[], Run]) -> None:
    said = [status for _, of, status in run().said(alert) if of == "b1"]
    assert said[0] == "firing"
    assert said[-1] == "resolved"


def test_a_process_that_failed_too_often_has_not_reconnected_since_its_own_start() -> None:
    run = Run(reconnect_limit=3, shutdown_delay="20s").together(*connected("b1", "b2", "b3", "b4"))
    run.see(session(10, "b1", "expired", "0xb1"), health(20, "b1", "unreachable"), health(200, "b1", healthy=False))
    for number in range(1, 4):
        run.see(*expired("b1", seconds=239 + number))
        run.see(recovery(240 + number, "b1", "reconnect", "failed", attempt=number))
    (said,) = explained(run, "reconnect_exhausted")
    assert said.startswith("Broker b1 has not reconnected in 43 s and 3 failed attempts")


def test_a_flapping_member_s_bundles_are_not_cleaned_up_until_it_is_stable() -> None:
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3", "b4")])
    for second in range(10, 90, 10):
        run.see(session(second, "b1", "connected" if second % 20 else "disconnected", "0xb1"))
    assert explained(run, "unsettled")[-1] == (
        "Broker b1 is connected and not connected in turn since 08:00:20 UTC, or collectors contradict each other: no "
        "bundle of it is cleaned up until its session has been stable for 3 min, in 3 min at the earliest."
    )


@pytest.mark.parametrize("gap_s", [1, 5, 30, 100])
def test_a_shutdown_that_waits_comes_when_it_was_said_to(gap_s: int) -> None:
    """Whatever the interval of the readings was before the loss, and however often the member is read after it."""
    run = Run(on_session_lost="shutdown", zombie_after="10h").together(*connected("b1", "b2", "b3", "b4"))
    for second in range(gap_s, gap_s + 60, 5):
        run.together(*expired("b1", seconds=second), *connected("b2", "b3", "b4", seconds=second))
    confirming, *_ = explained(run, "confirming")
    said = re.search(r"shuts down in (\d+) s at the earliest", confirming)
    assert said is not None
    ((down_s, _),) = [(s, what) for s, what in run.told("b1") if what == "shutdown session_lost"]
    assert gap_s + int(said[1]) <= down_s < gap_s + int(said[1]) + 5


def test_a_recovery_counts_only_what_the_member_owned_before() -> None:
    """It had owned one bundle; the other it took from another member, which claims it, too."""
    other = "/namespace/t/ns/0x40000000_0x80000000"
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3")])
    run.see(owned(1, "b1", "0xb1"), owned(1, "b2", "0xb2", other), session(10, "b1", "expired", "0xb1"))
    run.see(session(11, "b2", "expired", "0xb2"), session(20, "b1", "connected", "0xnew"))
    run.see(owned(21, "b1", "0xnew"), owned(21, "b1", "0xnew", other)).until(22)
    (recovered,) = explained(run, "recovered")
    assert recovered.endswith("it owns 1 of 1 bundle again, and gives up 0.")


def test_a_lost_session_s_sentence_says_how_it_was_lost() -> None:
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3", "b4", "b5", "b6", "b7")])
    run.see(session(5, "b1", "disconnected", "0xb1"), session(6, "b2", "expired", "0xb2")).until(31)
    first, second = sorted(explained(run, "session_lost"))
    assert "Broker b1 has lost its session (it was disconnected for 25 s)" in first
    assert "Broker b2 has lost its session (it expired)" in second


def test_without_any_reading_of_bundles_their_number_is_unknown() -> None:
    run = Run().together(session(0, "b1", "connected", "0xb1"), session(0, "b2", "connected", "0xb2"))
    run.see(tree(1, name="/loadbalance/brokers"))
    run.see(session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew"))
    assert "it owned an unknown number of bundles" in run.sessions[-1].explanation
    assert run.sessions[-1].bundle_count is None
    known = Run().together(session(0, "b1", "connected", "0xb1"), session(0, "b2", "connected", "0xb2"), tree(1))
    known.see(session(10, "b1", "expired", "0xb1"), session(20, "b1", "connected", "0xnew"))
    assert known.sessions[-1].bundle_count == 0
    assert "it owned 0 bundles" in known.sessions[-1].explanation


def test_a_member_that_cannot_reconnect_is_not_shut_down_while_zookeeper_cannot_be_read() -> None:
    world = World(*TEN, reconnect_deadline="1m", zombie_after="10h").until(20).lose("b1").until(70)
    world.failing = {"brokers", "namespaces"}
    (said,) = explained(world.until(100).run, "fleet_wide")
    assert said.endswith("not reconnected in 60 s: it is not shut down while ZooKeeper cannot be read (timeout).")


def test_a_bundle_claimed_twice_whose_node_s_session_is_not_known_belongs_to_an_unknown_session() -> None:
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3")])
    run.see(owned(1, "b1", "0xb1"), owned(2, "b2", None), recovery(3, "b1", "re-own", path=BUNDLE))
    (alert,) = alerted(run, "double-ownership")
    assert alert.summary.endswith("is claimed by b1 and b2; its node belongs to an unknown session")


def test_a_node_that_outlives_sessions_and_names_nobody_names_no_member() -> None:
    run = Run().together(session(0, "b1", "connected", "0xb1"), owned(0, None, None, ephemeral=False))
    (alert,) = alerted(run, "bundle-not-ephemeral")
    assert alert.summary.endswith(
        "has a node that is not ephemeral, so the end of a session does not free it (it names no member)"
    )
