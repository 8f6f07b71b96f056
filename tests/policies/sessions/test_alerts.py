"""What is warned of, from the facts that remain after a step."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from policies.alerts import AlertBook, AlertEntry, Sender
from policies.book import Step, list_conditions
from policies.decisions import Alert
from policies.observations import Observation
from policies.sessions.alerts import Alerts
from policies.sessions.registration import KIND
from tests.cases import for_each
from tests.policies.sessions.course import (
    BUNDLE,
    CLUSTER,
    Run,
    at,
    health,
    node,
    owned,
    recovery,
    registered,
    session,
    tree,
    unread,
    unregistered,
)
from tests.policies.sessions.joined import after, connected, expired, joined
from tests.policies.sessions.world import World


def warned(
    *readings: Observation, until: float, book: AlertBook | None = None, **block: Any
) -> dict[tuple[str, str], str]:
    """(alert, subject without its cluster) to its summary."""
    book = book or AlertBook()
    held = {(each.alert, each.subject): each.since_ms for each in book.entries}
    alerts = Alerts(CLUSTER, after(joined(*readings, until=until, **block)), held)
    step = Step(None, conditions=alerts.find(), stay=alerts.keep_unknown)
    sender = Sender.build(KIND.name, CLUSTER, KIND.settings(), KIND.many)
    return {(c.alert, c.subject.removeprefix(f"{CLUSTER}/")): c.summary for c in list_conditions(book, step, sender)}


def said(alert: str, subject: str) -> AlertBook:
    return AlertBook((AlertEntry(alert, f"{CLUSTER}/{subject}", "warning", "as_it_was", "as it was", {}, 1, 1),))


def test_one_loss_is_an_alert_of_its_member_and_that_of_a_fleet_hides_them() -> None:
    fleet = connected("b1", "b2", "b3")
    assert warned(*fleet, *expired("b1", seconds=10), until=12) == {
        ("session-lost", "b1"): "broker b1 of messaging has had no ZooKeeper session since 2026-11-21 08:00:10 UTC"
    }
    assert warned(*fleet, *expired("b1", "b2", seconds=10), until=12) == {
        ("session-fleet-wide", "broker"): "2 of 3 members of the role broker of messaging are without a session: b1, b2"
    }


def test_an_order_that_stands_is_named_so_that_one_without_effect_is_seen() -> None:
    block: dict[str, Any] = {"on_session_lost": "shutdown", "fleet_ratio": 1.0, "shutdown_delay": "5s"}
    lost = [*connected("b1", "b2", "b3"), *expired("b1", seconds=10), *expired("b1", seconds=20)]
    summary = warned(*lost, until=20, **block)["session-lost", "b1"]
    assert summary.endswith("since 2026-11-21 08:00:10 UTC; its shutdown is ordered")
    assert not warned(*lost, until=20)["session-lost", "b1"].endswith("ordered"), "it reconnects"


def test_while_a_member_flaps_or_collectors_contradict_each_other_no_other_alert_comes_and_goes() -> None:
    run = Run()
    for second in range(0, 300, 3):
        state = "expired" if second % 2 else "connected"
        run.see(session(second, "b1", state, "0xb1"), session(second, "b2", "connected", "0xb2"))
    assert [status for _, _, status in run.said("session-lost")] == ["firing", "resolved"] * 3
    assert run.firing() == {("session-flapping", "b1")}
    assert len(run.told("b1")) <= 12


@pytest.mark.parametrize(("until", "is_flapping"), [(327, True), (327.001, False)])
def test_a_registration_that_came_and_went_is_flapping_for_the_validity_of_its_last_reading(
    until: float, is_flapping: bool
) -> None:
    turns = [registered(s, "b1", "0xb1") if s % 2 else unregistered(s, "b1") for s in range(0, 30, 3)]
    readings = [*connected("b1"), *turns, *connected("b1", seconds=300)]
    assert (("session-flapping", "b1") in warned(*readings, until=until)) is is_flapping


def test_what_is_not_known_now_stays_as_it_was_said() -> None:
    silent = [*connected("b1", "b2"), *connected("b2", seconds=400)]
    assert warned(*silent, until=450, book=said("session-lost", "b2")).get(("session-lost", "b2")) is None
    stale = warned(*connected("b1", "b2"), *expired("b1", seconds=10), until=311)
    assert ("session-lost", "b1") not in stale, "nor does it begin"
    unknown = warned(*silent, until=705, book=said("session-lost", "b2"))["session-lost", "b2"]
    assert unknown == "unknown, as it is not read now; it was: as it was"


def test_a_zombie_stays_one_until_a_reading_says_that_it_is_none() -> None:
    book = said("zombie-member", "b1")
    assert ("zombie-member", "b1") in warned(*connected("b1"), unread(5), until=6, book=book)
    assert ("zombie-member", "b1") in warned(*connected("b1"), until=6, book=book)
    for reading in (registered(5, "b1", "0xb1"), session(5, "b1", "closed", "0xb1"), health(5, "b1", healthy=False)):
        assert ("zombie-member", "b1") not in warned(*connected("b1"), reading, until=6, book=book)


def test_a_loss_is_no_loss_of_the_fleet_because_the_others_are_not_read_any_more() -> None:
    silent = [*connected("b1", "b2", "b3", "b4", "b5"), *expired("b1", "b2", seconds=200)]
    assert ("session-fleet-wide", "broker") not in warned(*silent, until=450, fleet_ratio=0.9)
    assert ("session-fleet-wide", "broker") in warned(*silent, until=205, fleet_ratio=0.4)
    assert ("session-fleet-wide", "broker") not in warned(*silent, until=450, fleet_ratio=0.4), "it begins on news"
    book = said("session-fleet-wide", "broker")
    assert ("session-fleet-wide", "broker") in warned(*silent, until=450, book=book, fleet_ratio=0.4)


# --- A fleet in trouble is a handful of alerts; a critical one begins on a fresh reading only

FLEET = tuple(f"b{n:03}" for n in range(150))
BROKERS = "/loadbalance/brokers"


def firing(run: Run) -> Counter[tuple[str, str]]:
    """How many records say that an alert fires, by its name and severity."""
    return Counter((a.alert, a.severity.value) for a in run.alerts if a.status == "firing")


def unregistered_fleet(seconds: float, *members: str) -> list[Observation]:
    return [tree(seconds, name=BROKERS), *(health(seconds + 0.1, m) for m in members)]


def test_a_hundred_and_fifty_brokers_without_a_registration_are_a_few_alerts() -> None:
    run = Run(zombie_after="1m").together(*[session(0, m, "connected", f"0x{m}") for m in FLEET])
    for second in range(5, 100, 10):
        run.together(*unregistered_fleet(second, *FLEET))
    assert firing(run) == {("not-registered", "warning"): 1, ("zombie-member", "critical"): 1}
    (critical,) = (a for a in run.alerts if a.alert == "zombie-member")
    assert critical.summary == (
        "150 members of messaging reported themselves healthy, but have not been registered for `zombie_after`: "
        f"{', '.join(FLEET[:10])} and 140 more"
    )
    assert (critical.subject, critical.labels["count"]) == ("messaging", "150")
    run.until(4000)
    assert {("zombie-member", "messaging"), ("not-registered", "messaging")} <= run.firing(), "readings ended, not they"
    assert [a for a in run.alerts if a.alert == "zombie-member"][-1].summary.startswith("unknown")


def bundles(count: int, owner: str) -> list[dict[str, object]]:
    return [node(owner, f"0x{owner}", f"/namespace/t/ns/0x{n:08x}_0x{n + 1:08x}") for n in range(count)]


def test_five_hundred_bundles_that_fail_over_from_one_broker_are_one_critical_alert() -> None:
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2", "b3")])
    run.together(tree(1, *bundles(500, "b1")))
    run.together(session(10, "b1", "expired", "0xb1"), tree(11, *bundles(500, "b2")))
    doubles = [a for a in run.alerts if a.alert == "double-ownership"]
    assert [(a.subject, a.status.value) for a in doubles] == [("messaging", "firing")]
    assert doubles[0].summary.startswith(
        "500 bundles of messaging are claimed by more than one member; b1 claims 500 of them: t/ns/0x00000000_"
    )


def critical(run: Run) -> list[Alert]:
    return [a for a in run.alerts if a.severity == "critical" and a.status == "firing"]


def summary_of(run: Run, alert: str) -> str:
    """The summary of the only record that says that an alert fires."""
    (fired,) = (a for a in run.alerts if a.alert == alert and a.status == "firing")
    return fired.summary


def test_no_critical_alert_begins_on_readings_four_minutes_old() -> None:
    run = Run(zombie_after="4m").together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2")])
    run.see(unregistered(1, "b1"), health(2, "b1"), unregistered(11, "b1"), health(12, "b1")).until(290)
    assert critical(run) == []
    run.see(unregistered(291, "b1"), health(292, "b1"))
    assert critical(run) == [], "one fresh reading is not two in a row"
    run.see(unregistered(296, "b1"), health(297, "b1"))
    assert [a.alert for a in critical(run)] == ["zombie-member"]


def test_a_double_ownership_is_not_critical_on_a_reading_older_than_t() -> None:
    run, six = Run(), {"timeout_ms": 6_000}
    run.together(*[session(0, name, "connected", f"0x{name}", **six) for name in ("b1", "b2", "b3")])
    run.see(owned(0, "b1", "0xb1"), owned(8, "b2", "0xb2"), session(20, "b1", "expired", "0xb1", **six))
    assert not [a for a in run.alerts if a.alert == "double-ownership"]
    run.see(owned(21, "b2", "0xb2"))
    doubles = [a for a in run.until(100).alerts if a.alert == "double-ownership"]
    assert [(a.severity.value, a.summary.startswith("unknown")) for a in doubles] == [("critical", False)], "it stays"


def test_losses_beyond_those_that_are_remembered_are_counted_as_at_least_so_many() -> None:
    run = Run().together(*connected("b1", "b2", "b3", "b4"))
    for number in range(20):
        run.see(session(10 + 4 * number, "b1", "expired", "0xb1"), session(12 + 4 * number, "b1", "connected", "0xb1"))
    run.until(100)
    assert run.alerts[-1].summary == "broker b1 of messaging lost its session at least 16 times within 3 min"


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
    said = re.sub(r".* registered since 2026-11-21 08:00:02 UTC", "", summary_of(run, "zombie-member"))
    assert said.removesuffix("; its restart is ordered") == owns


def watched(*seen: Observation) -> Run:
    """Four members with sessions, and then these readings."""
    return Run().together(*connected("b1", "b2", "b3", "b4")).feed(seen)


def unregistered_b1(*then: Observation) -> Run:
    return watched(registered(1, "b1", "0xb1"), unregistered(20, "b1"), health(30, "b1"), *then)


def exhausted(*then: Observation, **settings: Any) -> Run:
    block: dict[str, Any] = {"reconnect_deadline": "1m", "shutdown_budget": 0, "zombie_after": "10h"}
    world = World("b1", *FLEET[:9], **block).until(20).lose("b1").until(109)
    world.run.reload(**block | settings)
    return world.run.feed(then) if then else world.until(120).run


def lost_again() -> Run:
    world = World("b1", "b2", "b3", load_data_after="10s").own("b1", BUNDLE).until(20).lose("b1").until(30)
    return world.back("b1", registered=False).until(35).own("b1", BUNDLE).until(120).lose("b1").until(130).run


def silent_when_the_window_ends() -> Run:
    settings: dict[str, Any] = {"on_session_lost": "shutdown", "shutdown_window": "4m", "reconnect_deadline": "1m"}
    world = (
        World("b1", "b2", *FLEET[:8], **settings, zombie_after="10h")
        .until(20)
        .lose("b2")
        .until(60)
        .back("b2")
        .until(70)
    )
    return world.lose("b1").until(250).silence("session", "brokers", "namespaces", "health").until(300).run


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


def test_a_bundle_claimed_twice_whose_node_s_session_is_not_known_belongs_to_an_unknown_session() -> None:
    run = watched(owned(1, "b1", "0xb1"), owned(2, "b2", None), recovery(3, "b1", "re-own", path=BUNDLE))
    said = summary_of(run, "double-ownership")
    assert said.endswith("is claimed by b1 and b2; its node belongs to an unknown session")


def test_a_node_that_outlives_sessions_and_names_nobody_names_no_member() -> None:
    said = summary_of(watched(owned(0, None, None, ephemeral=False)), "bundle-not-ephemeral")
    assert said.endswith(
        "has a node that is not ephemeral, so the end of a session does not free it (it names no member)"
    )


# --- Registrations and bundles that no session protects, that one member alone may own, or whose owner is not shown

WHOLE = "0x00000000_0xffffffff"


def registrations(second: float, *names: str, ephemeral: bool = False) -> Observation:
    nodes = [node(n, f"0x{n}" if ephemeral else None, f"{BROKERS}/{n}", ephemeral=ephemeral) for n in names]
    return tree(second, *nodes, name=BROKERS)


def watch(run: Run, dead: Callable[[str, int], bool], *names: str, until: int, watched: bool = True) -> Run:
    for second in range(0, until, 15):
        asked = [health(second, n, "unreachable" if dead(n, second) else "ok") for n in names if watched]
        run.together(registrations(second, *names), *asked)
    return run


@for_each("count", [1, 3, 12])
@for_each("died", ["none", "one", "all"])
@for_each("watched", [True, False])
def test_registrations_that_outlive_sessions_are_reported_and_health_decides(
    count: int, died: str, watched: bool
) -> None:
    names = [f"b{n}:8080" for n in range(count)]
    dead = {"none": [], "one": names[:1], "all": names}[died]
    run = watch(Run(), lambda n, s: n in dead and s >= 100, *names, until=400, watched=watched)
    subjects = {f"{CLUSTER}/{name}" for name in names} if count <= 10 else {CLUSTER}
    reported = {(a.alert, a.subject) for a in run.alerts}
    assert reported == {("registration-not-ephemeral", subject) for subject in subjects}
    gone = {d.member for d in run.sessions if (d.verdict, d.reason) == ("gone", "unreachable")}
    assert gone == (set(dead) if watched else set())
    assert len(run.sessions) == len(gone), "once each"


def test_a_dead_member_is_named_with_the_node_to_delete_and_comes_back() -> None:
    run = watch(Run(), lambda n, s: n == "b0" and 100 <= s < 200, "b0", "b1", until=300)
    assert [what for _, what in run.told("b0")] == ["gone unreachable", "resume joined"]
    assert "clients are sent to it until /loadbalance/brokers/b0 is deleted" in run.sessions[0].explanation
    summaries = [a.summary for a in run.alerts if a.subject == f"{CLUSTER}/b0"]
    assert [s.rpartition(": ")[2] for s in summaries] == [
        "its health decides", "its process is gone, and clients are sent to it until the node is deleted",
        "its health decides",
    ]  # fmt: skip
    run.together(registrations(310, "b0", "b1", ephemeral=True))
    assert run.firing() == set()


def test_a_member_about_whose_process_collectors_contradict_each_other_is_not_dead() -> None:
    run = watch(Run(), lambda _, second: second >= 300 or second % 30 == 0, "b0", until=520)
    assert [what for _, what in run.told("b0")] == ["gone unreachable"]
    assert run.sessions[0].decided_at >= at(300 + 180), "its health agreed for `settle`"


def test_a_healthy_member_whose_former_session_expired_is_not_shut_down_for_it() -> None:
    """It was updated to a version that registers by a node without a session."""
    run = Run(on_session_lost="shutdown", reconnect_deadline="1m")
    run.together(session(0, "b0", "connected", "0xb0"), session(0, "b1", "connected", "0xb1"))
    for second in range(10, 400, 10):
        sessions = session(second, "b0", "expired", "0xb0"), session(second, "b1", "connected", "0xb1")
        run.together(*sessions, registrations(second, "b0"), health(second, "b0"))
    assert {d.verdict for d in run.sessions} <= {"hold", "reconnect"}


def test_an_alert_about_a_registration_that_is_not_read_stays() -> None:
    run = Run().together(registrations(0, "b0"))
    assert run.alerts[0].summary.endswith("it is not asked for its health, so nothing shows whether it lives")
    assert run.until(3000).firing() == {("registration-not-ephemeral", "b0")}


NAMESPACES = ["pulsar/b0:8080", "pulsar/east/b0:8080", "sla-monitor/east/b0:8080"]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("ends", ["closes", "expires", "is killed"])
def test_a_heartbeat_bundle_that_another_member_takes_is_an_alert_and_nobody_is_told_to_keep_it(
    namespace: str, ends: str
) -> None:
    path = f"/namespace/{namespace}/{WHOLE}"
    world = World("b0:8080", "b1:8080", "b2:8080").own("b0:8080", path).until(20).lose("b0:8080")
    state, well = "closed" if ends == "closes" else "expired", "unreachable" if ends == "is killed" else "ok"
    world.change("b0:8080", state=state, well=well).until(200)
    assert not any(alert == "orphan-bundle" for alert, _ in world.run.firing())
    world.own("b2:8080", path).until(230).back("b0:8080").change("b0:8080", well="ok").until(260)
    assert ("heartbeat-bundle-taken", f"{namespace}/{WHOLE}") in world.run.firing()
    (summary,) = {a.summary for a in world.run.alerts if a.alert == "heartbeat-bundle-taken"}
    assert summary == (
        f"bundle {namespace}/{WHOLE} of {CLUSTER} belongs to b0:8080 alone, but b2:8080 owns it: b0:8080 may fail at "
        "each start until it is unloaded at b2:8080"
    )
    assert world.run.bundles == []
    world.own("b0:8080", path).until(280)
    assert not any(alert == "heartbeat-bundle-taken" for alert, _ in world.run.firing())


@for_each("namespace", ["pulsar/system", "t/b0:8080", "pulsar/b1:8080", "public/default"])
def test_other_bundles_and_ones_of_their_own_member_are_nobody_elses(namespace: str) -> None:
    world = World("b0:8080", "b1:8080").own("b1:8080", f"/namespace/{namespace}/{WHOLE}").until(60)
    assert world.run.published == []


def test_another_port_of_one_host_may_be_the_same_broker() -> None:
    """A broker may register itself by its encrypted port, and its heartbeat by the other one."""
    run = Run().together(tree(0, node("b0:8443", "0xb0", f"/namespace/pulsar/b0:8080/{WHOLE}")))
    assert run.firing() == set()
    run.together(tree(5, node(None, "0xb1", f"/namespace/pulsar/b0:8080/{WHOLE}")))
    assert run.firing() == set(), "it is not known who owns it"
    run.together(tree(10, node("b1:8443", "0xb1", f"/namespace/pulsar/b0:8080/{WHOLE}")))
    assert run.firing() == {("heartbeat-bundle-taken", f"pulsar/b0:8080/{WHOLE}")}


def test_another_port_of_one_host_is_another_broker_if_both_are_members() -> None:
    run = Run().together(*connected("b0:8080", "b0:8443"))
    run.see(tree(1, node("b0:8443", "0xb0:8443", f"/namespace/pulsar/b0:8080/{WHOLE}")))
    assert run.firing() == {("heartbeat-bundle-taken", f"pulsar/b0:8080/{WHOLE}")}


def test_ownership_that_is_not_shown_is_one_alert_until_it_is_read() -> None:
    run = Run().see(*[tree(s, outcome="unsupported") for s in range(0, 600, 15)])
    assert run.said("ownership-hidden") == [(0, CLUSTER, "firing")]
    assert "own the bundles below /namespace: " in run.alerts[0].summary
    run.until(3000)
    assert ("ownership-hidden", CLUSTER) in run.firing()
    run.see(tree(3010))
    assert run.firing() == set()


def test_sessions_that_no_server_lists_hide_no_ownership() -> None:
    assert Run().see(unread(0, outcome="unsupported")).firing() == {("zookeeper-unread", CLUSTER)}


def test_a_branch_that_no_record_can_hold_is_named() -> None:
    run = Run().see(tree(0, name="/namespace/t"), tree(0, name="/namespace/u", outcome="unsupported"))
    assert "below /namespace/u: " in run.alerts[0].summary
