"""The block `bookkeeper` of a cluster's settings, and how many bookies copies have."""

from contextlib import nullcontext
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.bookkeeper.settings import BookKeeperClusters, CopyReplication
from tests.cases import for_each

TWO: dict[str, Any] = {"bootstrap": "old", "clusters": {"old": {}, "new": {"zookeeper": {"servers": "zk9:2181"}}}}


def clusters(**more: Any) -> BookKeeperClusters:
    return BookKeeperClusters.model_validate({**TWO, **more})


def test_a_path_with_ledgers_can_be_left_out() -> None:
    assert clusters(leave_out=["/managed-ledgers/t"]).leave_out == ("/managed-ledgers/t",)


def test_brokers_write_to_the_bootstrap_cluster_until_another_is_active() -> None:
    assert clusters().source == "old"
    assert clusters(active="new").source == "new"


@pytest.mark.parametrize("name", ["a", "2024", "dc-1.old_2", "x" * 63])
def test_a_name_that_a_znode_can_have_is_taken(name: str) -> None:
    assert clusters(clusters={"old": {}, name: {}}).clusters.keys() == {"old", name}


@for_each("name", ["", "-old", ".", "a/b", "zoë", "a b", "old\n", "x" * 64])
def test_a_name_that_no_znode_should_have_is_refused_at_its_place(name: str) -> None:
    with pytest.raises(ValidationError, match="becomes the name of a znode") as refused:
        clusters(clusters={"old": {}, name: {}})
    (mistake,) = refused.value.errors()
    assert mistake["loc"] == ("clusters", name, "[key]")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown bootstrap": ({"bootstrap": "odl"}, "bootstrap: clusters has no odl; it has old, new"),
    "an unknown active one": ({"active": "odl"}, "active: clusters has no odl"),
    "no cluster": ({"clusters": {}}, "at least 1 item"),
    "a root that ends in a slash": ({"clusters": {"old": {"ledgers_root": "/ledgers/"}}}, "ledgers_root"),
    "a path that names no ledgers": ({"leave_out": ["/loadbalance/brokers"]}, "only paths below /schemas"),
    "what the policy's settings say": ({"target_policy": "shared"}, "target_policy"),
}


@pytest.mark.parametrize(("more", "why"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        clusters(**more)


@for_each(
    ("sizes", "is_refused"),
    [((3, 3, 3), False), ((3, 2, 1), False), ((2, 3, 1), True), ((3, 1, 2), True), ((0, 0, 0), True)],
)
def test_sizes_of_copies_fit_each_other(sizes: tuple[int, int, int], is_refused: bool) -> None:
    block = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with pytest.raises(ValidationError) if is_refused else nullcontext():
        CopyReplication.model_validate(block)
