"""A fleet in trouble is a handful of alerts; a critical one begins on a fresh reading only."""

from collections import Counter

from policies.decisions import Alert
from policies.observations import Observation
from tests.policies.sessions.course import Run, health, node, session, tree, unregistered

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


def test_one_after_the_other_they_are_ten_alerts_and_one_that_the_others_join() -> None:
    run = Run(zombie_after="1h").together(*[session(0, m, "connected", f"0x{m}") for m in FLEET])
    run.together(tree(5, name=BROKERS)).feed([health(10 + n / 100, m) for n, m in enumerate(FLEET[:80])])
    records = firing(run)["not-registered", "warning"]
    assert 11 <= records <= 10 + 8, "the one alert is repeated when its count doubles"
    assert len({a.alert_id for a in run.alerts}) == 11


def registered_fleet(seconds: float, *members: str) -> list[Observation]:
    nodes = [node(m, f"0x{m}", f"{BROKERS}/{m}") for m in members]
    return [tree(seconds, *nodes, name=BROKERS), *(health(seconds + 0.1, m) for m in FLEET)]


def test_the_one_alert_ends_when_few_are_left_and_these_are_named() -> None:
    run = Run(zombie_after="1h").together(*[session(0, m, "connected", f"0x{m}") for m in FLEET])
    run.together(*unregistered_fleet(5, *FLEET)).together(*registered_fleet(15, *FLEET[3:]))
    assert run.firing() == {("not-registered", name) for name in FLEET[:3]}
    assert run.together(*registered_fleet(25, *FLEET)).firing() == set()


def test_a_gathered_alert_does_not_end_because_readings_do() -> None:
    run = Run(zombie_after="1m").together(*[session(0, m, "connected", f"0x{m}") for m in FLEET])
    for second in range(5, 100, 10):
        run.together(*unregistered_fleet(second, *FLEET))
    run.until(4000)
    assert {("zombie-member", "messaging"), ("not-registered", "messaging")} <= run.firing()
    last = [a for a in run.alerts if a.alert == "zombie-member"][-1]
    assert last.summary.startswith("unknown")


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


def test_no_critical_alert_begins_on_readings_four_minutes_old() -> None:
    run = Run(zombie_after="4m").together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2")])
    run.see(unregistered(1, "b1"), health(2, "b1"), unregistered(11, "b1"), health(12, "b1")).until(290)
    assert critical(run) == []
    run.see(unregistered(291, "b1"), health(292, "b1"))
    assert critical(run) == [], "one fresh reading is not two in a row"
    run.see(unregistered(296, "b1"), health(297, "b1"))
    assert [a.alert for a in critical(run)] == ["zombie-member"]


def test_two_claims_are_critical_only_on_a_fresh_reading_of_the_node() -> None:
    run = Run().together(*[session(0, m, "connected", f"0x{m}") for m in ("b1", "b2")])
    run.together(tree(1, *bundles(1, "b1"))).together(tree(6, *bundles(1, "b2")))
    late = [session(second, "b2", "connected", "0xb2") for second in (60, 120)]
    run.together(*late).together(session(125, "b1", "expired", "0xb1"))
    assert critical(run) == []
