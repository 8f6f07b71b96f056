"""The state: the same after a trip through the store, also one that a program with other names wrote."""

import json
from pathlib import Path
from typing import Any

import msgspec

from policies.isolation.decisions import QuarantineReason
from policies.isolation.state import IsolationState
from policies.registry import POLICIES


def _written(name: str) -> Any:
    return json.loads((Path(__file__).parent / name).read_text())


def test_fields_that_were_appended_mean_what_their_lack_meant() -> None:
    """`state_v1_longer.json`: the state of `state_v1.json`, written when fields had been appended to it."""
    longer = msgspec.convert(_written("state_v1_longer.json"), IsolationState)
    assert msgspec.convert(_written("state_v1.json"), IsolationState) == longer


def test_a_state_of_this_version_is_read_as_it_was_written_under_other_names() -> None:
    """`state_v1.json`: written when this version was new; fields have their places, names may change."""
    state = msgspec.convert(_written("state_v1.json"), IsolationState)
    assert POLICIES["isolation"].state_version == 1
    assert state.cluster.membership().writable == {"bk1", "bk11"}
    assert [(order.bookie, order.reason) for order in state.orders] == [("bk11", QuarantineReason.WOULD_BE_INFEASIBLE)]
    assert [p.namespaces for p in state.published] == [("acme/a",)]
