"""Group by group: each placement group has a factor of its own, decided by its own bookies and ensemble."""

from typing import Any

import pytest

from policies.bookie_disks import state
from policies.bookie_disks.fold import fold
from policies.bookie_disks.state import BookieDisksCluster
from policies.bookie_readings import NamespaceAffinity
from policies.free_space import volumes
from policies.observations import Observation, Outcome
from tests.cases import for_each
from tests.policies.bookie_disks.scenario import NO_PATIENCE, QUIET, Run, all_disks, disks, settings
from tests.policies.cases_of_bookies import affinity, racks
from tests.policies.virtual_run import at

FREE = {"b1": 50, "b2": 16, "b3": 60, "b4": 70}
GROUPS = {"g1": "b1 b2", "g2": "b3 b4"}


def run_of(*observations: Observation, **block: object) -> Run:
    return Run(settings(QUIET, NO_PATIENCE, block)).see(*observations, *all_disks(0, **FREE))


def test_a_full_bookie_slows_its_own_group_only() -> None:
    run = run_of(racks(0, GROUPS), affinity(0, {"a/one": "g1", "a/two": "g2", "a/three": "g2"}))
    assert {group: run.verdict(group)[0] for group in ("g1", "g2", "default")} == {"g1": 0.5, "g2": 1.0, "default": 1.0}
    assert run.last("g1").subject == "c1/g1"
    assert [(run.last(g).namespaces.count, run.last(g).namespaces.first) for g in ("g1", "g2", "default")] == [
        (1, ("a/one",)), (2, ("a/three", "a/two")), (0, ()),
    ]  # fmt: skip


@for_each(
    ("groups", "namespaces", "group", "factor", "ensemble"),
    [
        pytest.param(None, {"a/b": "g1"}, "default", 1.0, 2, id="without groups all bookies are one group"),
        pytest.param({}, {"a/b": "g1"}, "default", 1.0, 2, id="and so they are with no group in the znode"),
        pytest.param(GROUPS, {"a/b": ""}, "default", 1.0, 2, id="no affinity: all bookies"),
        pytest.param(GROUPS, {"a/b": "*"}, "default", 1.0, 2, id="any group: all bookies"),
        pytest.param(GROUPS, {"a/b": "g2 g1"}, "g1,g2", 1.0, 2, id="several primary groups: their union"),
        pytest.param(GROUPS, {"a/b": "g1 / g2"}, "g1", 0.5, 2, id="enough primary bookies: no secondary one counts"),
        pytest.param({**GROUPS, "g1": "b2"}, {"a/b": "g1 / g2"}, "g1", 1.0, 2, id="too few primary ones: they count"),
        pytest.param({**GROUPS, "g1": "b2"}, {"a/b": "g1"}, "g1", 0.0, 2, id="too few bookies"),
        pytest.param(GROUPS, {"a/b": "nobody"}, "nobody", 0.0, 2, id="a group without members"),
        pytest.param(GROUPS, {"a/b": "/ g1"}, "g1", 0.5, 2, id="secondary groups alone are used like primary ones"),
        pytest.param({"default": "b1 b2"}, {"a/b": "default"}, "default", 0.5, 2, id="a group with the usual name"),
        pytest.param({"default": "b1 b2"}, {"a/b": "default"}, "*", 1.0, 2, id="all bookies beside it"),
        pytest.param(
            GROUPS,
            {"a/b": NamespaceAffinity(ensemble_size=4), "a/c": NamespaceAffinity(ensemble_size=1)},
            "default", 0.5, 4, id="the largest ensemble of its namespaces decides",
        ),
        pytest.param(
            GROUPS, {"a/b": NamespaceAffinity(ensemble_size=1)}, "default", 1.0, 2, id="no policy names more"
        ),
    ],
)  # fmt: skip
def test_a_groups_bookies_are_those_on_which_its_namespaces_may_place_data(
    groups: dict[str, str] | None, namespaces: dict[str, Any], group: str, factor: float, ensemble: int
) -> None:
    decided = run_of(racks(0, groups), affinity(0, namespaces)).last(group)
    assert (decided.factor, decided.ensemble) == (factor, ensemble)


def test_a_group_without_namespaces_is_decided_on_a_last_time() -> None:
    run = run_of(racks(0, GROUPS), affinity(0, {"a/b": "g1"}))
    run.see(affinity(10, {"a/b": "g2"})).until(19)
    assert run.verdict("g1") == (0.5, "soft_limit"), "one reading does not end a group"
    run.see(affinity(20, {"a/b": "g2"})).until(200_000)
    last = run.last("g1")
    assert (last.factor, last.previous_factor, last.reason, last.valid_until) == (1.0, 0.5, "group_ended", None)
    assert len(run.decided("g1")) == 2


WRONG = {
    "no groups": racks(10, {}),
    "the znode of the groups is absent": racks(10, None, Outcome.ABSENT),
    "another group in its place": racks(10, {"g3": "b1 b2", "g2": "b3 b4"}),
    "too few members": racks(10, {**GROUPS, "g1": "b1"}),
    "members of another cluster": racks(10, {**GROUPS, "g1": "b51 b52"}),
    "no namespaces": affinity(10, {}),
    "the znode of the affinities is absent": affinity(10, {}, outcome=Outcome.ABSENT),
    "no namespace of the group": affinity(10, {"a/two": "g2"}),
    "another affinity": affinity(10, {"a/one": "g2", "a/two": "g2"}),
    "a smaller ensemble": affinity(10, {"a/one": "g1"}),
}
"""Readings that would open the gate of the group, or stop it, if one were enough."""


