"""Many things at once are said in one."""

from collections import Counter

import pytest

from policies.decisions import Decision
from policies.isolation import policy
from policies.isolation.decisions import BookieQuarantine, Placement, PlacementSummary
from policies.wire import MAX_AUDIT_BYTES, MAX_DECISION_BYTES, audit_event, decision_event
from tests.examples import combined
from tests.policies.isolation.scenario import GROUPS, LONG, NAMESPACES, ON, Run, affinity, bookies, everything, racks

STRANGERS = " ".join(f"bk{n}" for n in range(100, 150))
"""Fifty bookies in no group."""
BASE = "bk1 bk2 bk6 bk7"
MANY = {f"acme/n{n:02}": "default" for n in range(30)}


def names_of(alerts: list[tuple[float, str, str, str]]) -> list[tuple[str, str]]:
    return [(subject, status) for _, subject, status, _ in alerts]


def test_the_one_alert_counts_them_and_names_the_first_ten() -> None:
    run = Run(LONG).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    alert = run.latest("unassigned-bookie")
    assert alert.summary == (
        "50 bookies of c1 take data and are in no group: "
        "bk100, bk101, bk102, bk103, bk104, bk105, bk106, bk107, bk108, bk109 and 40 more"
    )
    assert (alert.labels["count"], alert.labels["first"].split(",")[0]) == ("50", "bk100")


def test_it_is_critical_when_isolated_namespaces_can_use_them() -> None:
    run = Run(LONG).see(*everything(0, f"bk1 {STRANGERS}", GROUPS, {"acme/a": "default"})).until(60)
    alert = run.latest("unassigned-bookie")
    assert (alert.severity, alert.labels["namespaces"]) == ("critical", "acme/a")


def test_who_was_named_before_stays_named_by_its_own_alert() -> None:
    run = Run(LONG).see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES)).until(60)
    run.twice(61, lambda second: bookies(second, f"{BASE} bk11 {STRANGERS}")).until(100)
    assert names_of(run.said("unassigned-bookie")) == [("c1/bk11", "firing"), ("c1", "firing")]
    run.twice(101, lambda second: racks(second, GROUPS | {"new": STRANGERS}))
    assert names_of(run.said("unassigned-bookie"))[2:] == [("c1", "resolved")]


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
    assert [p.candidates for p in run.placements("acme/n00")] == [
        ("bk1", "bk2", "bk3", "bk4"), ("bk1", "bk2", "bk3"),
    ]  # fmt: skip
    assert [(p.decided_at - run.published[0].decided_at).total_seconds() for p in run.placements("acme/n00")] == [
        0, 100,
    ]  # fmt: skip


def test_many_withheld_are_one_decision() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    assert Counter(d.verdict.value for d in run.quarantines()) == {"quarantine": 3, "withhold": 1}
    said = run.quarantines()[-1]
    assert (said.subject, said.count, len(said.bookies)) == ("c1/unassigned-bookies", 47, 10)
    assert said.explanation.startswith("47 bookies are in no group, and an operator must decide: ")
    before = len(run.quarantines())
    run.see(bookies(70, f"{BASE} {STRANGERS}")).until(100)
    assert len(run.quarantines()) == before


def test_the_decision_about_many_is_repeated_when_their_number_has_doubled() -> None:
    run = Run(LONG, ON).see(*everything(0, f"{BASE} {STRANGERS}", GROUPS, NAMESPACES)).until(60)
    for second, last in ((70, 240), (90, 247)):
        more = " ".join(f"bk{n}" for n in range(150, last))
        run.twice(second, lambda at_second, more=more: bookies(at_second, f"{BASE} {STRANGERS} {more}"))  # type: ignore[misc]
    assert [each.count for each in run.until(200).quarantines() if each.count > 1] == [47, 137]


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
    assert run.state is not None
    assert run.state.orders == ()


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
