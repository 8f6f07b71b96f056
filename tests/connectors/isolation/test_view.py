"""The metrics of the isolation policy, from the policy's own decisions, in virtual time."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from connectors.exporter.loop_view import LoopView
from connectors.isolation.view import IsolationView
from connectors.kafka.tail import Record
from policies.bookie_readings import (
    BookieAffinity,
    BookieRacks,
    BookieRegistration,
    Bookies,
    NamespaceAffinity,
    RackInfo,
)
from policies.isolation import IsolationSettings
from policies.isolation.policy import IsolationPolicy
from policies.observations import Observation, Outcome, Reading
from policies.units import to_millis
from policies.wire import decision_event, observation_event
from tests.connectors.exporter.loop import PREFIX, START, Series, series
from tests.policies.virtual_run import NEVER_STEPPED, step_hosted

CLUSTER = "messaging"
OBSERVED, DECIDED = f"{PREFIX}.observed.bookies", f"{PREFIX}.decided.isolation"


def bookies(*writable: str, read_only: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> Bookies:
    registered, resting = ([BookieRegistration(bookie=b, czxid=1) for b in names] for names in (writable, read_only))
    return Bookies(
        cluster=CLUSTER, outcome=Outcome.OK, writable=tuple(registered), read_only=tuple(resting), known=known
    )


def racks(**groups: tuple[str, ...]) -> BookieRacks:
    members: Mapping[str, dict[str, RackInfo]] = {g: {b: RackInfo(rack="/r") for b in bs} for g, bs in groups.items()}
    return BookieRacks(cluster=CLUSTER, outcome=Outcome.OK, groups=dict(members))


def affinity(**primary: str) -> BookieAffinity:
    namespaces = {f"acme/{name}": NamespaceAffinity(primary=(group,)) for name, group in primary.items()}
    return BookieAffinity(cluster=CLUSTER, outcome=Outcome.OK, namespaces=namespaces)


class Loop:
    """One cluster's policy, and the view that reads what it reads and says."""

    def __init__(self, **settings: Any) -> None:
        block = IsolationSettings.model_validate({"grace": "0s", **settings})
        self.view = LoopView(PREFIX, {"isolation": block})
        self.now = START
        self._policy = IsolationPolicy(CLUSTER, block)
        self._kept = NEVER_STEPPED
        self._read = 0

    def step(self, *readings: Reading, after: float = 0.0) -> None:
        self.now += timedelta(seconds=after)
        batch: list[Record] = []
        observations: list[Observation] = []
        for reading in readings:
            self._read += 1
            observations.append(Observation(f"o{self._read}", self.now, reading))
            value = observation_event(reading, id=f"o{self._read}", source="test", time=self.now)
            batch.append(Record(OBSERVED, CLUSTER.encode(), value, to_millis(self.now)))
        self._kept, step = step_hosted(self._policy, self._kept, observations, self.now)
        for decision in step.decisions:
            key = decision.record_key().encode()
            batch.append(Record(f"{PREFIX}.{decision.topic}", key, decision_event(decision), to_millis(self.now)))
        self.view.fold(batch, live=True)

    def series(self, name: str) -> Series:
        return series(self.view, name, self.now)


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    groups = racks(default=("a:1", "b:1", "gone:1"))
    loop.step(bookies("a:1", "b:1", "new:1", read_only=("ro:1",)), groups, affinity(orders="default"))
    return loop


def test_bookies_are_counted_by_state_and_by_whether_they_are_in_a_group(loop: Loop) -> None:
    assert loop.series("headgate_bookies") == {
        (CLUSTER, "writable", "true"): 2,
        (CLUSTER, "writable", "false"): 1,
        (CLUSTER, "read_only", "true"): 0,
        (CLUSTER, "read_only", "false"): 1,
        (CLUSTER, "offline", "true"): 1,
        (CLUSTER, "offline", "false"): 0,
    }


def test_a_writable_bookie_without_a_group_is_named_until_it_has_one(loop: Loop) -> None:
    assert loop.series("headgate_unassigned_bookie") == {(CLUSTER, "new:1"): 1}
    loop.step(racks(default=("a:1", "b:1", "gone:1", "new:1")), after=1)
    assert loop.series("headgate_unassigned_bookie") == {}


def test_a_namespace_shows_its_tier_its_candidates_headroom_and_leak(loop: Loop) -> None:
    assert loop.series("headgate_namespace_candidates") == {(CLUSTER, "acme/orders", "primary"): 2}
    assert loop.series("headgate_namespace_headroom") == {(CLUSTER, "acme/orders"): 1}
    assert loop.series("headgate_isolation_leak") == {(CLUSTER, "acme/orders"): 0}
    loop.step(bookies("a:1", "new:1"), after=1)
    loop.step(bookies("a:1", "new:1"), after=10)
    assert loop.series("headgate_namespace_candidates") == {(CLUSTER, "acme/orders", "unassigned"): 2}
    assert loop.series("headgate_isolation_leak") == {(CLUSTER, "acme/orders"): 1}


def test_a_deleted_decision_takes_the_namespaces_series_with_it(loop: Loop) -> None:
    loop.view.fold([Record(DECIDED, f"{CLUSTER}/acme/orders".encode(), None, to_millis(loop.now))], live=True)
    assert loop.series("headgate_namespace_headroom") == {}


def test_the_leak_fires_as_an_alert_too(loop: Loop) -> None:
    loop.step(bookies("a:1", "new:1"), after=1)
    loop.step(bookies("a:1", "new:1"), after=60)
    assert loop.series("headgate_alerts")[("isolation-leak", "critical", CLUSTER)] == 1


def test_every_family_has_been_seen(loop: Loop) -> None:
    assert all(loop.series(family.name) for family in IsolationView.families)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 300), ({"validity": "20m"}, 1200), ({"clusters": {"a": {"validity": "2h"}}}, 7200)]
)
def test_history_reaches_as_far_as_a_reading_may_count(settings: dict[str, Any], expected: int) -> None:
    view = IsolationView(IsolationSettings.model_validate(settings))
    assert view.history == timedelta(seconds=expected)
