"""Carrying quarantines out: the guards at that moment, and what is said of it; on groups in memory."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tenacity import stop_after_attempt

from connectors.actuation.order_worker import UnknownOutcomeError
from connectors.actuation.worker import CommonOutcome
from connectors.isolation.groups import ConflictError, RacksSnapshot
from connectors.isolation.quarantine import QuarantineMetrics, QuarantineWorker, find_refusal, measure_quarantine
from policies.bookie_readings import BookieAffinity, BookieRegistration, NamespaceAffinity
from policies.isolation.decisions import QUARANTINE_GROUP, QUARANTINE_RACK, BookieQuarantine
from policies.isolation.readings import QuarantineOutcome
from policies.isolation.settings import IsolationSettings
from policies.observations import Outcome
from tests.cases import for_each
from tests.connectors.actuation.virtual_clock import VirtualClock
from tests.connectors.isolation.orders import BOOKIE, CLUSTER, NOON, decision, registered

Groups = dict[str, dict[str, object]]
GROUPS: Groups = {"blue": {"bk1:3181": {}}}
REGISTERED = registered("0x1", 7)
MOST = 2
SETTINGS = IsolationSettings(max_quarantined=MOST)
NOBODY = BookieAffinity(cluster="messaging", outcome=Outcome.OK)
"""No namespace has an affinity."""


def snapshot(
    groups: Mapping[str, Mapping[str, object]] = GROUPS,
    registration: BookieRegistration | None = REGISTERED,
    writable: str = BOOKIE,
) -> RacksSnapshot:
    def write(group: str, rack: str) -> datetime:
        raise AssertionError("a guard only looks")

    return RacksSnapshot(groups, registration, frozenset(writable.split()), NOON, write)


GONE = QuarantineOutcome.NOT_REGISTERED


@for_each(
    ("decided", "found", "outcome"),
    [
        pytest.param({}, snapshot(), None, id="registered, in no group"),
        pytest.param({}, snapshot({}), QuarantineOutcome.NO_GROUPS, id="no group to keep it out of"),
        pytest.param({}, snapshot({"blue": {}}), None, id="a group without bookies"),
        pytest.param({}, snapshot(registration=None), GONE, id="gone"),
        pytest.param({"czxid": 7}, snapshot(registration=registered(czxid=7)), None, id="transaction"),
        pytest.param({"czxid": 7}, snapshot(registration=registered(czxid=8)), GONE, id="another transaction"),
        pytest.param({"czxid": 7}, snapshot(registration=registered()), None, id="the store cannot tell"),
        pytest.param({"session": "0x1"}, snapshot(registration=registered("0x1")), None, id="session"),
        pytest.param({"session": "0x1"}, snapshot(registration=registered("0x2")), GONE, id="another session"),
        pytest.param({"session": "0x1"}, snapshot(registration=registered()), None, id="no session known"),
        pytest.param({}, snapshot(registration=registered("0x2", 8)), None, id="the decision names none"),
    ],
)
def test_only_the_registration_of_the_decision_is_put_there_and_only_while_the_cluster_has_groups(
    decided: dict[str, Any], found: RacksSnapshot, outcome: QuarantineOutcome | None
) -> None:
    result = find_refusal(decision(**decided), found, NOBODY, SETTINGS)
    assert (result and result.outcome) is outcome


@pytest.mark.parametrize(
    ("writable", "ensemble_size", "starved"),
    [
        (f"bk1:3181 bk2:3181 {BOOKIE}", 2, None),
        (f"bk1:3181 {BOOKIE} bk12:3181", 2, None),
        (f"bk1:3181 {BOOKIE}", 2, "acme/a"),
        (f"bk1:3181 {BOOKIE}", 3, "acme/a"),
        (BOOKIE, 2, "acme/a"),
    ],
    ids=["its group suffices", "another one is in no group", "it is the last", "even with it too few", "group is gone"],
)
def test_what_a_namespace_needs_by_what_is_read_now_stays(
    writable: str, ensemble_size: int, starved: str | None
) -> None:
    needs = NamespaceAffinity(primary=("blue",), ensemble_size=ensemble_size)
    affinity = NOBODY.model_copy(update={"namespaces": {"acme/a": needs}})
    found = snapshot({"blue": {"bk1:3181": {}, "bk2:3181": {}}}, writable=writable)
    result = find_refusal(decision(), found, affinity, SETTINGS)
    assert (result and result.detail) == (starved and f"{starved} needs it to place data")
    assert result is None or result.outcome is QuarantineOutcome.NEEDED


@pytest.mark.parametrize(
    ("registered_at", "seconds"),
    [(NOON - timedelta(seconds=4), 4.0), (None, 10.0), (NOON + timedelta(seconds=1), 0.0)],
    ids=["the store's clock", "the decision's where the store cannot tell", "never negative"],
)
def test_the_leak_window_ends_when_it_is_in_quarantine(registered_at: datetime | None, seconds: float) -> None:
    result = measure_quarantine(decision(), snapshot(registration=registered(registered_at=registered_at)), NOON)
    assert result.outcome is CommonOutcome.DONE
    assert result.observed is not None
    assert (result.observed.quarantined_at, result.observed.leak_window_seconds) == (NOON, seconds)


@dataclass
class Racks:
    """Groups in memory; `before_look` and `before_write` are what others do meanwhile, one each time."""

    clock: Callable[[], datetime]
    groups: Groups = field(default_factory=lambda: {"default": {"bk1:3181": {}}})
    registration: BookieRegistration | None = field(default_factory=registered)
    before_look: list[Callable[[], None]] = field(default_factory=list)
    before_write: list[Callable[[], None]] = field(default_factory=list)
    after_write: list[Callable[[], None]] = field(default_factory=list)
    looks: int = 0
    version: int = 0

    def read_groups(self, bookie: str) -> RacksSnapshot:
        self.looks += 1
        _next(self.before_look)
        groups = {group: dict(members) for group, members in self.groups.items()}
        write = partial(self._write, self.version, bookie)
        return RacksSnapshot(groups, self.registration, frozenset({BOOKIE}), self.clock(), write)

    def _write(self, version: int, bookie: str, group: str, rack: str) -> datetime:
        _next(self.before_write)
        if version != self.version:
            raise ConflictError("changed")
        self.put(bookie, group, rack)
        _next(self.after_write)
        return self.clock()

    def put(self, bookie: str, group: str, rack: str = "/r") -> None:
        self.groups.setdefault(group, {})[bookie] = {"rack": rack}
        self.version += 1

    def close(self) -> None:
        pass


def _next(actions: list[Callable[[], None]]) -> None:
    if actions:
        actions.pop(0)()


def fails(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class Bench:
    """One cluster's worker, with its clock in hand."""

    def __init__(self, max_quarantined: int = 3) -> None:
        self.clock = VirtualClock(still=True)
        self.clock.advance(1)
        self.racks = Racks(self.clock.now)
        self.registry = CollectorRegistry()
        self.events: list[dict[str, Any]] = []
        metrics = QuarantineMetrics(self.registry)
        self.namespaces: dict[str, NamespaceAffinity] = {}
        settings = IsolationSettings(max_quarantined=max_quarantined)
        self.worker = QuarantineWorker(
            CLUSTER, self.racks, settings, self._read_affinity, self._publish, metrics, self.clock
        )

    def _read_affinity(self) -> BookieAffinity:
        return BookieAffinity(cluster=CLUSTER, outcome=Outcome.OK, namespaces=self.namespaces)

    def _publish(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        self.events.append(json.loads(value))

    def recall(self, *decisions: BookieQuarantine) -> None:
        for one in decisions:
            self.worker.recall(one, NOON)

    def reconcile(self, *decisions: BookieQuarantine) -> list[str]:
        """Decisions come in and what is due is tried; the outcomes that were said of it."""
        before = len(self.events)
        for one in decisions:
            self.worker.receive(one, self.clock.now())
        self.worker.reconcile(threading.Event())
        return [event["data"]["outcome"] for event in self.events[before:]]

    def again(self) -> list[str]:
        """The pause after a failure is over."""
        self.clock.advance(5)
        return self.reconcile()

    @property
    def reported(self) -> dict[str, Any]:
        return dict(self.events[-1]["data"])

    @property
    def quarantined(self) -> list[str]:
        return list(self.racks.groups.get(QUARANTINE_GROUP, {}))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headgate_{name}", {"cluster": CLUSTER, **labels})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(QuarantineWorker, "series", stop_after_attempt(3))
    return Bench()


def test_an_unassigned_bookie_is_put_into_the_group_and_it_is_said_once(bench: Bench) -> None:
    order = decision()
    assert bench.reconcile(order) == ["done"]
    assert bench.racks.groups == {"default": {"bk1:3181": {}}, QUARANTINE_GROUP: {BOOKIE: {"rack": QUARANTINE_RACK}}}
    event = bench.events[0]
    assert (event["type"], event["subject"]) == ("headgate.bookie-quarantined.v1", f"{CLUSTER}/{BOOKIE}")
    assert event["data"] == {
        "cluster": CLUSTER, "bookie": BOOKIE, "group": QUARANTINE_GROUP, "found_group": None,
        "decision_id": order.decision_id, "sequence": 1, "outcome": "done", "leak_window_seconds": 11.0,
        "quarantined_at": "2026-11-21T12:00:01.000Z", "attempt": 1, "detail": None,
    }  # fmt: skip
    assert bench.reconcile() == []
    assert bench.metric("quarantines_total", outcome="done") == 1
    assert bench.metric("bookie_leak_window_seconds_sum") == 11.0
    assert bench.metric("quarantine_failing") == 0


@pytest.mark.parametrize("verdict", ["lift", "withhold"])
def test_other_verdicts_do_nothing_and_take_nobody_out(bench: Bench, verdict: str) -> None:
    bench.racks.put(BOOKIE, QUARANTINE_GROUP)
    assert bench.reconcile(decision(verdict=verdict, reason="gone")) == []
    assert bench.quarantined == [BOOKIE]
    assert bench.racks.looks == 0


def test_a_mass_mistake_stops_at_the_limit() -> None:
    bench = Bench(2)
    assert bench.reconcile(*(decision(f"bk{i}:3181") for i in range(11, 16))) == ["done", "done", *["too_many"] * 3]
    assert bench.quarantined == ["bk11:3181", "bk12:3181"]


def test_a_repeat_while_it_holds_is_no_news(bench: Bench) -> None:
    assert bench.reconcile(decision(sequence=1)) == ["done"]
    assert bench.reconcile(decision(sequence=2)) == []
    bench.racks.groups[QUARANTINE_GROUP].clear()
    assert bench.reconcile(decision(sequence=3)) == ["done"]


def test_after_a_restart_what_was_done_before_is_found_and_not_done_again(bench: Bench) -> None:
    bench.racks.put(BOOKIE, QUARANTINE_GROUP)
    version = bench.racks.version
    bench.recall(decision())
    assert bench.reconcile() == ["already_assigned"]
    assert bench.racks.version == version


def test_after_a_conflict_it_is_decided_afresh(bench: Bench) -> None:
    bench.racks.before_write = [partial(bench.racks.put, "bk2:3181", "default")]
    assert bench.reconcile(decision()) == ["done"]
    assert bench.reported["attempt"] == 2
    assert set(bench.racks.groups["default"]) == {"bk1:3181", "bk2:3181"}


def test_an_operator_between_look_and_write_wins(bench: Bench) -> None:
    bench.racks.before_write = [partial(bench.racks.put, BOOKIE, "shared")]
    assert bench.reconcile(decision()) == ["already_assigned"]
    assert (bench.reported["found_group"], bench.quarantined) == ("shared", [])


def test_a_write_without_answer_that_was_done_is_found_to_be_done(bench: Bench) -> None:
    bench.racks.after_write = [fails(UnknownOutcomeError("ZooKeeper: ConnectionLoss"))]
    assert bench.reconcile(decision()) == ["done"]
    assert (bench.reported["attempt"], bench.reported["leak_window_seconds"]) == (2, 11.0)
    assert bench.racks.version == 1


def test_after_a_write_without_answer_an_operators_assignment_is_still_theirs(bench: Bench) -> None:
    bench.racks.before_write = [fails(UnknownOutcomeError("ZooKeeper: ConnectionLoss"))]
    bench.racks.before_look = [lambda: None, partial(bench.racks.put, BOOKIE, "shared")]
    assert bench.reconcile(decision()) == ["already_assigned"]
