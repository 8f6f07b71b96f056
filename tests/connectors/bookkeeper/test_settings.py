"""The block `bookkeeper` of a cluster's settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from connectors.bookkeeper.settings import BookKeeperClusters
from policies.switching.precheck import Rules, TargetPolicy
from policies.switching.references import Kind

TWO: dict[str, Any] = {"bootstrap": "old", "clusters": {"old": {}, "new": {"zookeeper": {"servers": "zk9:2181"}}}}


def clusters(**more: Any) -> BookKeeperClusters:
    return BookKeeperClusters.model_validate({**TWO, **more})


def test_brokers_write_to_the_bootstrap_cluster_until_another_is_active() -> None:
    assert clusters().source == "old"
    assert clusters(active="new").source == "new"


def test_a_dedicated_target_and_the_same_ids_are_the_default() -> None:
    assert clusters().rules() == Rules(policy=TargetPolicy.DEDICATED, validity_ms=600_000)
    changed = clusters(
        target_policy="shared", strategies={"schema": "remap", "cursor": "same_id"}, precheck_validity="1m"
    )
    assert changed.rules() == Rules(policy=TargetPolicy.SHARED, validity_ms=60_000, remapped=frozenset({Kind.SCHEMA}))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown bootstrap": ({"bootstrap": "odl"}, "bootstrap: clusters has no odl; it has old, new"),
    "an unknown active one": ({"active": "odl"}, "active: clusters has no odl"),
    "no cluster": ({"clusters": {}}, "at least 1 item"),
    "a root that ends in a slash": ({"clusters": {"old": {"ledgers_root": "/ledgers/"}}}, "ledgers_root"),
    "an unknown kind": ({"strategies": {"topic": "remap"}}, "topic"),
}


@pytest.mark.parametrize(("more", "why"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        clusters(**more)