@for_each("free", [{"b1": 16, "b2": 50, "b3": 60}, {"b1": 60, "b2": 5, "b3": 14}], ids=["two", "three"])
@for_each("wrong", WRONG.values(), ids=WRONG)
def test_one_wrong_reading_of_groups_or_affinities_moves_no_factor(wrong: Observation, free: dict[str, float]) -> None:
    """With ensembles of three, the third best of three decides: fewer bookies, or smaller ensembles, would move it."""
    members, ensemble = ("b1 b2", 2) if free["b1"] == 16 else ("b1 b2 b3", 3)
    needs = NamespaceAffinity(primary=("g1",), ensemble_size=ensemble)
    right = (racks(0, {**GROUPS, "g1": members}), affinity(0, {"a/one": needs, "a/two": "g2"}))
    run = Run(settings(QUIET, NO_PATIENCE)).see(*right, *all_disks(0, b4=70, **free))
    before = run.verdict("g1")
    assert run.see(wrong).verdict("g1") == before
    run.see(racks(20, {**GROUPS, "g1": members}), affinity(20, {"a/one": needs, "a/two": "g2"}))
    assert {each.factor for each in run.decided("g1")} == {before[0]}


def test_namespaces_without_affinity_are_placed_on_the_brokers_own_groups() -> None:
    placed = affinity(0, {"a/one": "", "a/two": "g2", "a/three": "*"}, broker_groups="g1 / g2")
    run = run_of(racks(0, {**GROUPS, "g1": "b2"}), placed, ensemble=1)
    assert run.last("g1").namespaces.first == ("a/one",)
    assert {group: run.verdict(group)[0] for group in ("g1", "g2", "default")} == {"g1": 0.5, "g2": 1.0, "default": 1.0}
    more = run_of(racks(0, {**GROUPS, "g1": "b2"}), placed)
    assert more.verdict("g1") == (1.0, "above_limits"), "too few primary ones: secondary ones count"


@pytest.mark.parametrize(
    "then",
    [
        affinity(-1, {"a/one": "g2"}),
        affinity(1, {"a/one": "g2"}, outcome=Outcome.TIMEOUT),
        racks(-1, {"g1": "b3 b4"}),
        racks(1, {"g1": "b3 b4"}, Outcome.TIMEOUT),
    ],
    ids=["an older affinity", "a failed one", "older groups", "failed ones"],
)
def test_an_old_or_failed_reading_changes_no_group(then: Observation) -> None:
    run = run_of(racks(0, GROUPS), affinity(0, {"a/one": "g1"}))
    assert run.see(then, seconds=2).verdict("g1") == (0.5, "soft_limit")
    assert not run.decided("g2")


def test_a_reading_that_comes_twice_does_not_confirm_itself() -> None:
    odd = racks(5, {"g1": "b2 b3"})
    once = fold(BookieDisksCluster(), [racks(0, GROUPS), odd])
    assert fold(once, [odd]) == once


# Forged or broken readings fill a cluster's state up to its bounds only.


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(volumes, "MOST_TOGETHER", 6)
    return Run(settings(hard={"available_bytes_below": "5GB"}))


def test_bookies_and_dirs_beyond_the_bound_are_refused(run: Run) -> None:
    many = [disks(1, f"forged-{n}", 50, id=f"forged-{n}") for n in range(5)]
    why = "more than 6 servers and volumes of one cluster"
    assert run.step(many, at(1)).refused == dict.fromkeys(("forged-3", "forged-4"), why)
    wide = disks(2, "forged-0", {"/data": 50, "/more": 50}, id="wide")
    step = run.step([wide, disks(2, "forged-1", 49)], at(2))
    assert step.refused == {"wide": why}
    assert [bookie.name for bookie in step.state.cluster.bookies] == ["forged-0", "forged-1", "forged-2"]


@pytest.mark.parametrize(
    ("bound", "why"),
    [("MOST_GROUPS", "more than 2 placement groups"), ("MOST_PLACED", "more than 2 bookies of all placement groups")],
)
def test_readings_that_make_too_many_groups_leave_the_groups_as_they_were(
    run: Run, monkeypatch: pytest.MonkeyPatch, bound: str, why: str
) -> None:
    monkeypatch.setattr(state, bound, 2)
    groups = racks(1, {"g1": "a", "g2": "b", "g3": "c"})
    run.step([disks(1, "a", 50), groups, affinity(1, {"t/one": "g1", "t/two": "g2"})], at(1))
    step = run.step([affinity(2, {"t/one": "g1", "t/two": "g2", "t/three": "g3"})], at(2))
    assert [id_ for id_, text in step.refused.items() if text.startswith(why)] == ["affinity@2"]
    assert [group.name for group in step.state.groups] == ["default", "g1", "g2"]
    assert run.step([affinity(3, {"t/one": "g1"})], at(3)).refused == {}


def test_larger_groups_are_refused_though_the_namespaces_are_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_PLACED", 2)
    run.step([disks(1, "a", 50), racks(1, {"g1": "a"}), affinity(1, {"t/one": "g1"})], at(1))
    assert list(run.step([racks(2, {"g1": "a b c"})], at(2)).refused) == ["racks@2"]
