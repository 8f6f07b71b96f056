"""Forged or broken readings fill a cluster's state up to its bounds only."""

import pytest

from policies.bookie_disks import state
from policies.free_space import volumes
from tests.policies.bookie_disks.scenario import Run, disks, settings
from tests.policies.cases_of_bookies import affinity, racks
from tests.policies.virtual_run import at


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
