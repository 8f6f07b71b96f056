"""Groups multiply by the affinities that name them; a reading that makes too much of that is refused by itself."""

import pytest

from policies.isolation import state
from policies.observations import Observation
from tests.policies.isolation.scenario import BASE, GROUPS, NAMESPACES, Run, affinity, at, bookies, racks

WIDE_GROUPS = {group: " ".join(f"bk{n}" for n in range(9)) for group in GROUPS}
MANY = {f"acme/n{n}": " ".join(f"g{n} default".split()) for n in range(9)}
ALIKE = {f"acme/n{n}": "default shared" for n in range(1000)}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(state, "MOST_PLACED", 10)
    run = Run({"confirm_after": "0s"})
    assert run.step([bookies(0, BASE), racks(0, GROUPS), affinity(0, NAMESPACES)], at(0)).refused == {}
    return run


@pytest.mark.parametrize(
    "wide", [racks(1, WIDE_GROUPS, id="wide"), affinity(1, MANY, id="wide")], ids=["racks", "affinity"]
)
def test_a_reading_beyond_the_bound_is_refused_and_changes_nothing(run: Run, wide: Observation) -> None:
    before = run.state
    assert before is not None
    step = run.step([wide, bookies(1, BASE)], at(1))
    assert step.refused == {"wide": "more than 10 bookies in the groups of all affinities together"}
    assert (step.state.cluster.groups, step.state.cluster.cohorts) == (before.cluster.groups, before.cluster.cohorts)
    assert run.step([racks(2, GROUPS), affinity(2, NAMESPACES)], at(2)).refused == {}


def test_namespaces_with_one_affinity_count_once(run: Run) -> None:
    assert run.step([affinity(1, ALIKE)], at(1)).refused == {}
