"""What would have to change for another verdict on a namespace or a bookie; and that it then is that verdict."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.isolation.decisions import PlacementVerdict, QuarantineVerdict
from policies.isolation.judge import PlacementJudgement, judge_placement
from policies.isolation.messages import find_next_verdict
from policies.isolation.placement import BookieMembership
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import Cohort
from tests.policies.isolation.scenario import BASE, GROUPS, NAMESPACES, bookies, everything, joined, placement_of, to

THREE = {"default": "bk1 bk2 bk3", "shared": "bk6 bk7"}


def said(decision: Any) -> dict[str, str]:
    return {each.verdict: each.when for each in decision.otherwise}


@pytest.mark.parametrize(
    ("writable", "affinity", "settings", "verdict", "expected"),
    [
        pytest.param(
            "bk1 bk2 bk3 bk6 bk7", to("default", "shared"), {}, "isolated",
            {"spills_to_secondary": "2 more writable bookies of its 3 primary ones are lost"}, id="a spare one",
        ),
        pytest.param(
            "bk1 bk2 bk6", to("default"), {}, "isolated",
            {"infeasible": "1 more writable bookie of its 2 primary ones is lost"}, id="nowhere to go",
        ),
        pytest.param(
            "bk1 bk2 free", to("default"), {}, "isolated",
            {"leaks": "1 more writable bookie of its 2 primary ones is lost"}, id="only those without a group",
        ),
        pytest.param(
            "bk1 bk6 bk7", to("default", "shared"), {}, "spills_to_secondary",
            {
                "isolated": "its primary groups have 2 writable bookies or more, now 1",
                "infeasible": "2 more writable bookies of the 3 of its groups are lost",
            },
            id="it spills",
        ),
        pytest.param(
            "bk1 free", to("default"), {}, "leaks",
            {
                "isolated": "its primary groups have 2 writable bookies or more, now 1",
                "infeasible": "1 more writable bookie of the 2 it may use is lost",
            },
            id="it leaks",
        ),
        pytest.param(
            "bk1 bk6", to("default"), {}, "infeasible",
            {"isolated": "its primary groups have 2 writable bookies or more, now 1"}, id="too few",
        ),
        pytest.param(
            "bk1 bk2", to(), {}, "unconstrained",
            {"isolated": "it names primary groups with 2 writable bookies or more"}, id="without affinity",
        ),
        pytest.param(
            "bk1 bk2 bk3 free", to("default"), {"rules": "legacy"}, "leaks",
            {"isolated": "1 bookie without a group is given one"}, id="legacy rules, which leak after losses, too",
        ),
        pytest.param(
            "bk1 bk6", to("default", ensemble_size=1), {}, "isolated",
            {"infeasible": "1 more writable bookie of its 1 primary one is lost"}, id="one is one",
        ),
        pytest.param(
            "bk1", to("default", strict=True), {}, "infeasible",
            {"asked_for": "its primary groups have 2 writable bookies or more, now 1"}, id="strict is asked for",
        ),
    ],
)  # fmt: skip
def test_the_next_better_and_the_next_worse_are_named(
    writable: str, affinity: Any, settings: Any, verdict: str, expected: dict[str, str]
) -> None:
    placement = placement_of(writable, affinity, THREE, ensemble_size=2, promise="strict", **settings)
    assert placement.verdict == verdict
    assert said(placement) == expected


@pytest.mark.parametrize(
    ("before", "affinity", "after"),
    [
        ("bk1 bk2 bk3 bk6 bk7", to("default", "shared"), "bk1 bk6 bk7"),
        ("bk1 bk2 bk6", to("default"), "bk1 bk6"),
        ("bk1 bk2 free", to("default"), "bk1 free"),
        ("bk1 bk6 bk7", to("default", "shared"), "bk1"),
        ("bk1 free", to("default"), "bk1"),
        ("bk1 bk2 bk3 bk6 bk7", to("default", "shared"), "bk1 bk6"),
    ],
)
def test_after_the_losses_that_are_named_it_is_that_verdict(before: str, affinity: Any, after: str) -> None:
    def placed(writable: str) -> Any:
        return placement_of(writable, affinity, THREE, ensemble_size=2, promise="strict")

    lost = len(before.split()) - len(after.split())
    (worse,) = [each for each in placed(before).otherwise if "lost" in each.when]
    if worse.when.startswith(f"{lost} more"):
        assert placed(after).verdict == worse.verdict


@pytest.mark.parametrize(
    ("more", "reason", "expected"),
    [
        ({}, "unassigned", {"withhold": "3 other bookies are in quarantine (now 0), or a namespace needs it"}),
        (
            {"max_quarantined": 0},
            "max_quarantined",
            {"quarantine": "`max_quarantined` is more than 0"},
        ),
    ],
)
def test_of_a_quarantine_it_is_said_what_would_end_it(more: Any, reason: str, expected: dict[str, str]) -> None:
    run = joined(**more).until(60)
    decision = run.quarantines()[-1]
    assert decision.reason == reason
    assert said(decision) == {**expected, "lift": "an operator puts it into a group, or it is no longer registered"}


def test_a_bookie_that_is_gone_would_have_to_come_again() -> None:
    run = joined().until(60).see(bookies(70, BASE)).see(bookies(80, BASE))
    assert said(run.quarantines()[-1])["quarantine"].startswith("it registers again and is in no group for ")


def test_only_verdicts_there_are_are_named() -> None:
    run = joined().see(*everything(70, BASE, GROUPS, NAMESPACES)).until(100)
    assert {v for p in run.placements() for v in said(p)} <= {*PlacementVerdict}
    assert {v for q in run.quarantines() for v in said(q)} <= {*QuarantineVerdict}


RANKS = ("isolated", "spills_to_secondary", "leaks", "infeasible")
BK = [f"bk{n}" for n in range(6)]
some = st.frozensets(st.sampled_from(BK))
rule_sets = st.sampled_from(list(RuleSet))


@given(some, some, some, st.booleans(), st.booleans(), st.integers(1, 3), rule_sets, rule_sets)
def test_the_next_verdict_is_the_worst_that_the_named_losses_can_cause(
    writable: frozenset[str], primary: frozenset[str], secondary: frozenset[str],
    names_primary: bool, names_secondary: bool, size: int, rules: RuleSet, promise: RuleSet,
) -> None:  # fmt: skip
    cohort = Cohort(("p",) if names_primary else (), ("s",) if names_secondary else (), None, size, ("t/a",))
    settings = IsolationSettings(rules=rules, promise=promise)

    def judge(left: frozenset[str]) -> PlacementJudgement:
        return judge_placement(cohort, BookieMembership(left, {"p": primary, "s": secondary}), settings)

    judged = judge(writable)
    if judged.verdict not in RANKS[:3]:
        return
    placed = judged.placed
    losable = placed.primary.members if placed.tier == "primary" else placed.candidates
    losses = combinations(sorted(losable), placed.headroom)
    worst = max((judge(writable - set(lost)).verdict for lost in losses), key=RANKS.index)
    assert find_next_verdict(judged) is worst
