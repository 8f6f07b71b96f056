"""What the Pulsar actuator learns before it begins: the decisions in force, and which of them were carried out."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from threading import Event

import httpx
import pytest
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.tail import Record
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.registration import UnloadSettings
from connectors.sessions.unload import UnloadActuator, UnloadMetrics, UnloadWorker
from policies.sessions.decisions import OwnershipDecision
from policies.sessions.readings import BundleUnloaded, UnloadOutcome
from policies.units import to_millis
from policies.wire import actuator_event, decision_event
from tests.cases import for_each
from tests.connectors.actuation.tail import CONNECTION, FakeTail, record
from tests.connectors.sessions.unload.orders import BUNDLE, CLUSTER, decision

DECIDED, AUDIT = "headgate.decided.sessions", "headgate.audit"
NOW = datetime.now(UTC).replace(microsecond=0)
EARLIER = NOW - timedelta(minutes=3)
PATIENT = UnloadSettings.model_validate({"grace": "1h"})
"""Nothing is begun while a test looks."""


def nobody(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"nobody is to be asked {request.url}")


class MemoryActuator(UnloadActuator):
    """Follows topics in memory, and stops as soon as it has begun."""

    def __init__(self, *audit: Record) -> None:
        self.stop = Event()
        self.order = decision(decided_at=EARLIER, valid_until=NOW + timedelta(hours=1))
        self.followed: list[Mapping[str, timedelta | None]] = []
        record_of_order = record(DECIDED, decision_event(self.order), to_millis(NOW))
        self.tails = [FakeTail([[record_of_order]], at_end=self.stop.set), FakeTail([audit])]
        admin = AdminApi(PulsarAdmin(admin_url="http://any:8080"), httpx.MockTransport(nobody))
        worker = UnloadWorker(CLUSTER, admin, PATIENT, lambda *_: None, UnloadMetrics(CollectorRegistry()))
        super().__init__(LoopTopics(CONNECTION, DECIDED, AUDIT), {CLUSTER: worker})

    def _open_tail(self, histories: Mapping[str, timedelta | None]) -> FakeTail:
        self.followed.append(histories)
        return self.tails[len(self.followed) - 1]


def report(order: OwnershipDecision, outcome: UnloadOutcome, cluster: str = CLUSTER) -> Record:
    said = BundleUnloaded(
        cluster=cluster, member=order.member, bundle=BUNDLE, decision_id=order.decision_id, sequence=1,
        outcome=outcome, attempt=1,
    )  # fmt: skip
    return record(AUDIT, actuator_event(said, id="x", at=NOW), to_millis(NOW))


ORDER = MemoryActuator().order


@for_each(
    ("audit", "is_pending"),
    [
        pytest.param([], True, id="nothing was done"),
        pytest.param([report(ORDER, UnloadOutcome.DONE)], False, id="it was done"),
        pytest.param([report(ORDER, UnloadOutcome.FAILED)], True, id="it could not be done"),
        pytest.param([report(decision(sequence=2), UnloadOutcome.DONE)], True, id="another one was done"),
        pytest.param([report(ORDER, UnloadOutcome.DONE, cluster="other")], True, id="another cluster"),
        pytest.param([record(AUDIT, b"{"), record(AUDIT, None)], True, id="records that say nothing"),
    ],
)
def test_what_was_carried_out_before_the_start_is_not_pending_any_more(audit: list[Record], is_pending: bool) -> None:
    actuator = MemoryActuator(*audit)
    actuator.run(actuator.stop)
    assert actuator._by_cluster[CLUSTER].pending_since == (actuator.order.decided_at if is_pending else None)
    assert all(tail.is_closed for tail in actuator.tails)


def test_the_audit_is_read_back_to_the_oldest_decision_that_is_pending() -> None:
    actuator = MemoryActuator()
    actuator.run(actuator.stop)
    decided, audit = actuator.followed
    assert decided == {DECIDED: None}
    history = audit[AUDIT]
    assert history is not None
    assert timedelta(minutes=4) <= history < timedelta(minutes=20)


def test_without_anything_pending_the_audit_is_not_read() -> None:
    actuator = MemoryActuator()
    actuator.tails[0] = FakeTail([[]], at_end=actuator.stop.set)
    actuator.run(actuator.stop)
    assert actuator.followed == [{DECIDED: None}]
