"""The last good reading of each node, and who owned it before."""

from policies.observations import Observation
from policies.sessions.fold import OwnershipNodes
from policies.sessions.readings import Ownership, Ownerships, registration_path
from policies.sessions.session_machine import Timeouts
from policies.sessions.state import NodeRecord
from policies.units import to_millis
from tests.policies.sessions.course import BUNDLE, absent, at, node, owned, tree

OTHER = "/namespace/t/ns/0x40000000_0x80000000"


def folded(*readings: Observation, expected: tuple[str, ...] = ()) -> OwnershipNodes:
    nodes = OwnershipNodes((), Timeouts(180_000, 300_000))
    for seen in readings:
        if isinstance(seen.reading, Ownerships):
            nodes.fold_tree(seen, seen.reading, expected)
        else:
            assert isinstance(seen.reading, Ownership)
            nodes.fold(seen, seen.reading)
    return nodes


def last(*readings: Observation) -> NodeRecord:
    record = folded(*readings).by_path.get(BUNDLE)
    assert record is not None
    return record


def test_the_last_reading_counts_and_a_failed_one_tells_nothing() -> None:
    first = last(owned(5, "b1", "0xa"))
    assert last(owned(5, "b1", "0xa"), owned(4, "b2", "0xb")) == first
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xb", outcome="timeout")) == first


def test_the_owner_before_the_present_one_is_remembered() -> None:
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xb")).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9)).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9), owned(12, "b2", "0xb")).prior == "b1"
    assert last(owned(5, "b1", "0xa"), absent(9), owned(12, "b1", "0xb")).prior is None
    assert last(owned(5, "b1", "0xa"), owned(9, None, "0xa")).prior == "b1"


def test_a_change_is_another_owner_or_an_absence_and_not_another_reading() -> None:
    assert last(owned(5, "b1", "0xa"), owned(9, "b1", "0xb")).changed_ms == to_millis(at(5))
    assert last(owned(5, "b1", "0xa"), owned(9, None, "0xa")).changed_ms == to_millis(at(5))
    assert last(owned(5, "b1", "0xa"), owned(9, "b2", "0xa")).changed_ms == to_millis(at(9))
    assert last(owned(5, "b1", "0xa"), absent(9), absent(12)).changed_ms == to_millis(at(9))


def test_readings_that_could_not_tell_its_value_are_counted_until_one_can() -> None:
    unreadable = [owned(n, None, "0xa") for n in (5, 6, 7)]
    assert last(*unreadable).unreadable_times == 3
    assert last(*unreadable, owned(9, "b1", "0xa")).unreadable_times == 0


def test_what_a_tree_does_not_list_is_absent() -> None:
    nodes = folded(owned(5, "b1", "0xa"), owned(5, "b2", "0xb", OTHER), tree(9, node("b2", "0xb", OTHER)))
    assert {path: record.exists for path, record in nodes.by_path.items()} == {BUNDLE: False, OTHER: True}


def test_a_registration_that_is_expected_and_not_listed_is_absent_from_then_on() -> None:
    path = registration_path("b1")
    record = folded(tree(9, name="/loadbalance/brokers"), expected=(path,)).by_path.get(path)
    assert record is not None
    assert (record.exists, record.changed_ms) == (False, to_millis(at(9)))
    assert folded(tree(9), expected=(path,)).by_path.get(path) is None


def test_the_leader_s_node_is_nobody_s_to_own() -> None:
    assert folded(owned(5, "b1", "0xa", "/loadbalance/leader")).by_path == {}


def test_a_member_s_bundles_are_those_it_owns_or_was_the_last_to_own() -> None:
    nodes = folded(owned(5, "b1", "0xa"), owned(9, "b2", "0xb"), owned(9, "b1", "0xa", registration_path("b1")))
    assert [record.path for record in nodes.find_bundles("b1")] == [BUNDLE]
    assert [record.path for record in nodes.find_bundles("b2")] == [BUNDLE]
    assert nodes.find_bundles("b3") == []
    assert [record.path for record in nodes.bundles()] == [BUNDLE]
