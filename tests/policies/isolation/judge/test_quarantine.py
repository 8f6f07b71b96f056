"""Which bookies are to be put into quarantine, which guards forbid it, and what ends it."""

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.decisions import Mode
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.observations import Outcome
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


def test_a_bookie_without_group_is_to_be_quarantined_after_its_grace() -> None:
    run = joined().until(60)
    assert run.verdicts() == [(10, "bk11", "quarantine", "unassigned")]
    said = run.quarantines()[0]
    assert (said.subject, said.group, said.rack) == ("c1/bk11", QUARANTINE_GROUP, f"/{QUARANTINE_GROUP}")
    assert (said.session, said.czxid, said.registered_at) == ("0xb", 11, at(0))
    assert said.valid_until == at(10) + run.settings.validity
    assert said.evidence[0] in ("bookies@0", "racks@0")


def test_off_by_default() -> None:
    run = Run(LONG).see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES)).until(600)
    assert run.quarantines() == []


def test_in_shadow_it_is_published_as_such_and_never_overdue() -> None:
    run = joined(mode="shadow").until(600)
    assert [d.mode for d in run.quarantines()] == [Mode.SHADOW]
    assert run.said("quarantine-overdue") == []
    run.with_settings(LONG, ON).see(bookies(601, f"{BASE} bk11"))
    assert [d.mode for d in run.quarantines()] == [Mode.SHADOW, Mode.ACTIVE]


def test_a_bookie_already_in_some_group_is_left_alone() -> None:
    groups = GROUPS | {QUARANTINE_GROUP: "bk11"}
    run = Run(LONG, ON).see(*everything(0, f"{BASE} bk11", groups, NAMESPACES)).until(600)
    assert run.quarantines() == []


def test_at_most_so_many_in_order_of_registration() -> None:
    run = joined("bk14 bk13 bk12 bk11", max_quarantined=2).until(60)
    assert [v[1:] for v in run.verdicts()] == [
        ("bk11", "quarantine", "unassigned"),
        ("bk12", "quarantine", "unassigned"),
        ("bk13", "withhold", "max_quarantined"),
        ("bk14", "withhold", "max_quarantined"),
    ]


def test_those_already_in_quarantine_count() -> None:
    groups = GROUPS | {QUARANTINE_GROUP: "bk90 bk91"}
    run = Run(LONG, ON, max_quarantined=3).see(*everything(0, f"{BASE} bk11 bk12", groups, NAMESPACES)).until(60)
    assert [v[1:3] for v in run.verdicts()] == [("bk11", "quarantine"), ("bk12", "withhold")]


def test_one_that_was_withheld_follows_when_there_is_room() -> None:
    run = joined("bk11 bk12", max_quarantined=1).until(60)
    run.twice(70, lambda second: racks(second, GROUPS | {"default": "bk1 bk2 bk11"}))
    assert [v[1:] for v in run.verdicts()[2:]] == [("bk11", "lift", "assigned"), ("bk12", "quarantine", "unassigned")]


def test_a_newcomer_does_not_take_the_place_of_one_on_its_way() -> None:
    run = joined("bk12", max_quarantined=1).until(60).twice(70, lambda second: bookies(second, f"{BASE} bk11 bk12"))
    assert run.verdicts()[1:] == [(80, "bk11", "withhold", "max_quarantined")]


def test_one_on_its_way_keeps_its_place_while_it_is_read_only() -> None:
    run = joined(max_quarantined=1).until(60).twice(70, lambda second: bookies(second, f"{BASE} bk12", "bk11"))
    assert run.verdicts()[1:] == [(80, "bk12", "withhold", "max_quarantined")]


def test_an_expired_order_on_a_read_only_bookie_keeps_no_place() -> None:
    run = Run(ON, max_quarantined=1).see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES)).until(60)
    for second in (70, 80, 170, 309, 310):
        run.see(bookies(second, f"{BASE} bk12", "bk11"), racks(second, GROUPS), affinity(second, NAMESPACES))
    assert run.verdicts()[1:] == [
        (80, "bk12", "withhold", "max_quarantined"),
        (310, "bk12", "quarantine", "unassigned"),
    ]


