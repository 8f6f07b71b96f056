"""Who belongs to the cluster, and when a broker left it."""

import pytest

from policies.observations import Observation, Outcome
from policies.throttle.fold import fold
from policies.units import to_millis
from tests.cases import for_each
from tests.policies.scenario import GB, at, log_dirs, members
from tests.policies.throttle.known import A, counting, folded, freshness


def test_a_broker_left_when_a_membership_first_lacked_it_though_later_ones_are_in_the_same_batch() -> None:
    known = folded([log_dirs(0, 1, 0), members(20, 2), members(30, 2), members(40, 2)])
    assert known.brokers[0].left_ms == to_millis(at(20))


@for_each(
    ("membership", "kind"),
    [
        pytest.param(members(20, 2), "departed", id="a newer one without it"),
        pytest.param(members(20, 1, 2), "fresh", id="a newer one with it"),
        pytest.param(members(10, 2), "departed", id="one as new as its reading"),
        pytest.param(members(5, 2), "fresh", id="an older one without it"),
        pytest.param(members(20, outcome=Outcome.UNREACHABLE), "fresh", id="one that could not be read"),
        pytest.param(members(20), "departed", id="one without any broker"),
    ],
)
def test_a_broker_leaves_by_a_membership_as_new_as_its_last_reading(membership: Observation, kind: str) -> None:
    for course in ([[log_dirs(10, 1, 3 * GB)], [membership]], [[membership], [log_dirs(10, 1, 3 * GB)]]):
        assert freshness(folded(*course), 20) == {(1, A): kind}


def test_an_older_membership_changes_nothing() -> None:
    known = folded([log_dirs(0, 1, 3 * GB)], [members(20, 1)])
    assert fold(known, [members(10, 2)]) == known


@pytest.mark.parametrize("back", [members(30, 1), log_dirs(30, 1, 3 * GB)], ids=["a member again", "read again"])
def test_a_broker_that_returns_is_there_again(back: Observation) -> None:
    known = folded([log_dirs(0, 1, 3 * GB)], [members(20, 2)], [back])
    assert freshness(known, 30) == {(1, A): "fresh"}
    assert known.brokers[0].left_ms is None


def test_a_broker_that_leaves_again_is_held_from_then_on() -> None:
    course = [[log_dirs(0, 1, 0)], [members(20, 2)], [members(30, 1, 2)], [members(40, 2)]]
    assert counting(folded(*course), 40)[1, A].departed_ms == to_millis(at(40))


def test_further_memberships_do_not_prolong_the_hold() -> None:
    known = folded([log_dirs(0, 1, 0)], [members(20, 2)], [members(1000, 2)])
    assert counting(known, 1000)[1, A].departed_ms == to_millis(at(20))
