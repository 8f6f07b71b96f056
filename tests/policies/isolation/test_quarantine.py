"""Which bookies are to be put into quarantine, which guards forbid it, and what ends it."""

from itertools import pairwise
from typing import Any

import pytest

from policies.decisions import Mode
from policies.isolation.decisions import QUARANTINE_GROUP
from policies.observations import Outcome
from tests.policies.isolation.scenes import LONG, Run, affinity, at, bookies, everything, racks

ON = {"quarantine": "on"}
GROUPS = {"default": "bk1 bk2", "shared": "bk6 bk7"}
BASE = "bk1 bk2 bk6 bk7"
NAMESPACES = {"acme/a": "default", "acme/b": "shared"}


def joined(writable: str = "bk11", *blocks: Any, **more: Any) -> Run:
    """These were there from the start, in no group, and nobody needs them."""
    return Run(LONG, ON, *blocks, **more).see(*everything(0, f"{BASE} {writable}", GROUPS, NAMESPACES))


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


# Guards


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
    run.see(racks(70, GROUPS | {"default": "bk1 bk2 bk11"}))
    assert [v[1:] for v in run.verdicts()[2:]] == [("bk11", "lift", "assigned"), ("bk12", "quarantine", "unassigned")]


def test_a_newcomer_does_not_take_the_place_of_one_on_its_way() -> None:
    run = joined("bk12", max_quarantined=1).until(60).see(bookies(70, f"{BASE} bk11 bk12")).until(100)
    assert run.verdicts()[1:] == [(80, "bk11", "withhold", "max_quarantined")]


def test_one_on_its_way_keeps_its_place_while_it_is_read_only() -> None:
    run = joined(max_quarantined=1).until(60).see(bookies(70, f"{BASE} bk12", "bk11")).until(100)
    assert run.verdicts()[1:] == [(80, "bk12", "withhold", "max_quarantined")]


def test_a_bookie_that_a_namespace_needs_is_withheld() -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk6 bk7 bk11 bk12", GROUPS, NAMESPACES)).until(60)
    # acme/a has bk1 alone: one of the two must remain.
    assert [v[1:] for v in run.verdicts()] == [
        ("bk11", "quarantine", "unassigned"),
        ("bk12", "withhold", "would_be_infeasible"),
    ]
    assert run.quarantines()[-1].explanation == (
        "Bookie bk12 is in no group, but without it acme/a could not place data: it is left to a person."
    )


def test_who_cannot_place_data_anyway_forbids_nothing() -> None:
    run = Run(LONG, ON, rules="strict").see(*everything(0, "bk1 bk6 bk7 bk11", GROUPS, NAMESPACES)).until(60)
    assert [v[1:3] for v in run.verdicts()] == [("bk11", "quarantine")]


@pytest.mark.parametrize(("unaffine", "verdict"), [("any", "quarantine"), ("ungrouped", "withhold")])
def test_unnamed_namespaces_without_affinity_need_ungrouped_bookies(unaffine: str, verdict: str) -> None:
    run = joined("bk11 bk12", unaffine=unaffine).until(60)
    assert [v[2] for v in run.verdicts()] == [verdict, verdict]


def test_a_verdict_not_yet_carried_out_is_taken_back_when_it_would_starve_somebody() -> None:
    run = joined().until(60).see(bookies(70, "bk1 bk6 bk7 bk11"))
    assert run.verdicts()[-1] == (70, "bk11", "withhold", "would_be_infeasible")


@pytest.mark.parametrize("groups", [None, {}], ids=["no znode", "no groups"])
def test_the_first_group_of_a_cluster_is_never_the_quarantine_group(groups: dict[str, str] | None) -> None:
    run = Run(LONG, ON).see(*everything(0, "bk1 bk2 bk3", groups, NAMESPACES)).until(60)
    assert {v[2:] for v in run.verdicts()} == {("withhold", "no_groups")}


