"""What is published of namespaces and quarantines, when, and under which number; and many things at once in one."""

from collections import Counter
from itertools import pairwise

import pytest

from policies.decisions import Decision, Mode
from policies.isolation import policy
from policies.isolation.decisions import QUARANTINE_GROUP, BookieQuarantine, Placement, PlacementSummary
from policies.observations import Outcome
from policies.units import to_millis
from policies.wire import MAX_AUDIT_BYTES, MAX_DECISION_BYTES, audit_event, decision_event
from tests.examples import combined
from tests.policies.isolation.scenario import (
    BASE,
    GROUPS,
    LONG,
    NAMESPACES,
    ON,
    Run,
    affinity,
    at,
    bookies,
    everything,
    joined,
    racks,
)


def test_nothing_is_decided_before_all_three_were_read() -> None:
    run = Run(LONG).see(bookies(0, "bk1 bk2")).see(affinity(1, {"acme/a": "default"})).until(60)
    assert run.published == []
    run.see(racks(61, GROUPS))
    assert run.placement("acme/a").verdict == "isolated"


def test_a_failed_reading_keeps_the_last_one() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", outcome=Outcome.TIMEOUT)).see(racks(20, None, outcome=Outcome.UNREACHABLE))
    run.see(affinity(30, {}, outcome=Outcome.ERROR)).until(299)
    assert len(run.placements()) == 1
    assert ("bookies-unread", "c1") not in run.firing()


def test_an_older_reading_changes_nothing() -> None:
    run = Run().see(*everything(10, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    before = run.state
    run.see(bookies(5, "bk1"), racks(5, {}), affinity(5, {}), seconds=11)
    assert run.state == before


def test_nothing_new_is_decided_on_what_is_unread() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(racks(200, GROUPS), affinity(201, {"acme/a": "default"})).until(310)
    count = len(run.placements())
    run.see(affinity(320, {"acme/a": "shared", "acme/c": "shared"}))
    assert len(run.placements()) == count
    run.see(bookies(330, "bk1 bk2"))
    assert run.placement("acme/c").verdict == "infeasible"


def test_it_is_repeated_before_it_runs_out_until_it_is_carried_out() -> None:
    run = joined(validity="100s")
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[0] for v in run.verdicts()] == [10, 60, 110, 160]
    said = run.quarantines()
    assert all(later.decided_at < before.valid_until for before, later in pairwise(said))
    assert [d.sequence == to_millis(d.decided_at) for d in said] == [True, False, False, False], "the first is the time"
    run.see(racks(200, GROUPS | {QUARANTINE_GROUP: "bk11"})).see(bookies(205, f"{BASE} bk11")).until(280)
    assert len(run.verdicts()) == 4


def test_what_is_withheld_is_not_repeated() -> None:
    run = joined(validity="100s", max_quarantined=0)
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(10, "bk11", "withhold")]


def test_who_needs_what_is_withheld_is_named_as_it_is_now() -> None:
    run = Run(ON, LONG, grace="0s").see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, {"acme/a": "default"}))
    run.see(affinity(10, {"acme/b": "default"})).see(affinity(20, {"acme/b": "default", "acme/c": "shared"}))
    assert {verdict[1:] for verdict in run.verdicts()} == {("bk11", "withhold", "would_be_infeasible")}
    assert [v[0] for v in run.verdicts()] == [0, 20], "a second reading confirmed that acme/a is gone"
    assert "without it acme/b could not place data" in run.quarantines()[-1].explanation


