"""What is warned of, from the facts that remain after a step."""

from collections import Counter
from typing import Any

import pytest

from policies.alerts import AlertBook, AlertEntry, Sender
from policies.book import Step, list_conditions
from policies.decisions import Alert
from policies.observations import Observation
from policies.sessions.alerts import Alerts
from policies.sessions.registration import KIND
from tests.policies.sessions.course import CLUSTER, Run, health, node, registered, session, tree, unread, unregistered
from tests.policies.sessions.joined import after, connected, expired, joined


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
    unknown = warned(*silent, until=705, book=said("session-lost", "b2"))["session-lost", "b2"]
    assert unknown == "unknown, as it is not read now; it was: as it was"


def test_a_zombie_stays_one_until_a_reading_says_that_it_is_none() -> None:
    book = said("zombie-member", "b1")
    assert ("zombie-member", "b1") in warned(*connected("b1"), unread(5), until=6, book=book)
    assert ("zombie-member", "b1") in warned(*connected("b1"), until=6, book=book)
    for reading in (registered(5, "b1", "0xb1"), session(5, "b1", "closed", "0xb1"), health(5, "b1", healthy=False)):
        assert ("zombie-member", "b1") not in warned(*connected("b1"), reading, until=6, book=book)


def test_an_exhausted_member_that_was_told_to_go_down_is_no_alert() -> None:
    late = [*connected("b1", "b2", "b3"), *(each for s in (10, 306, 311) for each in expired("b1", seconds=s))]
    late += connected("b2", "b3", seconds=311)
    assert ("reconnect-exhausted", "b1") not in warned(*late, until=311)


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
