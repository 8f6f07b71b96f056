"""The facts as of a moment, and how well each namespace is isolated."""

from typing import Any

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.isolation.decisions import PlacementReason, PlacementVerdict, Tier
from policies.isolation.fold import fold
from policies.isolation.judge import IsolationFacts, PlacementJudgement, join_facts, judge_placement
from policies.isolation.placement import BookieMembership
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState, Cohort
from policies.observations import Observation, Outcome
from tests.cases import for_each
from tests.policies.isolation.scenario import (
    CLUSTER,
    GROUPS,
    LONG,
    ON,
    Run,
    affinity,
    at,
    bookies,
    isolation,
    placement_of,
    racks,
    to,
)

SETTINGS = isolation(validity="60s")
QUARANTINED = {"g": "bk1", "headgate-quarantine": "bk2"}


def facts(seconds: float, *observations: Observation) -> IsolationFacts:
    return join_facts(at(seconds), CLUSTER, fold(BookieClusterState(), observations, SETTINGS), SETTINGS)


def read(bookies_at: float, racks_at: float, affinity_at: float) -> tuple[Observation, ...]:
    return bookies(bookies_at, "bk1 bk2"), racks(racks_at, QUARANTINED), affinity(affinity_at, {})


@for_each(
    ("observations", "stale", "has_fresh_registrations"),
    [
        pytest.param(read(40, 40, 40), set(), True, id="all fresh"),
        pytest.param(read(40, 40, 39.999), set(), True, id="just within validity"),
        pytest.param(read(40, 40, 39), {"affinity"}, True, id="exactly validity old"),
        pytest.param(read(39, 40, 40), {"bookies"}, False, id="registrations old"),
        pytest.param(read(40, 39, 40), {"racks"}, False, id="groups old"),
        pytest.param((), {"bookies", "racks", "affinity"}, False, id="never read"),
        pytest.param((bookies(98, "", outcome=Outcome.ERROR),), {"bookies", "racks", "affinity"}, False, id="failed"),
    ],
)
def test_a_reading_counts_for_its_validity(
    observations: tuple[Observation, ...], stale: set[str], has_fresh_registrations: bool
) -> None:
    found = facts(99, *observations)
    assert set(found.stale) == stale
    assert (found.has_fresh_registrations, found.is_fresh) == (has_fresh_registrations, not stale)


def test_the_newest_good_reading_is_the_first_evidence() -> None:
    found = facts(10, *read(1, 3, 2), bookies(5, "", outcome=Outcome.TIMEOUT))
    assert found.evidence == ("racks@3", "affinity@2", "bookies@1")


@for_each(
    ("writable", "said", "settings", "verdict", "reason", "tier", "leak"),
    [
        ("bk1 bk2 bk11", "default", {}, "isolated", "primary_suffices", "primary", ""),
        ("bk1 bk6 bk11", "default/shared", {}, "infeasible", "too_few_bookies", "none", ""),
        ("bk1 bk6 bk7", "default/shared", {"rules": "strict"}, "spills_to_secondary", "primary_short", "secondary", ""),
        ("bk1 bk6 bk11", "default", {}, "leaks", "unassigned_eligible", "unassigned", "bk11"),
        ("bk1 bk6 bk11", "default", {"promise": "current"}, "spills_to_secondary", "primary_short", "unassigned", ""),
        ("bk1 bk6 bk11", "default", {"rules": "strict"}, "infeasible", "too_few_bookies", "none", ""),
        ("bk1 bk2 bk11", "default", {"rules": "legacy"}, "leaks", "unassigned_eligible", "primary", "bk11"),
        ("bk1 bk11", "default", {"ensemble_size": 3}, "infeasible", "too_few_bookies", "none", "bk11"),
        ("bk1 bk11", "*", {}, "unconstrained", "any_group", "primary", ""),
        ("bk1 bk11", "", {}, "unconstrained", "no_affinity", "primary", ""),
        ("bk1", "", {}, "unconstrained", "no_affinity", "none", ""),
        ("bk11 bk12", "", {"unaffine": "ungrouped"}, "isolated", "ungrouped_only", "unassigned", ""),
        ("bk1 bk12", "", {"unaffine": "ungrouped"}, "infeasible", "ungrouped_only", "none", ""),
    ],
)  # fmt: skip
def test_verdicts(
    writable: str, said: str, settings: dict[str, Any], verdict: str, reason: str, tier: str, leak: str
) -> None:
    groups = GROUPS if writable != "bk1 bk6 bk11" or said == "default" else {"default": "bk1 bk2", "shared": "bk7"}
    placement = placement_of(writable, said, groups, **settings)
    assert (placement.verdict, placement.reason) == (PlacementVerdict(verdict), PlacementReason(reason))
    assert (placement.tier, placement.leak) == (Tier(tier), tuple(leak.split()))
    assert placement.explanation.startswith("acme/a ")
    assert placement.explanation.endswith(".")


@for_each(
    ("strict", "rules", "in_force"),
    [
        (True, "current", "current"), (False, "strict", "current"), (None, "strict", "strict"),
        (False, "legacy", "legacy"), (True, "legacy", "legacy"), (None, "current", "current"),
        (True, "strict", "strict"),
    ],
)  # fmt: skip
def test_a_namespace_s_own_flag_counts_only_where_the_brokers_read_it(
    strict: bool | None, rules: str, in_force: str
) -> None:
    assert placement_of("bk1 bk11", to("default", strict=strict), rules=rules).rules == in_force


