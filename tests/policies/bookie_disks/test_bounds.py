"""Forged or broken readings fill a cluster's state up to its bounds only, and take no room from its own bookies."""

import pytest

from policies.book import Published
from policies.bookie_disks import policy, state
from policies.bookie_disks.state import BookieDisksState
from tests.policies.bookie_disks.scenario import Run, disks, settings
from tests.policies.cases_of_bookies import affinity, racks, registered
from tests.policies.virtual_run import at

FEW = policy.BOUNDS._replace(most_servers=3, most_volumes=5)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(policy, "BOUNDS", FEW)
    return Run(settings(hard={"available_bytes_below": "5GB"}))


def bookies_of(step: Published[BookieDisksState]) -> list[str]:
    return [bookie.name for bookie in step.state.cluster.bookies]


def test_bookies_and_dirs_beyond_the_bounds_are_refused_each_by_name(run: Run) -> None:
    many = [disks(1, f"forged-{n}", 50, id=f"forged-{n}") for n in range(5)]
    wide = disks(2, "forged-0", {f"/l{n}": 50 for n in range(9)}, id="wide")
    assert run.step(many, at(1)).refused == dict.fromkeys(("forged-3", "forged-4"), "more than 3 bookies")
    step = run.step([wide], at(2))
    assert step.refused == {"wide": "more than 5 ledger dirs"}
    assert bookies_of(step) == ["forged-0", "forged-1", "forged-2"]


def test_registered_bookies_have_room_whatever_was_forged_before(run: Run) -> None:
    run.step([disks(1, f"forged-{n}", {"/a": 50, "/b": 50}) for n in range(2)], at(1))
    run.step([disks(2, "forged-2", 50), registered(2, "a b")], at(2))
    step = run.step([disks(3, "a", 1), disks(3, "b", {"/l": 1, "/m": 1})], at(3))
    assert step.refused == {}
    assert {"a", "b"} < set(bookies_of(step))


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
