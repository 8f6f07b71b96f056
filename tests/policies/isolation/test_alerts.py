"""What is warned of, when it begins and when it ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.observations import Observation, Outcome
from tests.policies.isolation import scenario
from tests.policies.isolation.scenario import LONG, Run, affinity, bookies, everything, racks, to

GROUPS = {"default": "bk1 bk2 bk3", "shared": "bk6 bk7 bk8"}
ALL = "bk1 bk2 bk3 bk6 bk7 bk8"
BK11 = "c1/bk11"


def joined(**settings: object) -> Run:
    """bk11 was there from the start, in no group; nobody can place data on it."""
    run = Run(LONG, settings)
    return run.see(*everything(0, f"{ALL} bk11", GROUPS, {"acme/a": "default"}))


NOT_BK1 = "bk2 bk3 bk6 bk7 bk8"
COURSES: Mapping[str, tuple[Sequence[Observation], float, str, str]] = {
    "a bookie in no group is named after its grace": ([], 60, "unassigned-bookie", "10 firing"),
    "until it gets a group": ([racks(30, GROUPS | {"new": "bk11"})], 60, "unassigned-bookie", "10 firing, 30 resolved"),
    "a missed reading does not end it": (
        [bookies(20, ALL), bookies(25, f"{ALL} bk11"), bookies(40, ALL)], 49, "unassigned-bookie", "10 firing",
    ),
    "two readings show that it is gone": (
        [bookies(20, ALL), bookies(30, ALL)], 600, "unassigned-bookie", "10 firing, 30 resolved",
    ),
    "it is not named first while a reading lacks it": ([bookies(5, ALL)], 100, "unassigned-bookie", ""),
    "it is in both lists, then in neither, then read-only": (
        [bookies(20, f"{ALL} bk11", "bk11"), bookies(21, ALL), bookies(22, ALL, "bk11"), bookies(32, ALL, "bk11")], 60,
        "unassigned-bookie", "10 firing, 32 resolved",
    ),
    "a read-only one is good to know": (
        [bookies(20, ALL, "bk11"), bookies(30, ALL, "bk11")], 60, "unassigned-bookie-idle", "30 firing",
    ),
    "it joins again": ([bookies(20, f"{ALL} bk11#2")], 100, "unassigned-bookie", "10 firing"),
    "a member is away for less than a minute": ([bookies(20, NOT_BK1, known="bk1")], 79, "group-member-missing", ""),
    "a member is away for a minute": (
        [bookies(20, NOT_BK1, known="bk1")], 80, "group-member-missing", "80 firing",
    ),
    "a member is back": (
        [bookies(20, NOT_BK1, known="bk1"), bookies(90, ALL)], 90, "group-member-missing", "80 firing, 90 resolved",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("readings", "until", "alert", "said"), COURSES.values(), ids=COURSES)
def test_when_an_alert_begins_and_ends(readings: Sequence[Observation], until: float, alert: str, said: str) -> None:
    run = joined().feed(readings).until(until)
    assert ", ".join(f"{second:g} {status}" for second, _, status, _ in run.said(alert)) == said


@pytest.mark.parametrize("groups", [{}, None, {"default": ""}], ids=["no groups", "no znode", "nobody in them"])
def test_a_cluster_that_uses_no_groups_gets_one_note(groups: dict[str, str] | None) -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2 bk3 bk4", groups, {"acme/a": "*"}))
    run.see(bookies(1, "bk1 bk2 bk3", "bk4")).until(600)
    assert run.firing() == {("no-bookie-groups", "c1"): "info"}
    run.twice(601, lambda second: racks(second, GROUPS | {"default": "bk1"}))
    assert ("no-bookie-groups", "c1") not in run.firing()


def test_where_namespaces_ask_for_groups_that_there_are_not_the_note_is_critical() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2", {}, {"acme/a": "default", "acme/b": "", "acme/c": "/shared"}))
    assert run.firing() == {("no-bookie-groups", "c1"): "critical"}
    assert run.latest("no-bookie-groups").labels["namespaces"] == "acme/a,acme/c"


def test_without_a_reading_of_groups_nobody_is_named() -> None:
    run = Run(LONG).see(bookies(0, "bk1"), affinity(0, {})).see(racks(1, None, outcome=Outcome.ERROR)).until(600)
    assert run.said("unassigned-bookie") == []
    run.see(racks(601, GROUPS)).until(700)
    assert run.said("unassigned-bookie") == []


def test_the_grace_runs_from_the_first_knowledge_of_groups() -> None:
    run = Run(LONG).see(bookies(0, "bk11")).see(racks(30, GROUPS)).until(60)
    assert [s[0] for s in run.said("unassigned-bookie")] == [40]


def test_it_is_critical_while_isolated_namespaces_can_place_data_on_it() -> None:
    names: dict[str, NamespaceAffinity | str] = {f"acme/n{i}": "default" for i in range(7)}
    names |= {"acme/free": to(), "acme/any": to("*"), "b/c": "shared"}
    run = Run(LONG).see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, names)).until(10)
    alert = run.latest("unassigned-bookie")
    assert alert.severity == "critical"
    assert alert.summary.endswith("7 isolated namespaces can place data on it now: "
                                  "acme/n0, acme/n1, acme/n2, acme/n3, acme/n4 and 2 more")  # fmt: skip
    assert alert.labels["namespaces"] == "acme/n0,acme/n1,acme/n2,acme/n3,acme/n4"
    assert alert.labels["namespace_count"] == "7"
    run.see(bookies(20, "bk1 bk2 bk6 bk7 bk11"))
    assert run.said("unassigned-bookie")[-1] == (20, BK11, "firing", "warning")


@pytest.mark.parametrize(("read_only", "known", "reason"), [("bk12", "", "read_only"), ("", "bk12", "offline")])
def test_idle_bookies_without_group_are_good_to_know(read_only: str, known: str, reason: str) -> None:
    run = Run(LONG).see(bookies(0, ALL, read_only, known), racks(0, GROUPS)).until(20)
    assert run.said("unassigned-bookie") == []
    assert run.said("unassigned-bookie-idle") == [(10, "c1/bk12", "firing", "info")]
    assert run.latest("unassigned-bookie-idle").reason == reason


def test_a_bookie_in_quarantine_stays_named_until_somebody_assigns_it() -> None:
    groups = {"default": "bk1 bk2", "headgate-quarantine": "bk11"}
    run = Run(LONG).see(*everything(0, "bk1 bk11", groups, {"acme/a": "default"})).until(20)
    assert run.said("unassigned-bookie") == [(10, BK11, "firing", "warning")]
    assert run.latest("unassigned-bookie").reason == "quarantined"
    run.twice(30, lambda second: racks(second, groups | {"default": "bk1 bk2 bk11"}))
    assert run.said("unassigned-bookie")[-1] == (40, BK11, "resolved", "warning")


def test_an_idle_bookie_in_quarantine_is_not_said_to_be_in_no_group() -> None:
    run = joined().see(racks(20, GROUPS | {"headgate-quarantine": "bk11"}))
    run.twice(30, lambda second: bookies(second, ALL, "bk11")).until(60)
    idle = run.latest("unassigned-bookie-idle").summary
    assert idle == "bookie bk11 of c1 is read-only and in quarantine until an operator puts it into a group"


def test_one_reading_without_a_member_raises_nothing_critical_and_a_second_one_does() -> None:
    run = joined().see(bookies(20, "bk1 bk6 bk7 bk8 bk11"))
    assert run.placement("acme/a").verdict == "isolated"
    assert run.firing() == {("unassigned-bookie", BK11): "warning"}
    run.see(bookies(25, f"{ALL} bk11")).see(bookies(40, "bk1 bk6 bk7 bk8 bk11")).until(49)
    assert run.firing() == {("unassigned-bookie", BK11): "warning"}
    run.see(bookies(50, "bk1 bk6 bk7 bk8 bk11"))
    assert run.placement("acme/a").verdict == "leaks"
    assert run.said("isolation-leak") == [(50, "c1/acme/a", "firing", "critical")]
    assert run.firing()[("unassigned-bookie", BK11)] == "critical"


@pytest.mark.parametrize(
    ("reading", "summary"),
    [
        (bookies(20, ""), "7 registered bookies (bk1, bk11, bk2, bk3, bk6 and 2 more)"),
        (bookies(20, "bk1 bk2", "bk3"), "4 registered bookies (bk11, bk6, bk7, bk8)"),
        (racks(20, None), "6 grouped bookies (bk1, bk2, bk3, bk6, bk7 and 1 more)"),
        (racks(20, {}), "6 grouped bookies (bk1, bk2, bk3, bk6, bk7 and 1 more)"),
        (racks(20, {"default": "bk1", "shared": "bk6"}), "4 grouped bookies (bk2, bk3, bk7, bk8)"),
    ],
)
def test_of_what_vanished_in_one_reading_one_alert_is_said_and_nothing_else(reading: Any, summary: str) -> None:
    run = joined().until(15)
    placements = len(run.placements())
    run.see(reading).until(29)
    assert run.firing() == {("unassigned-bookie", BK11): "warning", ("bookies-unconfirmed", "c1"): "warning"}
    assert summary in run.latest("bookies-unconfirmed").summary
    assert len(run.placements()) == placements
    for second in (30, 40):
        assert ("bookies-unconfirmed", "c1") in run.firing(), "two readings in a row end the doubt"
        run.see(*everything(second, f"{ALL} bk11", GROUPS, {"acme/a": "default"}))
    assert run.firing() == {("unassigned-bookie", BK11): "warning"}
    assert len(run.placements()) == placements


@pytest.mark.parametrize(
    "reading", [bookies(20, "bk1 bk2 bk6 bk11"), racks(20, {"default": "bk1 bk2 bk3", "shared": "bk6 bk7"})]
)
def test_half_of_it_may_go_at_once(reading: Any) -> None:
    run = joined().see(reading)
    assert run.said("bookies-unconfirmed") == []


def test_the_first_bookies_of_a_cluster_contradict_nothing_nor_do_cookies_that_vanish() -> None:
    run = Run(LONG).see(*everything(0, "", {}, {})).twice(10, lambda second: bookies(second, ALL, known=ALL))
    run.see(bookies(30, ALL)).until(39)
    assert run.said("bookies-unconfirmed") == []


def test_a_member_that_never_joined_is_missed_as_such() -> None:
    run = joined().see(racks(20, GROUPS | {"new": "bk99"})).until(90)
    missed = run.latest("group-member-missing")
    assert (missed.subject, missed.reason) == ("c1/bk99", "never_registered")
    assert missed.summary == "bookie bk99 of c1 is in group new, put there in advance: it has never registered"
    run.see(bookies(100, f"{ALL} bk11 bk99")).see(bookies(301, f"{ALL} bk11")).see(bookies(311, f"{ALL} bk11")).until(
        400
    )
    assert run.latest("group-member-missing").reason == "not_registered"


def test_a_member_with_a_cookie_has_been_there_before() -> None:
    run = Run(LONG).see(*everything(0, ALL, GROUPS | {"new": "bk99"}, {})).see(bookies(1, ALL, known="bk99"))
    run.until(100)
    assert run.latest("group-member-missing").reason == "not_registered"


def test_it_is_overdue_after_a_minute_and_until_it_is_carried_out() -> None:
    run = scenario.joined().until(69)
    assert run.said("quarantine-overdue") == []
    run.until(70).see(racks(80, scenario.GROUPS | {QUARANTINE_GROUP: "bk11"}))
    said = [(second, status) for second, _, status, _ in run.said("quarantine-overdue")]
    assert said == [(70, "firing"), (80, "resolved")]


def test_what_takes_no_data_is_not_overdue_and_has_its_minute_when_it_is_back() -> None:
    run = scenario.joined().twice(20, lambda second: bookies(second, scenario.BASE, "bk11")).until(600)
    assert run.said("quarantine-overdue") == []
    run.twice(610, lambda second: bookies(second, f"{scenario.BASE} bk11")).until(700)
    assert run.said("quarantine-overdue") == [(670, "c1/bk11", "firing", "warning")]


def test_in_shadow_mode_nothing_is_overdue_whenever_it_was_ordered() -> None:
    run = scenario.joined().until(80).with_settings(LONG, scenario.ON, mode="shadow")
    run.twice(90, lambda second: bookies(second, scenario.BASE, "bk11"))
    assert [s[0::2] for s in run.said("quarantine-overdue")] == [(70, "firing"), (90, "resolved")]


def test_alerts_of_a_namespace_follow_its_verdict() -> None:
    subject = "c1/acme/a"
    run = Run(LONG).see(*everything(0, "bk1 bk2 bk3 bk11", GROUPS, {"acme/a": "default"}))
    assert not run.firing()
    run.see(bookies(1, "bk1 bk2 bk11")).see(bookies(11, "bk1 bk2 bk11"))
    assert run.firing() == {("isolation-headroom", subject): "warning", ("unassigned-bookie", BK11): "warning"}
    run.see(bookies(12, "bk1 bk11 bk12")).see(bookies(22, "bk1 bk11 bk12"))
    assert run.firing()[("isolation-leak", subject)] == "critical"
    assert ("isolation-headroom", subject) not in run.firing()
    run.see(bookies(23, "bk11 bk12")).see(bookies(24, "bk11")).see(bookies(34, "bk11"))
    assert run.firing()[("placement-infeasible", subject)] == "critical"
    assert ("isolation-leak", subject) not in run.firing()
    run.twice(35, lambda second: bookies(second, "bk1 bk2 bk3 bk11"))
    assert not {alert for alert, about in run.firing() if about == subject}


def test_a_leak_that_one_more_loss_would_end_is_short_of_headroom_too() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk11", GROUPS, {"acme/a": "default"}))
    assert {alert for alert, _ in run.firing()} == {"isolation-leak", "isolation-headroom"}


def test_where_nothing_is_excluded_headroom_is_nobody_s_concern() -> None:
    run = Run(LONG, grace="1h").see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "*"}))
    assert run.placement("acme/a").headroom == 1
    assert run.firing() == {}


READINGS = ("bookies", "racks", "affinity")


@pytest.mark.parametrize("unread", READINGS)
def test_a_reading_that_fails_for_its_validity_is_named(unread: str) -> None:
    run = Run().see(*everything(0, ALL, GROUPS, {"acme/a": "default"}))
    for second in range(60, 481, 60):
        failed = {"outcome": Outcome.TIMEOUT}
        at_bookies, at_racks, at_affinity = (failed if name == unread else {} for name in READINGS)
        run.see(bookies(second, ALL, **at_bookies), racks(second, GROUPS, **at_racks))
        run.see(affinity(second, {"acme/a": "default"}, **at_affinity))
    assert run.said("bookies-unread") == [(300, "c1", "firing", "warning")]
    alert = run.latest("bookies-unread")
    assert (alert.labels["readings"], alert.reason) == (unread, "timeout")
    run.see(*everything(500, ALL, GROUPS, {"acme/a": "default"}))
    assert run.said("bookies-unread")[-1] == (500, "c1", "resolved", "warning")


def test_silence_is_named_as_well() -> None:
    run = Run().see(*everything(0, ALL, GROUPS, {})).until(400)
    alert = run.latest("bookies-unread")
    assert (alert.labels["readings"], alert.reason) == (",".join(READINGS), "silence")


def test_a_reading_that_never_came_is_named_after_the_validity() -> None:
    run = Run().see(bookies(0, ALL), racks(0, GROUPS)).see(bookies(200, ALL), racks(200, GROUPS)).until(299)
    assert run.said("bookies-unread") == []
    assert run.until(300).latest("bookies-unread").labels["readings"] == "affinity"


def test_absence_of_data_neither_raises_nor_resolves() -> None:
    run = Run(member_missing_after="400s")
    run.see(*everything(0, "bk1 bk6 bk11", GROUPS, {"acme/a": "default"})).until(250)
    before = run.firing()
    assert {"unassigned-bookie", "isolation-leak"} <= {alert for alert, _ in before}
    run.until(20_000)
    assert run.firing() == {**before, ("bookies-unread", "c1"): "warning"}
    run.see(*everything(20_001, ALL, GROUPS, {"acme/a": "default"})).see(bookies(20_011, ALL))
    assert run.firing() == {}


def test_a_bookie_stays_critical_while_only_the_affinity_is_unread() -> None:
    run = Run().see(*everything(0, "bk1 bk6 bk11", GROUPS, {"acme/a": "default"}))
    for second in range(100, 1000, 100):
        run.see(bookies(second, "bk1 bk6 bk11"), racks(second, GROUPS))
    assert run.said("unassigned-bookie") == [(10, BK11, "firing", "critical")]


def test_what_concerns_namespaces_stays_as_it_is_while_the_affinity_is_unread() -> None:
    run = Run(grace="1h").see(*everything(0, "bk1 bk6 bk7", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    before = run.firing()
    assert ("placement-infeasible", "c1/acme/a") in before
    for second in range(100, 1000, 100):
        run.see(bookies(second, "bk1 bk2 bk3 bk6" if second > 300 else "bk1 bk6 bk7"), racks(second, GROUPS))
    assert run.firing() == {**before, ("bookies-unread", "c1"): "warning"} | _missing("bk7", "bk8")


def _missing(*members: str) -> dict[tuple[str, str], str]:
    return {("group-member-missing", f"c1/{bookie}"): "warning" for bookie in members}


def test_what_waits_for_its_grace_is_not_raised_while_unread() -> None:
    run = Run(alert_grace="2m", validity="1m").see(*everything(0, "bk1 bk11", GROUPS, {"acme/a": "default"}))
    run.until(1000)
    assert {alert for alert, _ in run.firing()} == {"bookies-unread"}
