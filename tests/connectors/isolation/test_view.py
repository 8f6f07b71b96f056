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
from policies.isolation.policy import IsolationPolicy
from policies.isolation.settings import IsolationSettings
from policies.observations import Outcome
from policies.units import to_millis
from tests.connectors.exporter.loop import PREFIX, PolicyLoop

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


class Loop(PolicyLoop):
    """That of the isolation policy."""

    def __init__(self, **settings: Any) -> None:
        block = IsolationSettings.model_validate({"grace": "0s", **settings})
        super().__init__(IsolationPolicy(CLUSTER, block), CLUSTER, LoopView(PREFIX, {"isolation": block}))


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


def test_every_family_has_been_seen(loop: Loop) -> None:
    assert all(loop.series(family.name) for family in IsolationView.families)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 300), ({"validity": "20m"}, 1200), ({"clusters": {"a": {"validity": "2h"}}}, 7200)]
)
def test_history_reaches_as_far_as_a_reading_may_count(settings: dict[str, Any], expected: int) -> None:
    view = IsolationView(IsolationSettings.model_validate(settings))
    assert view.history == timedelta(seconds=expected)