def test_a_bookie_that_a_namespace_needs_is_withheld() -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk6 bk7 bk11 bk12", GROUPS, NAMESPACES)).until(60)
    # acme/a has bk1 alone: one of the two must remain.
    assert [v[1:] for v in run.verdicts()] == [
        ("bk11", "quarantine", "unassigned"),
        ("bk12", "withhold", "would_be_infeasible"),
    ]
    assert run.quarantines()[-1].explanation == (
        "Bookie bk12 is in no group, but without it acme/a could not place data: an operator must decide."
    )


def test_who_cannot_place_data_anyway_forbids_nothing() -> None:
    run = Run(LONG, ON, rules="strict").see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, NAMESPACES)).until(60)
    assert [v[1:3] for v in run.verdicts()] == [("bk11", "quarantine")]


@pytest.mark.parametrize(("unaffine", "verdict"), [("any", "quarantine"), ("ungrouped", "withhold")])
def test_unnamed_namespaces_without_affinity_need_ungrouped_bookies(unaffine: str, verdict: str) -> None:
    run = joined("bk11 bk12", unaffine=unaffine).until(60)
    assert [v[2] for v in run.verdicts()] == [verdict, verdict]


def test_a_verdict_not_yet_carried_out_is_taken_back_when_it_would_starve_somebody() -> None:
    run = joined().until(60).twice(70, lambda second: bookies(second, "bk1 bk6 bk7 bk11"))
    assert run.verdicts()[-1] == (80, "bk11", "withhold", "would_be_infeasible")


def test_an_order_that_stands_is_guarded_although_the_grace_is_longer_now() -> None:
    run = joined().until(60).with_settings(LONG, ON, grace="1h")
    run.twice(70, lambda second: bookies(second, "bk1 bk6 bk7 bk11"))
    assert run.verdicts()[-1] == (80, "bk11", "withhold", "would_be_infeasible")


def test_a_newcomer_suffices_to_keep_an_order_that_stands() -> None:
    """It is too new to stand in for a bookie that is not ordered yet."""
    run = joined(max_quarantined=1).until(60).twice(100, lambda second: bookies(second, f"{BASE} bk11 bk12"))
    run.see(affinity(120, {**NAMESPACES, "acme/c": NamespaceAffinity(primary=("default",), ensemble_size=3)}))
    assert run.placement("acme/c").verdict == "leaks"
    assert [verdict for _, bookie, verdict, _ in run.verdicts() if bookie == "bk11"] == ["quarantine"]


@pytest.mark.parametrize("groups", [None, {}], ids=["no znode", "no groups"])
def test_the_first_group_of_a_cluster_is_never_the_quarantine_group(groups: dict[str, str] | None) -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk2 bk3", groups, NAMESPACES)).until(60)
    assert {v[2:] for v in run.verdicts()} == {("withhold", "no_groups")}


def test_without_the_affinity_of_namespaces_nothing_is_put_into_quarantine() -> None:
    run = Run(LONG, ON).see(bookies(0, f"{BASE} bk11"), racks(0, GROUPS)).until(60)
    assert run.quarantines() == []
    run.see(affinity(61, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(61, "bk11", "quarantine")]


def test_it_is_lifted_when_somebody_assigns_the_bookie() -> None:
    run = joined().see(racks(20, GROUPS | {QUARANTINE_GROUP: "bk11"}))
    run.twice(30, lambda second: racks(second, GROUPS | {"default": "bk1 bk2 bk11"})).until(600)
    assert run.verdicts()[1:] == [(40, "bk11", "lift", "assigned")]


def test_it_is_lifted_when_the_bookie_is_gone() -> None:
    run = joined().until(60).see(bookies(70, BASE)).see(bookies(80, BASE))
    assert run.verdicts()[1:] == [(80, "bk11", "lift", "gone")]


def test_it_is_lifted_when_quarantine_is_switched_off_even_while_unread() -> None:
    run = joined(validity="1m").until(300).with_settings().see(bookies(310, "", outcome=Outcome.ERROR))
    assert run.verdicts()[-1] == (310, "bk11", "lift", "switched_off")
    assert run.until(900).verdicts()[-1][0] == 310


def test_going_read_only_ends_nothing() -> None:
    run = joined().until(60).see(bookies(70, BASE, "bk11")).until(100)
    assert len(run.verdicts()) == 1
