"""What is warned of, from the facts that remain after a step."""

from typing import Any

import pytest
from msgspec.structs import replace

from policies.alerts import AlertBook, AlertEntry
from policies.observations import Observation
from policies.sessions.alerts import AlertContext, conditions
from tests.policies.sessions.course import CLUSTER, Run, health, owned, registered, session, unread, unregistered
from tests.policies.sessions.joined import after, connected, expired, joined

BUNDLE_NAME = "t/ns/0x00000000_0x40000000"


def warned(
    *readings: Observation, until: float, book: AlertBook | None = None, **block: Any
) -> dict[tuple[str, str], str]:
    """(alert, subject without its cluster) to its summary."""
    context = AlertContext(CLUSTER, after(joined(*readings, until=until, **block)), book or AlertBook())
    return {(c.alert, c.subject.removeprefix(f"{CLUSTER}/")): c.summary for c in conditions(context)}


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


def test_a_long_list_of_members_is_cut() -> None:
    names = [f"b{n}" for n in range(1, 9)]
    (summary,) = warned(*connected(*names), *expired(*names, seconds=10), until=12).values()
    assert summary.endswith("b1, b2, b3, b4, b5 and 3 more")


def test_two_claims_name_both_and_whose_session_the_node_is_of() -> None:
    lost = [*connected("b1", "b2"), owned(1, "b1", "0xb1"), *expired("b1", seconds=10), owned(12, "b2", "0xb2")]
    assert warned(*lost, until=12)["double-ownership", BUNDLE_NAME] == (
        f"bundle {BUNDLE_NAME} of messaging is claimed by b1 and b2; its node belongs to the session 0xb2"
    )


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


def test_what_was_said_as_unknown_is_not_said_so_twice() -> None:
    entry = said("zombie-member", "b1").entries[0]
    once = entry.as_unknown()
    again = replace(entry, summary=once.summary, is_unknown=True).as_unknown()
    assert once.summary == again.summary


def test_what_was_never_said_does_not_stay() -> None:
    entry = AlertEntry("session-lost", f"{CLUSTER}/b1", "warning", "as_it_was", "as it was", {}, 1, None)
    assert ("session-lost", "b1") not in warned(*connected("b1"), until=305, book=AlertBook((entry,)))


def test_an_exhausted_member_that_was_told_to_go_down_is_no_alert() -> None:
    late = [*connected("b1", "b2", "b3"), *expired("b1", seconds=10)]
    late += [*expired("b1", seconds=306), *expired("b1", seconds=311)]
    late += connected("b2", "b3", seconds=311)
    assert ("reconnect-exhausted", "b1") not in warned(*late, until=311)


def test_a_loss_is_no_loss_of_the_fleet_because_the_others_are_not_read_any_more() -> None:
    silent = [*connected("b1", "b2", "b3", "b4", "b5"), *expired("b1", "b2", seconds=200)]
    assert ("session-fleet-wide", "broker") not in warned(*silent, until=450, fleet_ratio=0.9)
    assert ("session-fleet-wide", "broker") in warned(*silent, until=205, fleet_ratio=0.4)
    assert ("session-fleet-wide", "broker") not in warned(*silent, until=450, fleet_ratio=0.4), "it begins on news"
    book = said("session-fleet-wide", "broker")
    assert ("session-fleet-wide", "broker") in warned(*silent, until=450, book=book, fleet_ratio=0.4)
