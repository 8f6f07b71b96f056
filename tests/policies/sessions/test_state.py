"""Bundles are ranges: what others cover was split or merged, and is neither an orphan nor to be owned again."""

from hypothesis import given
from hypothesis import strategies as st

from policies.sessions.state import NodeRecord, find_replaced
from tests.cases import for_each
from tests.policies.sessions.course import Run, node, session, tree

NS = "/namespace/t/ns"


def path(low: int, high: int, namespace: str = NS) -> str:
    return f"{namespace}/0x{low:08x}_0x{high:08x}"


PARENT, LEFT, RIGHT = path(8, 16), path(8, 12), path(12, 16)


def record(name: str, *, exists: bool = True, changed_ms: int = 0) -> NodeRecord:
    return NodeRecord(name, 100, "n", exists=exists, changed_ms=changed_ms)


@for_each(
    ("others", "expected"),
    [
        ([], (False, False)),
        ([record(LEFT), record(RIGHT)], (True, True)),
        ([record(path(0, 32))], (True, True)),
        ([record(LEFT)], (True, False)),
        ([record(path(16, 24))], (False, False)),
        ([record(path(8, 16, "/namespace/t/other"))], (False, False)),
        ([record(LEFT, exists=False, changed_ms=60), record(RIGHT, exists=False, changed_ms=60)], (True, True)),
        ([record(LEFT, exists=False, changed_ms=40), record(RIGHT, exists=False, changed_ms=40)], (False, False)),
        ([record(f"{NS}/leader")], (False, False)),
        ([record(path(12, 20), exists=False, changed_ms=40), record(path(16, 24))], (False, False)),
        ([record(path(4, 12), exists=False, changed_ms=40), record(path(0, 8))], (False, False)),
    ],
    ids=[
        "alone", "split", "merged", "half of it has an owner", "a neighbour", "another namespace",
        "split, and then its owner lost all", "gone before", "a name that is no range",
        "a neighbour of one that was gone before", "one on the other side",
    ],
)  # fmt: skip
def test_which_absent_bundles_are_replaced(others: list[NodeRecord], expected: tuple[bool, bool]) -> None:
    found = find_replaced([record(PARENT, exists=False, changed_ms=50), *others])
    assert (PARENT in found, found.get(PARENT, False)) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 31), st.booleans(), st.integers(0, 3)), max_size=12))
def test_a_bundle_is_covered_exactly_if_every_point_of_it_is(drawn: list[tuple[int, int, bool, int]]) -> None:
    nodes = {
        path(low, high): record(path(low, high), exists=exists, changed_ms=changed)
        for low, high, exists, changed in drawn
        if low < high
    }
    found = find_replaced(nodes.values())
    for low, high, *_ in drawn:
        name = path(low, high)
        if low >= high or nodes[name].exists:
            continue
        newer = [
            (a, b) for a, b, *_ in drawn
            if a < b and path(a, b) != name
            and (nodes[path(a, b)].exists or nodes[path(a, b)].changed_ms > nodes[name].changed_ms)
        ]  # fmt: skip
        points = [any(a <= p < b for a, b in newer) for p in range(low, high)]
        assert (name in found, found.get(name, False)) == (any(points), all(points))
    assert find_replaced([]) == {}


def healthy() -> Run:
    return Run().together(session(0, "b1", "connected", "0xb1"), session(0, "b2", "connected", "0xb2"))


def test_a_split_in_a_healthy_cluster_is_no_orphan_and_no_order() -> None:
    run = healthy().see(tree(1, node("b1", "0xb1", PARENT)))
    for second in range(5, 400, 5):
        run.see(tree(second, node("b1", "0xb1", LEFT), node("b2", "0xb2", RIGHT)))
        run.see(*[session(second, m, "connected", f"0x{m}") for m in ("b1", "b2")])
    assert run.published == []


def test_nothing_is_decided_about_a_parent_whose_children_are_owned() -> None:
    run = healthy().see(tree(1, node("b1", "0xb1", PARENT)), session(2, "b1", "disconnected", "0xb1"))
    run.see(tree(3, node("b2", "0xb2", LEFT), node("b2", "0xb2", RIGHT)))
    run.see(session(10, "b1", "expired", "0xb1"), session(12, "b1", "connected", "0xnew"))
    run.see(tree(15, node("b2", "0xb2", LEFT), node("b2", "0xb2", RIGHT))).until(20)
    assert PARENT not in {d.path for d in run.bundles}
    assert run.told("b1")[-1][1] == "resume recovered"


def test_a_broker_that_split_a_bundle_and_lost_its_session_owns_the_children_again() -> None:
    run = healthy().see(tree(1, node("b1", "0xb1", PARENT)))
    run.see(tree(3, node("b1", "0xb1", LEFT), node("b1", "0xb1", RIGHT)), session(10, "b1", "expired", "0xb1"))
    run.see(tree(11), session(12, "b1", "connected", "0xnew"), tree(15))
    assert {d.path for d in run.bundles if d.verdict == "re-own"} == {LEFT, RIGHT}
