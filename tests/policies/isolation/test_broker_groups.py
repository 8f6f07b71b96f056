"""Groups of brokers: they hold for every namespace without an affinity of its own."""

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.observations import Observation, Outcome
from tests.policies.isolation.scenario import LONG, ON, Run, affinity, bookies, isolation, placement_of, racks, to

NAMESPACES: dict[str, NamespaceAffinity | str] = {"acme/own": "shared", "acme/free": to()}
GROUPS = {"default": "bk1 bk2", "shared": "bk6 bk7"}
SETTING = {"broker_groups": {"primary": ["default"]}}


def read(seconds: float, writable: str, broker_groups: str | None) -> tuple[Observation, ...]:
    named = affinity(seconds, NAMESPACES, broker_groups=broker_groups)
    return bookies(seconds, writable), racks(seconds, GROUPS), named


@pytest.mark.parametrize("settings", [{}, SETTING], ids=["read from a broker", "set"])
def test_a_namespace_without_affinity_is_judged_by_them(settings: dict[str, object]) -> None:
    run = Run(LONG, settings).see(*read(0, "bk1 bk6 bk7 bk11", None if settings else "default"))
    placement = run.placement("acme/free")
    assert (placement.verdict, placement.candidates) == ("leaks", ("bk1", "bk11"))
    assert placement.explanation == (
        "acme/free can place data on 1 bookie without a group (bk11): it has no affinity, and its brokers' primary "
        "group default has 1 of 2 needed bookies writable."
    )
    assert run.placement("acme/own").verdict == "isolated"
    assert ("isolation-leak", "c1/acme/free") in run.firing()


@pytest.mark.parametrize("settings", [{}, SETTING], ids=["read from a broker", "set"])
def test_a_bookie_that_unnamed_namespaces_need_is_not_quarantined(settings: dict[str, object]) -> None:
    named = affinity(0, {}, broker_groups=None if settings else "default")
    run = Run(LONG, ON, settings, grace="0s").see(bookies(0, "bk1 bk11"), racks(0, GROUPS), named)
    assert [v[1:] for v in run.verdicts()] == [("bk11", "withhold", "would_be_infeasible")]
    assert "without it namespaces without affinity could not place data" in run.quarantines()[-1].explanation


def test_that_they_are_gone_needs_a_second_reading_and_has_to_settle() -> None:
    run = Run(LONG, ON, grace="0s").see(*read(0, "bk1 bk6 bk7 bk11", "default")).see(*read(20, "bk1 bk6 bk7 bk11", ""))
    assert run.verdicts()[-1][2] == "withhold"
    run.see(*read(30, "bk1 bk6 bk7 bk11", "")).until(200)
    assert run.verdicts()[-1][:3] == (150, "bk11", "quarantine")
    assert run.placement("acme/free").verdict == "unconstrained"


def test_what_is_not_read_stands_as_it_was_read_last() -> None:
    run = Run(LONG).see(*read(0, "bk1 bk2 bk6 bk7", "default")).see(*read(20, "bk1 bk2 bk6 bk7", None)).until(100)
    assert run.placement("acme/free").verdict == "isolated"
    assert len(run.placements("acme/free")) == 1


def test_brokers_that_keep_them_to_bookies_without_a_group_do_not_use_them() -> None:
    run = Run(LONG, SETTING, unaffine="ungrouped").see(*read(0, "bk1 bk2 bk11 bk12", None))
    assert run.placement("acme/free").candidates == ("bk11", "bk12")


def test_a_mistyped_setting_is_an_error() -> None:
    with pytest.raises(ValueError, match="primry"):
        isolation(broker_groups={"primry": ["default"]})


@pytest.mark.parametrize("broker_groups", ["default", None], ids=["read", "not read"])
def test_without_the_node_of_local_policies_they_still_hold(broker_groups: str | None) -> None:
    run = Run(LONG, ON, grace="0s").see(*read(0, "bk1 bk6 bk7 bk11", "default"))
    for second in (20, 40, 60):
        absent = affinity(second, {}, Outcome.ABSENT, broker_groups=broker_groups)
        run.see(bookies(second, "bk1 bk6 bk7 bk11"), racks(second, GROUPS), absent)
    assert {v[1:] for v in run.verdicts()} == {("bk11", "withhold", "would_be_infeasible")}


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        (
            {"secondary": ["default"]},
            "acme/a keeps to 2 bookies of its brokers' secondary group default: it has no affinity, its brokers name "
            "no primary group, and it needs 2 bookies.",
        ),
        (
            {"primary": ["shared"], "secondary": ["default"]},
            "acme/a reaches beyond its brokers' primary groups to 2 bookies of its brokers' secondary group default: "
            "it has no affinity, and its brokers' primary group shared has 1 of 2 needed bookies writable.",
        ),
        (
            {"primary": ["default"]},
            "acme/a keeps to its brokers' groups: it has no affinity, and its brokers' primary group default has 2 "
            "writable bookies, and 2 are needed.",
        ),
    ],
)
def test_sentences_name_the_brokers_groups_as_theirs(groups: dict[str, list[str]], sentence: str) -> None:
    assert placement_of("bk1 bk2 bk6", to(), GROUPS, broker_groups=groups).explanation == sentence
