"""The least of things whose rank changes."""

from hypothesis import given
from hypothesis import strategies as st

from policies.least_first import LeastFirst

changes = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)), max_size=300)


@given(changes)
def test_the_least_is_that_of_all_ranks_in_force(changes: list[tuple[int, int | None]]) -> None:
    order, ranks = LeastFirst[int, int](), dict[int, int]()
    for key, rank in changes:
        order.put(key, rank)
        ranks.pop(key, None)
        if rank is not None:
            ranks[key] = rank
        assert order.least() == min(((r, k) for k, r in ranks.items()), default=None)
        assert (dict(order.items()), len(order), key in order) == (ranks, len(ranks), key in ranks)
        assert order.get(key) == rank


def test_what_no_longer_holds_takes_no_more_room_than_the_rest() -> None:
    order = LeastFirst[int, int]()
    order.put(0, 0)  # below all others, so none of them ever comes up
    for rank in range(1, 10_000):
        order.put(1, rank)
    assert len(order._heap) <= 2 * len(order) + 64
