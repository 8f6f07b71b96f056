"""Registrations and bundles that no session protects, that one member alone may own, or whose owner is not shown."""

from collections.abc import Callable

import pytest

from policies.observations import Observation
from tests.cases import for_each
from tests.policies.sessions.course import CLUSTER, Run, at, health, node, session, tree
from tests.policies.sessions.world import World

BROKERS = "/loadbalance/brokers"
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


def test_without_watched_health_the_alert_says_that_nothing_shows_whether_the_member_lives() -> None:
    run = Run().together(registrations(0, "b0"))
    assert run.alerts[0].summary.endswith("it is not asked for its health, so nothing shows whether it lives")


def test_a_healthy_member_whose_former_session_expired_is_not_shut_down_for_it() -> None:
    """It was updated to a version that registers by a node without a session."""
    run = Run(on_session_lost="shutdown", reconnect_deadline="1m")
    run.together(session(0, "b0", "connected", "0xb0"), session(0, "b1", "connected", "0xb1"))
    for second in range(10, 400, 10):
        sessions = session(second, "b0", "expired", "0xb0"), session(second, "b1", "connected", "0xb1")
        run.together(*sessions, registrations(second, "b0"), health(second, "b0"))
    assert {d.verdict for d in run.sessions} <= {"hold", "reconnect"}


def test_an_alert_about_a_registration_that_is_not_read_stays() -> None:
    run = Run().together(registrations(0, "b0")).until(3000)
    assert run.firing() == {("registration-not-ephemeral", "b0")}


NAMESPACES = ["pulsar/b0:8080", "pulsar/east/b0:8080", "sla-monitor/east/b0:8080"]


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("ends", ["closes", "expires", "is killed"])
def test_a_heartbeat_bundle_that_another_member_takes_is_an_alert_and_nobody_is_told_to_keep_it(
    namespace: str, ends: str
) -> None:
    path = f"/namespace/{namespace}/{WHOLE}"
    world = World("b0:8080", "b1:8080", "b2:8080").own("b0:8080", path).until(20)
    world.lose("b0:8080")
    world.brokers["b0:8080"].state = "closed" if ends == "closes" else "expired"
    world.brokers["b0:8080"].well = "unreachable" if ends == "is killed" else "ok"
    world.until(200)
    assert not any(alert == "orphan-bundle" for alert, _ in world.run.firing())
    world.own("b2:8080", path).until(230).back("b0:8080")
    world.brokers["b0:8080"].well = "ok"
    world.until(260)
    assert ("heartbeat-bundle-taken", f"{namespace}/{WHOLE}") in world.run.firing()
    (summary,) = {a.summary for a in world.run.alerts if a.alert == "heartbeat-bundle-taken"}
    assert summary == (
        f"bundle {namespace}/{WHOLE} of {CLUSTER} belongs to b0:8080 alone, but b2:8080 owns it: b0:8080 may fail at "
        "each start until it is unloaded at b2:8080"
    )
    assert world.run.bundles == []
    world.own("b0:8080", path).until(280)
    assert not any(alert == "heartbeat-bundle-taken" for alert, _ in world.run.firing())


@pytest.mark.parametrize("namespace", ["pulsar/system", "t/b0:8080", "pulsar/b1:8080", "public/default"])
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
    run = Run().together(*(session(0, name, "connected", f"0x{name}") for name in ("b0:8080", "b0:8443")))
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


def test_a_branch_that_no_record_can_hold_is_named() -> None:
    run = Run().see(tree(0, name="/namespace/t"), tree(0, name="/namespace/u", outcome="unsupported"))
    assert "below /namespace/u: " in run.alerts[0].summary