def test_a_placement_is_published_again_only_when_it_changes() -> None:
    run = Run().see(*everything(0, "bk1 bk2 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    assert [p.namespace for p in run.placements()] == ["acme/a", "acme/b"]
    run.see(*everything(10, "bk1 bk2 bk6", GROUPS, {"acme/b": "shared", "acme/a": "default"})).until(200)
    assert len(run.placements()) == 2
    run.see(bookies(201, "bk1 bk2 bk6 bk7"))
    assert [p.namespace for p in run.placements()][2:] == ["acme/b"]
    assert run.placement("acme/b").verdict == "isolated"


def test_a_namespace_that_leaves_is_named_a_last_time_and_forgotten() -> None:
    run = Run().see(*everything(0, "bk1 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    run.twice(10, lambda second: affinity(second, {"acme/b": "shared"}))
    last = run.placement("acme/a")
    assert (last.verdict, last.reason, last.decided_at) == ("unconstrained", "no_affinity", at(20))
    run.see(bookies(30, "bk1 bk2"))
    assert run.placement("acme/a") == last
    assert ("placement-infeasible", "c1/acme/a") not in run.firing()


def test_a_namespace_that_changes_its_groups_without_effect_is_not_news() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(affinity(10, {"acme/a": "default/nowhere"}))
    assert len(run.placements()) == 1


def test_other_settings_are_published() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.with_settings(mode="shadow").see(bookies(10, "bk1 bk2"))
    assert run.placement("acme/a").mode is Mode.SHADOW
    run.with_settings(mode="shadow", rules="strict").see(bookies(20, "bk1 bk2"))
    assert run.placement("acme/a").rules == "strict"
    assert len(run.placements()) == 3


def test_nothing_in_force_runs_out_when_readings_are_to_count_for_longer() -> None:
    block = {"quarantine": "on", "grace": "0s"}
    run = Run(block, validity="60s", alert_repeat="1m")
    for second in range(0, 3600, 30):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, {"acme/a": "default"}))
        run.with_settings(block, validity="10m", alert_repeat="4h")
    overdue = [alert for alert in run.alerts if alert.alert == "unassigned-bookie"]
    for said in (run.placements("acme/a"), run.quarantines("bk11"), overdue):
        assert len(said) > 1
        assert all(later.decided_at < (earlier.expires_at or at(0)) for earlier, later in pairwise(said))


STRANGERS = " ".join(f"bk{n}" for n in range(100, 150))
"""Fifty bookies in no group."""
MANY = {f"acme/n{n:02}": "default" for n in range(30)}


def test_the_one_alert_counts_them_and_names_the_first_ten() -> None:
    run = Run(LONG).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    alert = run.latest("unassigned-bookie")
    assert alert.summary == (
        "50 bookies of c1 take data, and no operator has put them into a group: "
        "bk100, bk101, bk102, bk103, bk104, bk105, bk106, bk107, bk108, bk109 and 40 more"
    )
    assert (alert.labels["count"], alert.labels["first"].split(",")[0]) == ("50", "bk100")


def test_it_is_critical_when_isolated_namespaces_can_use_them() -> None:
    run = Run(LONG).see(*everything(0, f"bk1 {STRANGERS}", GROUPS, {"acme/a": "default"})).until(60)
    alert = run.latest("unassigned-bookie")
    assert (alert.severity, alert.labels["namespaces"]) == ("critical", "acme/a")


def test_a_fleet_that_is_gone_is_one_alert_of_each_kind() -> None:
    members = " ".join(f"bk{n}" for n in range(60))
    run = Run(LONG).see(*everything(0, members, {"default": members}, MANY)).until(5)
    run.see(bookies(10, "")).see(bookies(20, "")).until(90)
    assert Counter(a.alert for a in run.alerts if a.status == "firing") == {
        "bookies-unconfirmed": 1, "placement-infeasible": 1, "group-member-missing": 1,
    }  # fmt: skip
    assert {subject for _, subject in run.firing()} == {"c1"}


def test_where_the_verdict_stays_a_mass_change_is_one_summary_and_where_it_does_not_each_is_said() -> None:
    members = "bk1 bk2 bk3 bk4"
    run = Run(LONG).see(*everything(0, members, {"default": members}, MANY))
    assert len(run.placements()) == len(MANY)
    before = len(run.published)
    run.twice(10, lambda second: bookies(second, "bk1 bk2 bk3"))
    [said] = run.published[before:]
    assert isinstance(said, PlacementSummary)
    assert (said.subject, said.namespaces_by_verdict, said.changed_count) == ("c1", {"isolated": 30}, 30)
    assert said.changed == tuple(sorted(MANY)[:10])
    assert said.explanation.startswith("Namespaces of c1: 30 isolated; 30 changed: acme/n00, ")
    run.see(bookies(25, "bk1 bk2 bk3"))
    assert [d for d in run.published[before + 1 :] if not hasattr(d, "alert")] == []
    run.see(bookies(30, "bk1 bk2")).see(bookies(40, "bk1 bk2")).twice(50, lambda second: bookies(second, "bk1"))
    assert len(run.placements()) == 2 * len(MANY)
    assert {run.placement(name).verdict for name in MANY} == {"infeasible"}


def test_where_every_namespace_has_left_a_summary_counts_none() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2", {"default": "bk1 bk2"}, MANY))
    run.see(affinity(10, {})).see(affinity(20, {}))
    (said,) = [d for d in run.published if isinstance(d, PlacementSummary)][-1:]
    assert said.explanation.startswith("Namespaces of c1: none with affinity; 30 changed: acme/n00, ")


def test_what_a_summary_alone_told_of_is_repeated_when_that_is_due() -> None:
    members = "bk1 bk2 bk3 bk4"
    run = Run(validity="100s").see(*everything(0, members, {"default": members}, MANY))
    for second in range(20, 120, 20):
        run.see(*everything(second, "bk1 bk2 bk3", {"default": members}, MANY))
    run.until(119)
    told = run.placements("acme/n00")
    assert [p.candidates for p in told] == [("bk1", "bk2", "bk3", "bk4"), ("bk1", "bk2", "bk3")]
    assert [p.decided_at for p in told] == [at(0), at(100)]


def test_many_withheld_are_one_decision() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    assert Counter(d.verdict.value for d in run.quarantines()) == {"quarantine": 3, "withhold": 1}
    said = run.quarantines()[-1]
    assert (said.subject, said.count, len(said.bookies)) == ("c1/unassigned-bookies", 47, 10)
    assert said.explanation.startswith("47 bookies are in no group, and an operator must decide: ")
    before = len(run.quarantines())
    run.see(bookies(70, f"{BASE} {STRANGERS}")).until(100)
    assert len(run.quarantines()) == before


def test_ten_of_a_kind_are_not_many() -> None:
    ten = {f"acme/n{n}": "default" for n in range(10)}
    strangers = " ".join(STRANGERS.split()[:10])
    run = Run(LONG, ON, max_quarantined=0).see(*everything(0, f"{BASE} {strangers}", GROUPS, ten)).until(60)
    assert Counter(type(d) for d in run.published if d.topic == "decided.isolation") == {
        Placement: 10, BookieQuarantine: 10,
    }  # fmt: skip


def test_the_decision_about_many_is_repeated_when_their_number_has_doubled() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    for second, last in ((70, 196), (90, 197)):
        more = " ".join(f"bk{n}" for n in range(150, last))
        run.twice(second, lambda at_second, more=more: bookies(at_second, f"{BASE} {STRANGERS} {more}"))  # type: ignore[misc]
    assert [each.count for each in run.until(200).quarantines() if each.count > 1] == [47, 94]


def test_silence_ends_no_decision_about_many() -> None:
    run = Run(ON, validity="100s").see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(300)
    assert "lift" not in {d.verdict.value for d in run.quarantines()}


def test_as_many_of_them_as_are_assigned_the_next_follow_and_the_last_stand_alone() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    assigned = " ".join(STRANGERS.split()[:42])
    before = len(run.quarantines())
    run.twice(70, lambda second: racks(second, GROUPS | {"new": assigned}))
    said = [(d.subject, d.verdict.value, d.reason.value) for d in run.quarantines()[before:]]
    assert ("c1/unassigned-bookies", "lift", "fewer") in said
    assert Counter(verdict for _, verdict, _ in said) == {"lift": 4, "quarantine": 3, "withhold": 5}


def test_switched_off_the_one_decision_is_lifted_too() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    run.with_settings(LONG).see(bookies(70, f"{BASE} {STRANGERS}"))
    assert run.quarantines("bk103")[-1].subject == "c1/unassigned-bookies"
    assert (run.quarantines("bk103")[-1].verdict, run.quarantines("bk103")[-1].reason) == ("lift", "switched_off")
    assert run.known.orders == ()


@pytest.mark.parametrize(("letter", "length"), combined(["b", "\N{SNOWMAN}", "\x01"], [1, 250], one_of=3))
def test_no_record_is_too_large_for_its_topic_however_many_bookies_there_are(letter: str, length: int) -> None:
    strangers = [letter * length + f"{n:04}" for n in range(2_000)]
    names: dict[str, str] = {"acme/a": "default", "acme/b": "default"}
    said: list[Decision] = []
    for groups in (GROUPS, {}):
        run = Run(LONG, ON, ensemble_size=3).see(*everything(0, " ".join(strangers), groups, names)).until(600)
        said += run.published
    assert {type(d) for d in said} >= {Placement, BookieQuarantine}
    assert all(len(decision_event(decision)) <= MAX_DECISION_BYTES for decision in said)
    assert all(len(audit_event(decision)) <= MAX_AUDIT_BYTES for decision in said)
    placement = next(d for d in said if isinstance(d, Placement))
    assert placement.candidate_count == placement.leak_count == 2_000
    assert 100 <= len(placement.candidates) <= 1_000


def test_placements_of_many_namespaces_are_spread_over_steps_and_each_is_published_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "MOST_STEP_BYTES", 50_000)
    run = Run(LONG).see(*everything(0, BASE, GROUPS, MANY)).until(60)
    assert max(Counter(each.decided_at for each in run.placements()).values()) <= 12
    assert Counter(each.namespace for each in run.placements()) == dict.fromkeys(MANY, 1)
    before = {run.placement(namespace).verdict for namespace in MANY}
    run.twice(100, lambda second: racks(second, {**GROUPS, "default": "bk1"})).until(200)
    after = {run.placement(namespace).verdict for namespace in MANY}
    assert (len(before), len(after), before & after) == (1, 1, set())
