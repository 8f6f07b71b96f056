"""The unload actuator: guards, fence, pace and reports, on brokers in memory; and what it learns before it begins."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from connectors.actuation.actuator import LoopTopics
from connectors.kafka.tail import Record
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from connectors.sessions.registration import UnloadSettings
from connectors.sessions.unload import Survey, UnloadActuator, UnloadMetrics, UnloadWorker, find_conclusion
from policies.sessions.decisions import OwnershipDecision
from policies.sessions.readings import BundleUnloaded, UnloadOutcome
from policies.units import to_millis
from policies.wire import actuator_event, decision_event
from tests.cases import for_each
from tests.connectors.actuation.tail import CONNECTION, record
from tests.connectors.actuation.virtual_clock import VirtualClock
from tests.connectors.sessions.orders import BUNDLE, CLUSTER, MEMBER, OTHER, THIRD, decision
from tests.fakes.tail import FakeTail

ANY = "any:8080"


@dataclass
class Pulsar:
    """Brokers in memory that answer as real ones were seen to."""

    listed: list[str] = field(default_factory=lambda: [MEMBER, OTHER])
    serving: dict[str, dict[str, bool]] = field(default_factory=lambda: {MEMBER: {BUNDLE: True}, OTHER: {}})
    topics: list[str] = field(default_factory=lambda: ["t/ns/b", "t/ns/a"])
    taker: str | None = OTHER
    """Who takes a bundle that is looked up."""
    silent: set[str] = field(default_factory=set)
    before_unload: list[Callable[[], None]] = field(default_factory=list)
    after_unload: list[Callable[[], None]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    surveys: int = 0
    unloads: list[tuple[str, str]] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        host = f"{request.url.host}:{request.url.port}"
        self.asked.add(host)
        if host in self.silent:
            raise httpx.ReadTimeout("silent", request=request)
        return self._answer(request, host, request.url.path.split("/")[1:])

    def _answer(self, request: httpx.Request, host: str, path: list[str]) -> httpx.Response:
        match request.method, path:
            case "GET", ["admin", "v2", "brokers", _]:
                self.surveys += 1
                return httpx.Response(200, json=self.listed)
            case "GET", ["admin", "v2", "brokers", _, member, "ownedNamespaces"]:
                if member != host:
                    return httpx.Response(307, headers={"Location": f"http://{member}{request.url.path}"})
                owned = self.serving[member].items()
                return httpx.Response(200, json={b: {"is_active": a, "broker_assignment": "shared"} for b, a in owned})
            case "PUT", ["admin", "v2", "namespaces", *bundle, "unload"]:
                return self._unload(host, "/".join(bundle), request)
            case "GET", ["admin", "v2", "persistent", _, _]:
                assert request.url.params["bundle"] == BUNDLE.rpartition("/")[2]
                return httpx.Response(200, json=[f"persistent://{topic}" for topic in self.topics])
            case "GET", ["lookup", "v2", "topic", "persistent", *topic]:
                return self._lookup("/".join(topic))
        raise AssertionError(f"nobody asks {request.method} {request.url}")

    def _unload(self, host: str, bundle: str, request: httpx.Request) -> httpx.Response:
        if self.before_unload:
            self.before_unload.pop(0)()
        owner = next((member for member, owned in self.serving.items() if owned.get(bundle)), None)
        if owner not in (None, host) and not self.serving[host].get(bundle):
            return httpx.Response(307, headers={"Location": f"http://{owner}{request.url.path}"})
        self.unloads.append((host, bundle))
        self.serving[host].pop(bundle, None)
        if self.after_unload:
            self.after_unload.pop(0)()
        return httpx.Response(204)

    def _lookup(self, topic: str) -> httpx.Response:
        self.lookups.append(topic)
        if self.taker:
            self.serving[self.taker][BUNDLE] = True
        return httpx.Response(200, json={"brokerUrl": "pulsar://b2:6650"})


def fails(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class Bench:
    """One cluster's worker, with its clock in hand."""

    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock(still=True)
        self.clock.advance(1)
        self.pulsar = Pulsar()
        self.registry = CollectorRegistry()
        self.events: list[dict[str, Any]] = []
        transport = httpx.MockTransport(self.pulsar)
        admin = AdminApi(PulsarAdmin(admin_url=f"http://{ANY}"), transport)
        self.worker = UnloadWorker(
            CLUSTER, admin, UnloadSettings.model_validate({"grace": "0s", **settings}), self._publish,
            UnloadMetrics(self.registry), clock=self.clock, transport=transport,
        )  # fmt: skip

    def _publish(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        self.events.append(json.loads(value))

    def reconcile(self, *decisions: OwnershipDecision, after: float = 0.0) -> list[str]:
        """Time passes, decisions come in, and what is due is tried; the outcomes that were said of it."""
        self.clock.advance(after)
        before = len(self.events)
        for one in decisions:
            self.worker.receive(one, self.clock.now())
        self.worker.reconcile(threading.Event())
        return [event["data"]["outcome"] for event in self.events[before:]]

    @property
    def reported(self) -> dict[str, Any]:
        return dict(self.events[-1]["data"])

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headgate_bundle_actions{name}", {"cluster": CLUSTER, **labels})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_bundle_that_the_member_alone_serves_is_unloaded_there_and_it_is_said_once(bench: Bench) -> None:
    order = decision()
    assert bench.reconcile(order) == ["done"]
    assert bench.pulsar.unloads == [(MEMBER, BUNDLE)]
    event = bench.events[0]
    assert (event["type"], event["subject"]) == ("headgate.bundle-unloaded.v1", f"{CLUSTER}/{MEMBER}/{BUNDLE}")
    assert event["data"] == {
        "cluster": CLUSTER, "member": MEMBER, "bundle": BUNDLE, "decision_id": order.decision_id, "sequence": 1,
        "outcome": "done", "served_by": [], "attempt": 1, "done_at": "2026-11-21T12:00:01.000Z", "detail": None,
    }  # fmt: skip
    assert bench.reconcile(order, after=60) == []
    assert bench.pulsar.unloads == [(MEMBER, BUNDLE)]
    assert bench.metric("_total", verdict="unload", outcome="done") == 1
    assert bench.metric("_failing") == 0


NO_ADDRESS = "who else serves it is not known: a broker is registered as what is no host:port"
NOBODY_SERVES: dict[str, dict[str, bool]] = {MEMBER: {}, OTHER: {}}


@for_each(
    ("pulsar", "order", "expected"),
    [
        pytest.param(
            {"serving": {MEMBER: {}, OTHER: {BUNDLE: True}}}, {}, ("already_moved", None, [OTHER]), id="another has it"
        ),
        pytest.param({"serving": NOBODY_SERVES}, {}, ("already_moved", None, []), id="nobody serves it"),
        pytest.param(
            {"serving": {MEMBER: {"t/ns/0x0_0x1": True}, OTHER: {BUNDLE: True}}}, {}, ("already_moved", None, [OTHER]),
            id="the member serves another",
        ),
        pytest.param(
            {"listed": [OTHER]}, {"owner": OTHER, "reason": "other_owner"},
            ("failed", f"{MEMBER} is not registered, so it is not asked", []), id="the member is not registered",
        ),
        pytest.param(
            {"listed": ["0.0.0.0:8080", OTHER]}, {"member": "0.0.0.0:8080"},
            ("failed", "0.0.0.0:8080 is an unspecified address", []), id="an address that each machine has",
        ),
        *(
            pytest.param({"listed": [MEMBER, OTHER, listed]}, {}, ("failed", NO_ADDRESS, [MEMBER]), id=listed)
            for listed in ("evil/x:80", "me@evil:80", "evil:0", "evil:99999", "evil", "ev il:80")
        ),
        *(
            pytest.param({}, {"member": member}, ("failed", f"{member} is not registered", [MEMBER]), id=member)
            for member in ("evil:80", f"{MEMBER}@evil:80", f"evil/{MEMBER}")
        ),
        pytest.param({}, {"owner": "evil:80"}, ("contested", "evil:80 may own it rightfully", [MEMBER]), id="of evil"),
        pytest.param(
            {}, {"verdict": "re-own", "member": OTHER, "owner": "evil:81"}, ("already_owned", None, [MEMBER]),
            id="a broker serves what is to be owned again",
        ),
        pytest.param(
            {"serving": NOBODY_SERVES, "topics": []}, {"verdict": "re-own"}, ("no_topics", None, []), id="no topics"
        ),
    ],
)  # fmt: skip
def test_nothing_is_done_and_only_registered_brokers_are_asked(
    pulsar: dict[str, Any], order: dict[str, Any], expected: tuple[str, str | None, list[str]]
) -> None:
    bench = Bench()
    vars(bench.pulsar).update(pulsar)
    outcome, detail, served_by = expected
    assert bench.reconcile(decision(**order)) == [outcome]
    assert (bench.reported["detail"] or "").startswith(detail or "")
    assert bench.reported["served_by"] == served_by
    assert (bench.pulsar.unloads, bench.pulsar.lookups) == ([], [])
    assert bench.pulsar.asked <= {ANY, MEMBER, OTHER}


def test_an_answer_from_another_broker_than_was_asked_is_none() -> None:
    bench = Bench(member_url="http://{host}:9999")
    assert bench.reconcile(decision()) == ["failed"]
    assert bench.reported["detail"] == f"another broker than {MEMBER} answers at http://b1:9999"


@pytest.mark.parametrize(
    ("serving", "fields", "rivals"),
    [
        pytest.param({MEMBER: {BUNDLE: True}, OTHER: {BUNDLE: True}}, {}, OTHER, id="both serve it"),
        pytest.param({MEMBER: {BUNDLE: True}, OTHER: {BUNDLE: False}}, {}, OTHER, id="the other lets it go"),
        pytest.param(
            {MEMBER: {BUNDLE: True}, OTHER: {}}, {"owner": OTHER, "reason": "other_owner", "session": None}, OTHER,
            id="zookeeper names another, and the member has no session",
        ),
        pytest.param(
            {MEMBER: {BUNDLE: True}, OTHER: {BUNDLE: True}, THIRD: {BUNDLE: True}}, {"owner": THIRD},
            f"{OTHER}, {THIRD}", id="one that is not registered serves it, too",
        ),
    ],
)  # fmt: skip
def test_what_may_be_anothers_is_left_alone_until_the_member_lets_go(
    bench: Bench, serving: dict[str, dict[str, bool]], fields: dict[str, Any], rivals: str
) -> None:
    bench.pulsar.serving = serving
    assert bench.reconcile(decision(**fields)) == ["contested"]
    assert bench.reported["detail"] == f"{rivals} may own it rightfully"
    assert bench.metric("_failing") == 1
    assert bench.reconcile(after=5) == []
    del serving[MEMBER][BUNDLE]
    assert bench.reconcile(after=5) == ["already_moved"]
    assert bench.metric("_failing") == 0
    assert bench.pulsar.unloads == []


@pytest.mark.parametrize("reason", ["other_owner", "double_ownership"])
@pytest.mark.parametrize(
    "serving",
    [{MEMBER: {BUNDLE: True}, OTHER: {}}, {MEMBER: {BUNDLE: True}, OTHER: {BUNDLE: True}}],
    ids=["the owner does not serve it yet", "both serve it"],
)
def test_what_zookeeper_says_is_another_s_is_unloaded_at_the_member_and_its_owner_has_it(
    bench: Bench, serving: dict[str, dict[str, bool]], reason: str
) -> None:
    bench.pulsar.serving = {member: dict(owned) for member, owned in serving.items()}
    assert bench.reconcile(decision(owner=OTHER, reason=reason)) == ["done"]
    assert bench.pulsar.unloads == [(MEMBER, BUNDLE)]
    assert bench.pulsar.lookups == ["t/ns/a"]
    assert bench.pulsar.serving == {MEMBER: {}, OTHER: {BUNDLE: True}}


def test_a_bundle_that_moves_between_the_look_and_the_unload_stays_with_its_new_owner(bench: Bench) -> None:
    def move() -> None:
        bench.pulsar.serving = {MEMBER: {}, OTHER: {BUNDLE: True}}

    bench.pulsar.before_unload.append(move)
    assert bench.reconcile(decision()) == ["already_moved"]
    assert bench.pulsar.unloads == []
    assert bench.pulsar.serving[OTHER] == {BUNDLE: True}


@pytest.mark.parametrize(
    ("silent", "detail"),
    [
        pytest.param(MEMBER, f"broker {MEMBER}: GET /admin/v2/brokers/", id="the member"),
        pytest.param(OTHER, f"who else serves it is not known: broker {OTHER}: GET", id="another broker"),
        pytest.param(ANY, "GET /admin/v2/brokers/messaging: no answer in time", id="the list of brokers"),
    ],
)
def test_while_somebody_does_not_say_what_it_serves_nothing_is_done_and_it_is_tried_again(
    bench: Bench, silent: str, detail: str
) -> None:
    bench.pulsar.silent = {silent}
    assert bench.reconcile(decision()) == ["failed"]
    assert bench.reported["detail"].startswith(detail)
    assert (bench.pulsar.unloads, bench.metric("_failing")) == ([], 1)
    assert silent == ANY or bench.pulsar.surveys == 3
    assert bench.reconcile(after=1) == [], "too early"
    assert bench.reconcile(after=4) == [], "the same is not said again"
    bench.pulsar.silent = set()
    assert bench.reconcile(after=5) == ["done"]
    assert (bench.reported["attempt"], bench.metric("_failing")) == (3, 0)


def test_a_dead_broker_that_is_no_longer_registered_does_not_stand_in_the_way(bench: Bench) -> None:
    bench.pulsar.listed = [MEMBER]
    bench.pulsar.silent = {OTHER}
    assert bench.reconcile(decision(), decision("t/x/0x0_0x1", member=OTHER, owner=OTHER)) == ["done", "failed"]


def test_an_unload_without_an_answer_is_not_repeated_but_looked_at(bench: Bench) -> None:
    bench.pulsar.after_unload.append(fails(httpx.ReadTimeout("slow")))
    assert bench.reconcile(decision()) == ["failed"]
    bench.pulsar.serving[MEMBER][BUNDLE] = False
    assert bench.reconcile(after=5) == ["failed"]
    assert bench.reported["detail"] == "it is letting go of it, and not done yet"
    del bench.pulsar.serving[MEMBER][BUNDLE]
    assert bench.reconcile(after=5) == ["done"]
    assert bench.pulsar.unloads == [(MEMBER, BUNDLE)]


def test_an_unload_that_failed_is_repeated_no_sooner_than_the_pace_allows(bench: Bench) -> None:
    bench.pulsar.before_unload.append(fails(httpx.ConnectError("refused")))
    assert bench.reconcile(decision()) == ["failed"]
    assert bench.reconcile(after=5) == []
    assert bench.metric("_failing") == 1
    assert bench.reconcile(after=5) == ["done"]


def test_an_orphaned_bundle_is_looked_up_by_one_of_its_topics(bench: Bench) -> None:
    bench.pulsar.serving[MEMBER], bench.pulsar.silent = {}, {MEMBER}
    assert bench.reconcile(decision(verdict="re-own")) == ["done"], "though one broker does not answer"
    assert bench.pulsar.lookups == ["t/ns/a"]
    assert bench.events[0]["type"] == "headgate.bundle-re-owned.v1"
    assert bench.reported["served_by"] == [OTHER]


def test_a_lookup_that_names_an_owner_that_serves_nothing_is_repeated(bench: Bench) -> None:
    bench.pulsar.serving[MEMBER], bench.pulsar.taker = {}, None
    assert bench.reconcile(decision(verdict="re-own")) == ["failed"]
    assert bench.reconcile(after=5) == []
    bench.pulsar.taker = MEMBER
    assert bench.reconcile(after=5) == ["done"]
    assert bench.pulsar.lookups == ["t/ns/a", "t/ns/a"]


@pytest.mark.parametrize("verdict", ["keep", "wait"])
def test_other_verdicts_do_nothing(bench: Bench, verdict: str) -> None:
    assert bench.reconcile(decision(verdict=verdict)) == []
    assert bench.pulsar.surveys == 0


def test_each_broker_is_made_to_unload_one_bundle_per_interval_and_the_brokers_do_not_wait_for_each_other(
    bench: Bench,
) -> None:
    bundles = [f"t/ns{number}/0x0_0xf" for number in range(3)]
    bench.pulsar.serving = {MEMBER: dict.fromkeys(bundles, True), OTHER: {BUNDLE: True}}
    orders = [decision(bundle) for bundle in bundles]
    assert bench.reconcile(*orders, decision(member=OTHER)) == ["done", "done"]
    assert bench.pulsar.unloads == [(MEMBER, bundles[0]), (OTHER, BUNDLE)]
    assert bench.reconcile(after=9.9) == []
    assert bench.reconcile(after=0.1) == ["done"]
    assert bench.metric("_failing") == 0, "to wait for one's turn is no failure"
    assert bench.reconcile(after=10) == ["done"]
    assert [bundle for member, bundle in bench.pulsar.unloads if member == MEMBER] == bundles


def test_many_decisions_need_one_survey(bench: Bench) -> None:
    assert set(bench.reconcile(*(decision(f"t/{n}/0x0_0xf") for n in range(50)))) == {"already_moved"}
    assert bench.pulsar.surveys == 1


def test_a_later_decision_to_do_the_same_overtakes_one_that_waits(bench: Bench) -> None:
    bench.pulsar.silent = {MEMBER}
    bench.reconcile(decision())
    bench.pulsar.silent = set()
    assert bench.reconcile(decision(sequence=2)) == ["superseded", "done"]


BROKERS = (MEMBER, OTHER, THIRD)
BELIEFS = st.sampled_from([None, True, False, "silent"])


@given(st.fixed_dictionaries(dict.fromkeys(BROKERS, BELIEFS)), st.sampled_from([None, *BROKERS]), st.booleans())
def test_nothing_is_ever_unloaded_but_what_the_member_alone_is_known_to_serve_or_what_is_another_s(
    beliefs: dict[str, Any], owner: str | None, unsure: bool
) -> None:
    owned = {m: {} if b is None else {BUNDLE: b} for m, b in beliefs.items() if b != "silent"}
    survey = Survey(frozenset(BROKERS), owned, {m: "silent" for m, b in beliefs.items() if b == "silent"})
    found = find_conclusion(decision(owner=owner), survey, unsure=unsure)
    alone = beliefs == {MEMBER: True, OTHER: None, THIRD: None}
    assert (found is None) == (alone and owner in (None, MEMBER))
    named = find_conclusion(decision(owner=owner, reason="other_owner"), survey, unsure=unsure)
    others = {m: b for m, b in beliefs.items() if m not in (MEMBER, owner)}
    assert (named is None) == (
        beliefs[MEMBER] is True and set(others.values()) == {None} and (owner != MEMBER or alone)
    )
    if found is not None and found.outcome is UnloadOutcome.DONE:
        assert unsure
        assert beliefs[MEMBER] is None


# --- Before it begins: the decisions in force, and which of them were carried out


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
