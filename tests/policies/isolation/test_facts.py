"""What is known as of a moment: which readings count, and which of them is the newest."""

import pytest

from policies.isolation.facts import IsolationFacts, join_facts
from policies.isolation.fold import fold
from policies.isolation.state import BookieClusterState
from policies.observations import Observation, Outcome
from tests.cases import for_each
from tests.policies.isolation.scenario import CLUSTER, affinity, at, bookies, isolation, racks

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


def test_a_bookie_in_the_quarantine_group_is_quarantined() -> None:
    assert facts(10, *read(1, 2, 3)).quarantined == {"bk2"}


@pytest.mark.parametrize(("known", "kept"), [("a", "ab"), ("", "")], ids=["half is new", "all is new"])
def test_new_namespaces_count_at_once_unless_most_are_new(known: str, kept: str) -> None:
    before = affinity(10, dict.fromkeys(known, "g"))
    found = facts(30, bookies(10, "bk1"), racks(10, QUARANTINED), before, affinity(20, dict.fromkeys("ab", "g")))
    assert "".join(name for cohort in found.known.cohorts for name in cohort.namespaces) == kept


def test_the_newest_good_reading_is_the_first_evidence() -> None:
    found = facts(10, *read(1, 3, 2), bookies(5, "", outcome=Outcome.TIMEOUT))
    assert found.evidence == ("racks@3", "affinity@2", "bookies@1")
