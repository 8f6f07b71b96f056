"""Which decisions the executor hands on to the reconciler of their cluster."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, cast

import pytest

from connectors.actuation.actuator import LoopTopics
from connectors.switching.io import SwitchExecutor
from connectors.switching.reconciler import SwitchReconciler
from policies.switching.decisions import SwitchDecision, SwitchRecord, SwitchVerdict
from policies.units import to_millis
from policies.wire import decision_event
from tests.cases import for_each
from tests.connectors.actuation.tail import CONNECTION, record
from tests.connectors.switching.orders import order

NOW = datetime.now(UTC)
LATER = NOW + timedelta(seconds=1)
DECIDED = "headgate.decided.switches"


class RecordingReconciler:
    """Notes what it receives."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def receive(self, received: SwitchDecision | SwitchRecord) -> None:
        self.received.append(received.sequence)

    def run(self, stop: Event) -> None:
        """There is nothing to do."""

    def wake(self) -> None:
        """There is nobody to wake."""


def received(*orders: SwitchDecision) -> list[int]:
    """The sequences of those that are handed on."""
    topics = LoopTopics(CONNECTION, DECIDED, "headgate.audit")
    reconciler = RecordingReconciler()
    executor = SwitchExecutor(topics, {"c1": cast("SwitchReconciler", reconciler)}, ExitStack())
    for one in orders:
        executor._receive(record(DECIDED, decision_event(one), to_millis(NOW)))
    return reconciler.received


def given(sequence: int, **more: Any) -> SwitchDecision:
    return order(SwitchVerdict.START_COPY, sequence=sequence, **more)


@for_each(
    ("orders", "expected"),
    [
        pytest.param([given(5), given(4), given(6)], [5, 6], id="a late one"),
        pytest.param([given(5), given(4, decided_at=LATER)], [5, 4], id="one made after a forged one"),
        pytest.param([given(5), given(4, ledger_id=8)], [5, 4], id="about another ledger"),
        pytest.param([given(5, cluster="c2")], [], id="of another cluster"),
    ],
)
def test_only_what_succeeds_the_decision_in_force_is_handed_on(
    orders: list[SwitchDecision], expected: list[int]
) -> None:
    assert received(*orders) == expected