def test_without_the_affinity_of_namespaces_nothing_is_put_into_quarantine() -> None:
    run = Run(LONG, ON).see(bookies(0, f"{BASE} bk11"), racks(0, GROUPS)).until(60)
    assert run.quarantines() == []
    run.see(affinity(61, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(61, "bk11", "quarantine")]


# The end


def test_once_carried_out_the_verdict_stays_in_force() -> None:
    run = joined().see(racks(20, GROUPS | {QUARANTINE_GROUP: "bk11"})).until(600)
    assert run.verdicts() == [(10, "bk11", "quarantine", "unassigned")]


def test_taken_out_of_quarantine_without_another_group_it_is_decided_anew() -> None:
    run = joined().see(racks(20, GROUPS | {QUARANTINE_GROUP: "bk11"})).see(racks(610, GROUPS)).until(669)
    assert [v[:3] for v in run.verdicts()] == [(10, "bk11", "quarantine"), (610, "bk11", "quarantine")]
    assert run.said("quarantine-overdue") == []


def test_it_is_lifted_when_somebody_assigns_the_bookie() -> None:
    run = joined().see(racks(20, GROUPS | {QUARANTINE_GROUP: "bk11"}))
    run.see(racks(30, GROUPS | {"default": "bk1 bk2 bk11"})).until(600)
    assert run.verdicts()[1:] == [(30, "bk11", "lift", "assigned")]


def test_it_is_lifted_when_the_bookie_is_gone() -> None:
    run = joined().until(60).see(bookies(70, BASE)).see(bookies(80, BASE))
    assert run.verdicts()[1:] == [(80, "bk11", "lift", "gone")]


def test_it_is_lifted_when_quarantine_is_switched_off_even_while_unread() -> None:
    run = joined(validity="1m").until(300).with_settings().see(bookies(310, "", outcome=Outcome.ERROR))
    assert run.verdicts()[-1] == (310, "bk11", "lift", "switched_off")
    assert run.until(900).verdicts()[-1][0] == 310


def test_a_bookie_that_joins_again_is_decided_anew() -> None:
    run = joined().until(60).see(bookies(70, f"{BASE} bk11#2"))
    assert [(d.verdict, d.czxid, d.registered_at) for d in run.quarantines()] == [
        ("quarantine", 11, at(0)),
        ("quarantine", 2011, at(70)),
    ]


def test_a_bookie_that_comes_back_waits_for_its_grace_again() -> None:
    run = joined().until(60).see(bookies(70, BASE)).see(bookies(80, BASE)).see(bookies(90, f"{BASE} bk11#2")).until(200)
    assert [v[:3] for v in run.verdicts()[1:]] == [(80, "bk11", "lift"), (100, "bk11", "quarantine")]


def test_going_read_only_ends_nothing() -> None:
    run = joined().until(60).see(bookies(70, BASE, "bk11")).until(100)
    assert len(run.verdicts()) == 1


# While nobody carries it out


def test_it_is_repeated_before_it_runs_out_until_it_is_carried_out() -> None:
    run = joined(validity="100s")
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[0] for v in run.verdicts()] == [10, 60, 110, 160]
    said = run.quarantines()
    assert all(later.decided_at < before.valid_until for before, later in pairwise(said))
    run.see(racks(200, GROUPS | {QUARANTINE_GROUP: "bk11"})).see(bookies(205, f"{BASE} bk11")).until(280)
    assert len(run.verdicts()) == 4


def test_what_is_withheld_is_not_repeated() -> None:
    run = joined(validity="100s", max_quarantined=0)
    for second in range(20, 200, 20):
        run.see(*everything(second, f"{BASE} bk11", GROUPS, NAMESPACES))
    assert [v[:3] for v in run.verdicts()] == [(10, "bk11", "withhold")]


def test_on_unread_data_it_is_not_repeated() -> None:
    run = joined(validity="100s").until(1000)
    assert [v[0] for v in run.verdicts()] == [10, 60]


def test_it_is_overdue_after_a_minute_and_until_it_is_carried_out() -> None:
    run = joined().until(69)
    assert run.said("quarantine-overdue") == []
    run.until(70).see(racks(80, GROUPS | {QUARANTINE_GROUP: "bk11"}))
    assert run.said("quarantine-overdue") == [
        (70, "c1/bk11", "firing", "warning"),
        (80, "c1/bk11", "resolved", "warning"),
    ]


def test_what_is_withheld_is_not_overdue() -> None:
    assert joined("bk11", max_quarantined=0).until(600).said("quarantine-overdue") == []


@pytest.mark.parametrize(
    ("readings", "sentence"),
    [
        ((), "Bookie bk11 has been in no group for 10s or longer: it is to be put into headgate-quarantine."),
        (
            (bookies(70, BASE), bookies(80, BASE)),
            "Bookie bk11 is no longer registered: nothing is to be done about it.",
        ),
    ],
)
def test_sentences(readings: Any, sentence: str) -> None:
    assert joined().until(60).feed(readings).quarantines()[-1].explanation == sentence
