"""The state: the same after a trip through the store, also one that a program with other names wrote."""

import json
from pathlib import Path

import msgspec

from policies.isolation.decisions import QuarantineReason
from policies.isolation.state import IsolationState
from policies.registry import POLICIES


def test_a_state_of_this_version_is_read_as_it_was_written_under_other_names() -> None:
    """`state_v1.json`: written when this version was new; fields have their places, names may change."""
    written = json.loads((Path(__file__).parent / "state_v1.json").read_text())
    state = msgspec.convert(written, IsolationState)
    assert POLICIES["isolation"].state_version == 1
    assert json.loads(msgspec.json.encode(state)) == written
    assert state.cluster.membership().writable == {"bk1", "bk11"}
    assert [(order.bookie, order.reason) for order in state.orders] == [("bk11", QuarantineReason.WOULD_BE_INFEASIBLE)]
    assert [p.namespaces for p in state.published] == [("acme/a",)]