@for_each(
    ("writable", "said", "settings", "verdict"),
    [
        ("bk1 bk2 bk11", to("default", strict=True), {}, "asked_for"),
        ("bk1 bk2", to("default", strict=True), {"rules": "legacy"}, "asked_for"),
        ("bk1 bk2 bk11", to("default", strict=True), {"rules": "strict"}, "isolated"),
        ("bk1 bk11", to("default", strict=True), {}, "leaks"),
        ("bk1 bk11", to("default", strict=True), {"promise": "current"}, "leaks"),
        ("bk1 bk6 bk7", to("default", "shared", strict=True), {}, "spills_to_secondary"),
        ("bk1", to("default", strict=True), {}, "infeasible"),
        ("bk1 bk2 bk11", to("default", strict=False), {}, "isolated"),
        ("bk1 bk2 bk11", to("", "shared"), {}, "infeasible"),
        ("bk6 bk7 bk11", to("", "shared"), {}, "spills_to_secondary"),
        ("bk6 bk11", to("", "shared", ensemble_size=3), {}, "infeasible"),
        ("bk6 bk7 bk11", to("", "shared", ensemble_size=3), {}, "leaks"),
    ],
)
def test_strict_that_nobody_reads_is_asked_for_and_never_isolated(
    writable: str, said: Any, settings: dict[str, Any], verdict: str
) -> None:
    placement = placement_of(writable, said, **settings)
    assert placement.verdict == verdict
    unread = said.strict is True and settings.get("rules") != "strict"
    assert ("asked for, and no released Pulsar reads that" in placement.explanation) == unread
    if said.strict:
        assert placement.promise == "strict"


def test_a_namespace_s_own_ensemble_wins() -> None:
    assert placement_of("bk1 bk2", to("default", ensemble_size=3)).verdict == "infeasible"
    assert placement_of("bk1 bk2", "default").ensemble_size == 2


def test_a_judgement_s_core_leaves_out_which_bookies_they_are_and_how_many_more_may_go() -> None:
    def judged(writable: str) -> PlacementJudgement:
        membership = BookieMembership(frozenset(writable), {"p": frozenset("abcd")})
        return judge_placement(Cohort(("p",), (), None, None, ("t/a",)), membership, IsolationSettings())

    three, two, one = judged("abc"), judged("ab"), judged("a")
    assert three.core == two.core != one.core
    assert len({each.names_digest for each in (three, two, judged("bc"), one)}) == 4


# Groups of brokers: they hold for every namespace without an affinity of its own.

NAMESPACES: dict[str, NamespaceAffinity | str] = {"acme/own": "shared", "acme/free": to()}
SETTING = {"broker_groups": {"primary": ["default"]}}


def look(seconds: float, writable: str, broker_groups: str | None) -> tuple[Observation, ...]:
    named = affinity(seconds, NAMESPACES, broker_groups=broker_groups)
    return bookies(seconds, writable), racks(seconds, GROUPS), named


@pytest.mark.parametrize("settings", [{}, SETTING], ids=["read from a broker", "set"])
def test_a_namespace_without_affinity_is_judged_by_them(settings: dict[str, object]) -> None:
    run = Run(LONG, settings).see(*look(0, "bk1 bk6 bk7 bk11", None if settings else "default"))
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
    run = Run(LONG, ON, grace="0s").see(*look(0, "bk1 bk6 bk7 bk11", "default")).see(*look(20, "bk1 bk6 bk7 bk11", ""))
    assert run.verdicts()[-1][2] == "withhold"
    run.see(*look(30, "bk1 bk6 bk7 bk11", "")).until(200)
    assert run.verdicts()[-1][:3] == (150, "bk11", "quarantine")
    assert run.placement("acme/free").verdict == "unconstrained"


def test_what_is_not_read_stands_as_it_was_read_last() -> None:
    run = Run(LONG).see(*look(0, "bk1 bk2 bk6 bk7", "default")).see(*look(20, "bk1 bk2 bk6 bk7", None)).until(100)
    assert run.placement("acme/free").verdict == "isolated"
    assert len(run.placements("acme/free")) == 1


def test_brokers_that_keep_them_to_bookies_without_a_group_do_not_use_them() -> None:
    run = Run(LONG, SETTING, unaffine="ungrouped").see(*look(0, "bk1 bk2 bk11 bk12", None))
    assert run.placement("acme/free").candidates == ("bk11", "bk12")


@pytest.mark.parametrize("broker_groups", ["default", None], ids=["read", "not read"])
def test_without_the_node_of_local_policies_they_still_hold(broker_groups: str | None) -> None:
    run = Run(LONG, ON, grace="0s").see(*look(0, "bk1 bk6 bk7 bk11", "default"))
    for second in (20, 40, 60):
        absent = affinity(second, {}, Outcome.ABSENT, broker_groups=broker_groups)
        run.see(bookies(second, "bk1 bk6 bk7 bk11"), racks(second, GROUPS), absent)
    assert {v[1:] for v in run.verdicts()} == {("bk11", "withhold", "would_be_infeasible")}
