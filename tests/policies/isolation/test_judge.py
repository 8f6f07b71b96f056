"""The facts as of a moment, how well each namespace is isolated, and the sentences about that."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from policies.bookie_readings import NamespaceAffinity
from policies.isolation.decisions import PlacementReason, PlacementVerdict, Tier
from policies.isolation.fold import fold
from policies.isolation.judge import IsolationFacts, PlacementJudgement, join_facts, judge_placement
from policies.isolation.placement import BookieMembership
from policies.isolation.policy import IsolationPolicy
from policies.isolation.settings import IsolationSettings
from policies.isolation.state import BookieClusterState, Cohort
from policies.observations import Observation, Outcome
from policies.pauses import PolicyPause
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.isolation.scenario import (
    BASE,
    CLUSTER,
    GROUPS,
    LONG,
    NAMESPACES,
    ON,
    Run,
    affinity,
    at,
    bookies,
    everything,
    isolation,
    joined,
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

NAMED_AND_FREE: dict[str, NamespaceAffinity | str] = {"acme/own": "shared", "acme/free": to()}
SETTING = {"broker_groups": {"primary": ["default"]}}


def look(seconds: float, writable: str, broker_groups: str | None) -> tuple[Observation, ...]:
    named = affinity(seconds, NAMED_AND_FREE, broker_groups=broker_groups)
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


# Sentences from the values that decided.


STRANGERS = " ".join(f"bk{n}" for n in range(100, 112))
PORTS = " ".join(f"bk{n}:1" for n in range(20, 32))


def order(run: Run) -> str:
    return run.until(60).quarantines()[-1].explanation


def alert(name: str, *readings: Any, **settings: Any) -> str:
    """The summary of an alert after these readings."""
    return Run(LONG, settings).feed(readings).latest(name).summary


def paused() -> Run:
    run = Run(LONG, ON)
    run.policy = IsolationPolicy(CLUSTER, run.settings.while_quiet(PolicyPause(to_millis(at(9999)))))
    return run.see(*everything(0, f"{BASE} bk11", GROUPS, NAMESPACES))


TO_BE_PUT = "Bookie bk11 has been in no group for 10s or longer: it should be put into headgate-quarantine"
SENTENCES: Mapping[str, tuple[Callable[[], str], str]] = {
    "an order": (lambda: order(joined()), f"{TO_BE_PUT}."),
    "an order without a grace": (
        lambda: order(joined(grace="0s")), "Bookie bk11 is in no group: it should be put into headgate-quarantine.",
    ),
    "an order in shadow mode": (
        lambda: order(joined(mode="shadow")), f"{TO_BE_PUT}; this is shadow mode, nothing is carried out.",
    ),
    "an order in a pause": (lambda: order(paused()), f"{TO_BE_PUT}; the policy is paused, nothing is carried out."),
    "a bookie that is gone": (
        lambda: joined().until(60).feed([bookies(70, BASE), bookies(80, BASE)]).quarantines()[-1].explanation,
        "Bookie bk11 is no longer registered: no action is needed.",
    ),
    "none is allowed": (
        lambda: order(joined(max_quarantined=0)),
        "Bookie bk11 is in no group, but max_quarantined allows none: an operator must decide.",
    ),
    "one is allowed": (
        lambda: order(joined("bk11 bk12", max_quarantined=1)),
        "Bookie bk12 is in no group, but the 1 bookie that max_quarantined allows is in quarantine or on its way "
        "there: an operator must decide.",
    ),
    "many of which a namespace needs all": (
        lambda: order(
            Run(LONG, ON, max_quarantined=100, grace="0s", ensemble_size=13).see(
                *everything(0, f"bk1 {STRANGERS}", GROUPS, {"acme/a": "default"})
            )
        ).partition(" (")[0],
        "12 bookies are in no group, and an operator must decide: with one fewer of them, acme/a could not place data",
    ),
    "many whose rack entries lack the port": (
        lambda: order(
            Run(LONG, ON, grace="0s").see(
                *everything(0, PORTS, {"g": PORTS.replace(":1", "")}, {})
            )
        ).partition(" (")[0],
        "12 bookies are in no group, and an operator must decide: their rack entries lack the port",
    ),
    "secondary groups alone": (
        lambda: placement_of("bk6 bk7 bk11", to("", "shared")).explanation,
        "acme/a keeps to 2 bookies of its secondary group shared: it names no primary group, and it needs 2 bookies.",
    ),
    "a leak": (
        lambda: placement_of("bk1 bk6 bk11:3181", "default").explanation,
        "acme/a can place data on 1 bookie without a group (bk11:3181): its primary group default has 1 of 2 needed "
        "bookies writable.",
    ),
    "two groups, one bookie": (
        lambda: placement_of("bk1", to("default shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 1 bookie of 3 needed, and its primary groups default, shared have 1 "
        "of 3 needed bookies writable.",
    ),
    "an ensemble of one": (
        lambda: placement_of("bk1 bk2", "default", ensemble_size=1).explanation,
        "acme/a keeps to its groups: its primary group default has 2 writable bookies, and 1 is needed.",
    ),
    "too few in the secondary group": (
        lambda: placement_of("bk6", to("", "shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 1 bookie of 3 needed, and it names no primary group, and it needs 3 "
        "bookies, and its secondary group shared has 1.",
    ),
    "too few in both groups": (
        lambda: placement_of("bk1 bk6", to("default", "shared"), ensemble_size=3).explanation,
        "acme/a cannot place its data: it may use 2 bookies of 3 needed, and its primary group default has 1 of 3 "
        "needed bookies writable, and its secondary group shared has 1 more.",
    ),
    "groups of brokers": (
        lambda: placement_of(
            "bk1 bk2 bk6", to(), broker_groups={"primary": ["shared"], "secondary": ["default"]}
        ).explanation,
        "acme/a reaches beyond its brokers' primary groups to 2 bookies of its brokers' secondary group default: "
        "it has no affinity, and its brokers' primary group shared has 1 of 2 needed bookies writable.",
    ),
    "secondary groups of brokers": (
        lambda: placement_of("bk1 bk2 bk6", to(), broker_groups={"secondary": ["default"]}).explanation,
        "acme/a keeps to 2 bookies of its brokers' secondary group default: it has no affinity, its brokers name no "
        "primary group, and it needs 2 bookies.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tell", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_sentences(tell: Callable[[], str], sentence: str) -> None:
    assert tell() == sentence


def test_without_a_grace_no_condition_and_no_alert_names_0s() -> None:
    run = joined(grace="0s", member_missing_after="0s").feed(
        (bookies(70, f"{BASE} bk11#2"), bookies(80, "bk1 bk6 bk7"))
    )
    run.see(bookies(95, "bk1 bk6 bk7"))
    assert run.latest("group-member-missing").summary == "bookie bk2 of c1 is in group default, but is not registered"
    assert not [text for text in (d.explanation for d in run.published) if " 0s" in text]


@pytest.mark.parametrize("has_policies", [True, False])
def test_an_ensemble_that_is_only_assumed_is_named_in_the_decision_and_in_the_alert(*, has_policies: bool) -> None:
    """Another namespace's policies are there, so the configuration store is no other one."""
    lone = NamespaceAffinity(primary=("g",), has_policies=has_policies)
    run = Run(LONG).see(*everything(0, "bk1 bk2", {"g": "bk1"}, {"t/a": lone, "t/b": "g"}))
    words = "; its policies were not found, so its ensemble is not known, and 2 is assumed"
    assert (words in run.placement("t/a").explanation) is not has_policies
    assert words not in run.placement("t/b").explanation
    leak = next(each for each in run.alerts if each.alert == "isolation-leak" and each.subject.endswith("t/a"))
    assert (words in leak.summary) is not has_policies
