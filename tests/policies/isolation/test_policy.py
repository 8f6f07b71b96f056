"""Placements: what is published of namespaces, and when."""

from typing import Any

import pytest

from policies.decisions import Mode
from policies.isolation.decisions import PlacementReason, PlacementVerdict, Tier
from policies.observations import Outcome
from tests.policies.isolation.scenes import LONG, Run, affinity, at, bookies, everything, racks, to

GROUPS = {"default": "bk1 bk2", "shared": "bk6 bk7"}


def published(writable: str, said: Any, groups: Any = None, **settings: Any) -> Any:
    run = Run(settings).see(*everything(0, writable, GROUPS if groups is None else groups, {"acme/a": said}))
    return run.placement("acme/a")


@pytest.mark.parametrize(
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
    placement = published(writable, said, groups, **settings)
    assert (placement.verdict, placement.reason) == (PlacementVerdict(verdict), PlacementReason(reason))
    assert (placement.tier, placement.leak) == (Tier(tier), tuple(leak.split()))
    assert placement.explanation.startswith("acme/a ")
    assert placement.explanation.endswith(".")


@pytest.mark.parametrize("groups", [{}, None], ids=["no groups", "no znode"])
@pytest.mark.parametrize("rules", ["legacy", "current", "strict"])
def test_a_cluster_without_groups_constrains_nobody(groups: Any, rules: str) -> None:
    run = Run(rules=rules).see(*everything(0, "bk1 bk2", groups, {"acme/a": "default"}))
    assert (run.placement("acme/a").verdict, run.placement("acme/a").reason) == ("unconstrained", "no_groups")


def test_a_leak_is_explained_by_its_numbers() -> None:
    placement = published("bk1 bk6 bk11:3181", "default")
    assert placement.explanation == (
        "acme/a can place data on 1 bookie without a group (bk11:3181): "
        "its primary group default has 1 of 2 needed bookies writable."
    )
    assert placement.candidates == ("bk1", "bk11:3181")
    assert (placement.promised_candidates, placement.promised_feasible) == (("bk1",), False)


@pytest.mark.parametrize(
    ("strict", "rules", "in_force"),
    [
        (True, "current", "strict"), (False, "strict", "current"), (None, "strict", "strict"),
        (False, "legacy", "legacy"), (True, "legacy", "strict"), (None, "current", "current"),
    ],
)  # fmt: skip
def test_a_namespace_s_own_flag_wins_over_the_rules_of_the_cluster(
    strict: bool | None, rules: str, in_force: str
) -> None:
    assert published("bk1 bk11", to("default", strict=strict), rules=rules).rules == in_force


def test_a_namespace_s_own_ensemble_wins() -> None:
    assert published("bk1 bk2", to("default", ensemble_size=3)).verdict == "infeasible"
    assert published("bk1 bk2", "default").ensemble_size == 2


def test_nothing_is_decided_before_all_three_were_read() -> None:
    run = Run(LONG).see(bookies(0, "bk1 bk2")).see(affinity(1, {"acme/a": "default"})).until(60)
    assert run.published == []
    run.see(racks(61, GROUPS))
    assert run.placement("acme/a").verdict == "isolated"


def test_a_placement_is_published_again_only_when_it_changes() -> None:
    run = Run().see(*everything(0, "bk1 bk2 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    assert [p.namespace for p in run.placements()] == ["acme/a", "acme/b"]
    run.see(*everything(10, "bk1 bk2 bk6", GROUPS, {"acme/b": "shared", "acme/a": "default"})).until(200)
    assert len(run.placements()) == 2
    run.see(bookies(201, "bk1 bk2 bk6 bk7"))
    assert [p.namespace for p in run.placements()][2:] == ["acme/b"]
    assert run.placement("acme/b").verdict == "isolated"


def test_the_sequence_only_grows() -> None:
    run = Run().see(*everything(0, "bk1 bk2 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    run.see(bookies(10, "bk1 bk6 bk7")).see(bookies(20, "bk1 bk2 bk6"))
    sequences = [p.sequence for p in run.placements()]
    assert sequences == sorted(set(sequences))
    assert len({p.decision_id for p in run.placements()}) == len(sequences)


def test_a_namespace_that_leaves_is_named_a_last_time_and_forgotten() -> None:
    run = Run().see(*everything(0, "bk1 bk6", GROUPS, {"acme/a": "default", "acme/b": "shared"}))
    run.see(affinity(10, {"acme/b": "shared"}))
    last = run.placement("acme/a")
    assert (last.verdict, last.reason, last.decided_at) == ("unconstrained", "no_affinity", at(10))
    run.see(affinity(20, {"acme/b": "shared"})).see(bookies(30, "bk1 bk2"))
    assert run.placement("acme/a") == last
    assert ("placement-infeasible", "c1/acme/a") not in run.firing()


def test_a_namespace_that_changes_its_groups_without_effect_is_not_news() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(affinity(10, {"acme/a": "default/nowhere"}))
    assert len(run.placements()) == 1


def test_the_newest_reading_is_the_first_evidence() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"})).see(bookies(10, "bk1"))
    assert run.placement("acme/a").evidence == ("bookies@10", "racks@0", "affinity@0")


def test_other_settings_are_published() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.with_settings(mode="shadow").see(bookies(10, "bk1 bk2"))
    assert run.placement("acme/a").mode is Mode.SHADOW
    run.with_settings(mode="shadow", rules="strict").see(bookies(20, "bk1 bk2"))
    assert run.placement("acme/a").rules == "strict"
    assert len(run.placements()) == 3


# Keep last known


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


# All gone at once


def test_all_bookies_gone_in_one_reading_is_a_bad_reading() -> None:
    run = Run(LONG).see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", known="bk1 bk2")).until(100)
    assert run.placement("acme/a").verdict == "isolated"


@pytest.mark.parametrize(
    ("second", "verdict"), [(19, "isolated"), (20, "infeasible")], ids=["too soon", "confirm_after later"]
)
def test_that_all_bookies_are_gone_needs_a_second_reading(second: float, verdict: str) -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "")).see(bookies(second, ""))
    assert run.placement("acme/a").verdict == verdict


def test_a_bookie_seen_in_between_refutes_it() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "")).see(bookies(15, "bk1 bk2")).see(bookies(21, ""))
    assert run.placement("acme/a").verdict == "isolated"


def test_the_same_reading_twice_does_not_confirm_itself() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"}))
    run.see(bookies(10, "", id="x")).see(bookies(30, "", id="x"))
    assert run.placement("acme/a").verdict == "isolated"


def test_all_read_only_at_once_is_believed() -> None:
    run = Run().see(*everything(0, "bk1 bk2", GROUPS, {"acme/a": "default"})).see(bookies(10, "", "bk1 bk2"))
    assert run.placement("acme/a").verdict == "infeasible"


def test_a_cluster_without_bookies_is_believed_at_first() -> None:
    assert published("", "default").verdict == "infeasible"
