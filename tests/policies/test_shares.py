"""Which share a cluster belongs to: agreed on by all processes and versions, and spread well."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.wire import SHARE_COUNT, clusters_in, share_of

NAMES = st.text(min_size=1, max_size=40)


@pytest.mark.parametrize(("cluster", "share"), [("payments", 6), ("orders", 2), ("c0", 3), ("c1", 5), ("größe", 5)])
def test_the_share_of_a_name_is_pinned(cluster: str, share: int) -> None:
    """Processes of two versions that run at once must agree."""
    assert share_of(cluster) == share


@given(st.lists(NAMES, unique=True), st.sets(st.integers(0, SHARE_COUNT - 1)))
def test_each_cluster_is_in_exactly_one_of_two_parts_whoever_else_there_is(names: list[str], some: set[int]) -> None:
    rest = set(range(SHARE_COUNT)) - some
    mine, others = clusters_in(some, names), clusters_in(rest, names)
    assert mine | others == set(names)
    assert not mine & others
    assert clusters_in(some, names[:1]) == mine & set(names[:1])


def test_many_clusters_are_spread_over_all_shares() -> None:
    sizes = Counter(share_of(f"cluster-{number}") for number in range(1200))
    assert set(sizes) == set(range(SHARE_COUNT))
    assert max(sizes.values()) < 1.35 * 1200 / SHARE_COUNT
