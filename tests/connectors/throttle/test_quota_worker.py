"""One cluster's quotas are kept as decided: records, late brokers, rivals, the fence, failures, release."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import ClusterAuthorizationFailedError, KafkaTimeoutError, PolicyViolationError
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from connectors.kafka.cluster_client import KafkaBroker
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.quotas import BrokerQuotas, BrokerQuotaSettings, QuotaClient
from connectors.throttle.own_quotas import QuotaMetrics, QuotaReports, Released
from connectors.throttle.quota_worker import ATTEMPTS, QuotaWorker
from policies.decisions import Mode
from policies.free_space.levels import Original
from policies.throttle.decisions import ThrottleFactor
from policies.throttle.quotas import QuotaState, owner_number
from policies.throttle.readings import AppliedQuota
from policies.throttle.settings import DEFAULT, Entity, QuotaSettings
from policies.units import format_instant
from policies.wire import EventReader
from tests.connectors.actuation.virtual_clock import NOON, VirtualClock
from tests.examples import combined, examples
from tests.policies.scenario import CLUSTER, HARD, decide, throttle

ANY, ALICE = Entity(client_id=DEFAULT), Entity(user="alice")
KAFKA = WatchedKafka(bootstrap_servers="nowhere:9092")

EVERY_USER, EACH = Entity(DEFAULT), Entity(DEFAULT, DEFAULT)
STOP = {ANY: 65_536, EVERY_USER: 65_536, EACH: 65_536}
"""A stop reaches clients without an id by the default user; client ids keep quotas of their own."""

NOTES = EventReader((AppliedQuota,))


order = partial(decide, decided_at=NOON)


@dataclass
class Kafka:
    """A cluster that does as asked, unless it `fails` or `refuses`. Clients come and go; it stays."""

    acts: list[dict[Entity, int | None]] = field(default_factory=list)
    """The rates of each request."""
    rates: dict[Entity, int] = field(default_factory=dict)
    originals: dict[Entity, Original] = field(default_factory=dict)
    fails: list[Exception] = field(default_factory=list)
    """For the next readings, one each."""
    loses: list[Exception] = field(default_factory=list)
    """For the next requests, whose change arrives all the same."""
    refuses: dict[Entity, Exception] = field(default_factory=dict)
    brokers: dict[int, BrokerQuotaSettings] = field(default_factory=lambda: {1: BrokerQuotaSettings()})
    late_seconds: dict[int, float] = field(default_factory=dict)
    """By broker, how old its answers are."""
    now: Callable[[], float] = lambda: 0.0
    cluster_id: str | None = None
    looks: int = 0
    asked: list[int] = field(default_factory=list)
    """The broker of each reading."""
    clients: int = 0
    """The number of open clients."""
    _past: list[tuple[float, BrokerQuotas]] = field(default_factory=list)

    def connect(self, kafka: WatchedKafka) -> QuotaClient:
        assert kafka is KAFKA
        self.clients += 1
        return KafkaClient(self)

    def set_by_hand(self, entity: Entity, rate: int | None) -> None:
        """Set a quota as an operator does, without a record."""
        self.keep_past()
        self.rates.pop(entity, None)
        if rate is not None:
            self.rates[entity] = rate

    def keep_past(self) -> None:
        """Keep the present state for late brokers; call it before each change."""
        self._past.append((self.now(), BrokerQuotas(0, dict(self.rates), dict(self.originals))))

    def shown_by(self, broker: int) -> BrokerQuotas:
        """What a broker shows: the state before the first change that it has not received yet."""
        since = self.now() - self.late_seconds.get(broker, 0.0)
        missed = (state for at, state in self._past if at > since)
        present = BrokerQuotas(0, dict(self.rates), dict(self.originals))
        return replace(next(missed, present), broker=broker)


class KafkaClient(QuotaClient):
    """One connection."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.cluster_id = kafka.cluster_id

    def describe(self) -> tuple[KafkaBroker, ...]:
        return tuple(KafkaBroker(number, "h", 9092, None, fenced=False) for number in sorted(self._kafka.brokers))

    def read(self) -> BrokerQuotas:
        kafka = self._kafka
        if kafka.fails:
            raise kafka.fails.pop(0)
        kafka.looks += 1
        numbers = sorted(kafka.brokers)
        kafka.asked.append(numbers[kafka.looks % len(numbers)])
        return kafka.shown_by(kafka.asked[-1])

    def alter(
        self, rates: Mapping[Entity, int | None], originals: Mapping[Entity, Original | None] | None = None
    ) -> dict[Entity, Exception]:
        kafka, originals = self._kafka, originals or {}
        kafka.acts.append(dict(rates))
        kafka.keep_past()
        for entity in {*rates, *originals} - kafka.refuses.keys():
            if entity in rates:
                kafka.rates.pop(entity, None)
            if (rate := rates.get(entity)) is not None:
                kafka.rates[entity] = rate
            kafka.originals.pop(entity, None)
            if (original := originals.get(entity)) is not None:
                kafka.originals[entity] = original
        if kafka.loses:
            raise kafka.loses.pop(0)
        return {entity: error for entity, error in kafka.refuses.items() if entity in rates}

    def broker_settings(self) -> dict[int, BrokerQuotaSettings]:
        return self._kafka.brokers

    def close(self) -> None:
        self._kafka.clients -= 1


EVERYBODY = {"client_id": "default", "base": 1_000_000}


OWNER = owner_number(CLUSTER)


class Bench:
    """One cluster's worker, with its clock in hand; the cluster and the reports outlive it."""

    def __init__(self, *entities: dict[str, Any], brokers: int = 1, **settings: Any) -> None:
        self.clock = VirtualClock(still=True)
        each = dict.fromkeys(range(1, brokers + 1), BrokerQuotaSettings())
        self.kafka = Kafka(now=self.clock.monotonic, brokers=each)
        self.registry = CollectorRegistry()
        self.metrics = QuotaMetrics(self.registry)
        self.events: list[dict[str, Any]] = []
        self.notes: list[AppliedQuota] = []
        self.states: list[QuotaState] = []
        self.settings: QuotaSettings | None = QuotaSettings.model_validate(
            {"entities": entities or (EVERYBODY,), "max_told_wait": "none", **settings}
        )
        self.throttle = throttle(HARD, fallback_factor=0.25)
        self.worker = self.made()

    def made(self) -> QuotaWorker:
        """A worker that knows nothing yet."""
        reports = QuotaReports(CLUSTER, self._publish, self._note, self.metrics)
        return QuotaWorker(
            CLUSTER, KAFKA, self.settings, self.throttle, reports, self.states.append,
            clock=self.clock, connect=self.kafka.connect,
        )  # fmt: skip

    def _note(self, key: str, value: bytes) -> None:
        event = NOTES.read(value)
        assert key == event.subject
        self.notes.append(event.data)

    def _publish(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        self.events.append(json.loads(value)["data"])

    def reconcile(self, *orders: ThrottleFactor, after: float = 0.0) -> list[tuple[str, str]]:
        """Time passes, decisions come in, and what is due is done; what was said of it: outcome and reason."""
        self.clock.advance(after)
        before = len(self.events)
        for one in orders:
            self.worker.receive(one, self.clock.now())
        self.worker.reconcile(Event())
        return [(event["outcome"], event["reason"]) for event in self.events[before:]]

    def restart(self, *recalled: ThrottleFactor) -> None:
        """Another worker, which learns the decisions from before its start."""
        self.worker = self.made()
        for one in recalled:
            self.worker.recall(one, self.clock.now())

    def look(self, seconds: float) -> None:
        """Let time pass, and have done what is due as the worker wakes itself."""
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0.001:
            self.worker.reconcile(Event())
            self.clock.advance(max(0.001, min(max(0.01, self.worker.pause_seconds()), left)))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headgate_quota_{name}", {"cluster": CLUSTER, **labels})


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_original_quota_is_recorded_on_the_cluster_in_the_same_change(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 900_000
    assert bench.reconcile(order(0.5)) == [("applied", "decided")]
    assert bench.kafka.acts == [{ANY: 500_000}]
    assert (bench.kafka.rates, bench.kafka.originals) == ({ANY: 500_000}, {ANY: Original(900_000, 500_000, OWNER)})
    (note,) = bench.notes
    assert (note.held, note.baseline_bytes_per_second, note.sequence) == (True, 900_000, 1)


def test_the_report_names_the_operation_and_its_time(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 900_000
    bench.reconcile(order(0.5))
    assert bench.events[-1]["explanation"] == (
        "producer_byte_rate of client-id=<default> on payments was set by the quota actuator at "
        f"{format_instant(NOON)} to 500 kB/s a broker (before: 900 kB/s), for factor 0.50."
    )
    bench.kafka.refuses[ANY] = PolicyViolationError()
    bench.reconcile(order(0.0, 2))
    assert "could not be set to 65.5 kB/s, for factor 0.00" in bench.events[-1]["explanation"]


def test_the_records_of_another_headgate_are_left_alone_until_a_release(bench: Bench) -> None:
    bench.kafka.rates[ALICE] = 65_536
    bench.kafka.originals[ALICE] = Original(900_000, 65_536, OWNER + 1)
    bench.reconcile(order(0.5))
    bench.reconcile(order(1.0, 2))
    assert bench.kafka.rates == {ALICE: 65_536}
    bench.restart()
    assert bench.worker.release(Event()).restored == {str(ALICE): 900_000}
    assert (bench.kafka.rates, bench.kafka.originals) == ({ALICE: 900_000}, {})


def test_a_restart_within_a_throttle_changes_nothing(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 900_000
    bench.reconcile(order(0.5, 4))
    bench.restart(order(0.5, 4))
    assert bench.reconcile() == [("unchanged", "decided")]
    assert len(bench.kafka.acts) == 1


@pytest.mark.parametrize(
    ("found", "recalled"), [(65_536, ()), (500_000, (order(0.5),))], ids=["the floor", "the base times a factor"]
)
def test_a_quota_that_may_be_ours_without_a_record_is_no_original_until_an_operator_decides(
    bench: Bench, found: int, recalled: tuple[ThrottleFactor, ...]
) -> None:
    bench.kafka.rates[ANY] = found
    bench.restart(*recalled)
    for number, factor in enumerate((0.1, 1.0), 2):
        assert bench.reconcile(order(factor, number))[-1:] in ([("refused", "unknown_original")], [])
        assert bench.kafka.rates == {ANY: found}
    assert "--forget 'client-id=<default>'" in bench.events[-1]["detail"]
    bench.restart()
    assert bench.worker.release(Event(), ANY).left == {}
    bench.restart(*recalled)
    bench.reconcile(order(1.0, 3))
    assert (bench.kafka.rates, bench.events[-1]["outcome"]) == ({ANY: found}, "unchanged")


def test_forget_means_no_quota_whose_original_is_recorded(bench: Bench) -> None:
    """It names an entity and no cluster: elsewhere the same entity may be slowed down."""
    bench.kafka.rates[ANY] = 900_000
    bench.reconcile(order(0.5))
    assert bench.made().release(Event(), ANY) == Released({str(ANY): 900_000}, {}, {str(ANY): 500_000})
    assert bench.kafka.rates == {ANY: 900_000}


def test_a_quota_that_equals_the_first_decision_of_a_loop_without_history_is_no_original(bench: Bench) -> None:
    """An earlier loop under another topic prefix decided the same, and its record was deleted."""
    bench.kafka.rates[ANY] = 500_000
    assert bench.reconcile(order(0.5)) == [("refused", "unknown_original")]
    bench.reconcile(order(1.0, 2))
    assert bench.kafka.rates == {ANY: 500_000}
    assert bench.states[-1].unknown[0].entity == str(ANY)


def test_an_operators_value_decides_too(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 65_536
    bench.reconcile(order(0.5))
    bench.kafka.set_by_hand(ANY, 700_000)
    bench.look(10)
    assert bench.kafka.rates == {ANY: 500_000}
    bench.reconcile(order(1.0, 2))
    assert bench.kafka.rates == {ANY: 700_000}


@pytest.mark.parametrize("late_seconds", [0.0, 2.5, 8.0, 30.0])
@pytest.mark.parametrize("steps", ["none", "30s"])
def test_a_change_by_hand_is_known_by_the_record_beside_it_however_late_a_broker_is(
    late_seconds: float, steps: str
) -> None:
    bench = Bench(brokers=3, max_told_wait=steps)
    bench.reconcile(order(0.5, valid_seconds=3600))
    bench.look(60)
    bench.kafka.late_seconds = {3: late_seconds}
    bench.kafka.set_by_hand(ANY, 700_000)
    bench.look(60)
    assert bench.kafka.rates == {ANY: 500_000}
    assert "changed_by_hand" in {event["reason"] for event in bench.events}
    bench.reconcile(order(1.0, 2, valid_seconds=3600))
    bench.look(60)
    assert (bench.kafka.rates, bench.kafka.originals) == ({ANY: 700_000}, {})


@pytest.mark.parametrize("late_seconds", [0.0, 2.5, 8.0, 30.0])
@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "answer lost"])
def test_a_quota_that_a_late_broker_has_never_seen_is_put_back(late_seconds: float, is_lost: bool) -> None:
    bench = Bench(brokers=3)
    bench.reconcile(order(0.5, valid_seconds=3600))
    bench.look(60)
    bench.kafka.late_seconds = {3: late_seconds}
    bench.kafka.set_by_hand(ALICE, 3_000_000)
    bench.kafka.loses = [KafkaTimeoutError("slow")] * is_lost
    bench.look(60)
    assert bench.kafka.rates == {ANY: 500_000, ALICE: 1_500_000}
    bench.reconcile(order(1.0, 2, valid_seconds=3600))
    bench.look(60)
    assert (bench.kafka.rates, bench.kafka.originals) == ({ALICE: 3_000_000}, {})


def test_a_quota_that_is_removed_with_its_record_before_any_broker_showed_it_is_set_again() -> None:
    bench = Bench(brokers=3)
    bench.reconcile(order(0.5, valid_seconds=3600))
    bench.kafka.set_by_hand(ANY, None)
    bench.kafka.originals.clear()
    bench.look(30)
    assert bench.kafka.rates == {ANY: 500_000}


FACTORS = st.sampled_from((0.0, 0.0, 0.1, 0.25, 0.5, 0.9, 1.0))
TROUBLES = st.sampled_from(("nothing", "nothing", "killed", "no answer", "lost answer"))


@examples(2)
@given(
    original=st.sampled_from((None, 30_000, 900_000, 10_000_000, 2**53)),
    specific=st.sampled_from((None, 30_000, 50_000_000)),
    late=st.lists(st.sampled_from((0.0, 0.3, 2.5, 4.9, 12.0, 40.0)), min_size=1, max_size=4),
    steps=st.sampled_from(("none", "10s", "30s")),
    course=st.lists(
        st.tuples(FACTORS, st.sampled_from((0.05, 0.4, 1.0, 2.5, 5.5, 15.0)), TROUBLES), min_size=1, max_size=12
    ),
)
def test_no_course_of_factors_late_brokers_and_failures_takes_an_original_away(
    original: int | None, specific: int | None, late: list[float], steps: str, course: list[tuple[float, float, str]]
) -> None:
    bench = Bench({"client_id": "default", "base": 10_000_000}, max_told_wait=steps)
    bench.kafka.brokers = dict.fromkeys(range(len(late)), BrokerQuotaSettings())
    bench.kafka.late_seconds = dict(enumerate(late))
    before = {entity: rate for entity, rate in ((ANY, original), (ALICE, specific)) if rate is not None}
    for entity, rate in before.items():
        bench.kafka.set_by_hand(entity, rate)
    bench.clock.advance(60)
    for number, (factor, seconds, trouble) in enumerate(course, 1):
        decision = order(factor, number, valid_seconds=36_000)
        if trouble == "killed":
            bench.restart()
        bench.kafka.fails = [KafkaTimeoutError("slow")] * (trouble == "no answer")
        bench.kafka.loses = [KafkaTimeoutError("slow")] * (trouble == "lost answer")
        bench.reconcile(decision)
        bench.look(seconds)
    bench.reconcile(order(1.0, len(course) + 1, valid_seconds=36_000))
    bench.look(200)
    assert (bench.kafka.rates, bench.kafka.originals) == (before, {})
    assert "changed_by_hand" not in {event["reason"] for event in bench.events}


@pytest.mark.parametrize(
    ("again", "steps", "jitter"),
    combined([(24.0, 0.0), (120.0, 1.0), (120.0, 0.0)], ["none", "30s"], [0.0, 0.3], one_of=4),
)
def test_a_quota_that_an_operator_puts_back_is_open_for_five_seconds_at_most(
    again: tuple[float, float], steps: str, jitter: float
) -> None:
    period, late_seconds = again
    bench = Bench({"client_id": "default", "base": 2_000_000}, brokers=3, max_told_wait=steps)
    bench.kafka.late_seconds = {3: late_seconds}
    bench.kafka.set_by_hand(ANY, 3_000_000)
    bench.clock.advance(30)
    bench.reconcile(order(0.0, valid_seconds=36_000))
    bench.look(60)
    open_seconds, let_through = list[float](), 0.0
    for number in range(10):
        bench.look(period * (1 + jitter * (-1) ** number))
        bench.kafka.set_by_hand(ANY, 3_000_000)
        opened = bench.clock.monotonic()
        while bench.kafka.rates[ANY] == 3_000_000:
            bench.look(0.1)
        open_seconds.append(bench.clock.monotonic() - opened)
        let_through = max(let_through, bench.kafka.rates[ANY])
    assert max(open_seconds) <= 5.0 + late_seconds + 0.1
    assert let_through < 3_000_000 / 4, "a moment's rate begins no descent from the top"
    (rival,) = bench.states[-1].contested
    assert (rival.entity, rival.bytes_per_second) == (str(ANY), 3_000_000)
    assert rival.period_seconds == pytest.approx(period, abs=jitter * period + late_seconds + 6)
    bench.look(30)
    added = dict.fromkeys((EVERY_USER, EACH), Original(None, 65_536, OWNER))
    assert (bench.kafka.rates, bench.kafka.originals) == (STOP, {ANY: Original(3_000_000, 65_536, OWNER), **added})
    bench.reconcile(order(1.0, 2, valid_seconds=36_000))
    assert bench.kafka.rates == {ANY: 3_000_000}


def test_below_one_the_quotas_are_read_twelve_times_a_minute_and_else_at_the_interval(bench: Bench) -> None:
    bench.reconcile(order(0.5, valid_seconds=36_000))
    bench.look(10)
    before = bench.kafka.looks
    bench.look(60)
    assert bench.kafka.looks - before <= 12
    bench.reconcile(order(1.0, 2, valid_seconds=36_000))
    bench.look(60)
    before = bench.kafka.looks
    bench.look(600)
    assert bench.kafka.looks - before <= 10


def test_the_report_names_the_brokers_that_show_the_quota_and_another_one_when_all_do() -> None:
    bench = Bench(brokers=3)
    bench.reconcile(order(0.5, valid_seconds=3600))
    bench.look(30)
    reported = [(e["outcome"], e["confirmed_brokers"], e["broker_count"]) for e in bench.events]
    assert reported == [("applied", 0, 3), ("unchanged", 3, 3)]
    assert [(s.set_count, s.is_settled) for s in bench.states] == [(1, False), (1, True)]
    assert bench.states[-1].let_through_bytes_per_second == 3 * 500_000


MORE_SPECIFIC = [
    Entity(user=DEFAULT), Entity(user="ANONYMOUS"), Entity(client_id="app"), Entity("ANONYMOUS", DEFAULT),
]  # fmt: skip


@pytest.mark.parametrize("entity", MORE_SPECIFIC, ids=str)
def test_a_more_specific_quota_is_scaled_too_and_put_back(bench: Bench, entity: Entity) -> None:
    bench.kafka.rates[entity] = 50_000_000
    bench.reconcile(order(0.5))
    assert bench.kafka.rates == {ANY: 500_000, entity: 25_000_000}
    bench.reconcile(order(0.0, 2))
    assert bench.kafka.rates.items() >= {ANY: 65_536, entity: 65_536}.items()
    assert set(bench.kafka.rates.values()) == {65_536}
    bench.restart()
    bench.reconcile(order(1.0, 3))
    assert (bench.kafka.rates, bench.kafka.originals) == ({entity: 50_000_000}, {})


def test_a_more_specific_quota_that_is_set_later_is_scaled_at_the_next_look(bench: Bench) -> None:
    bench.reconcile(order(0.0, valid_seconds=3600))
    bench.kafka.set_by_hand(ALICE, 9_000_000)
    bench.look(6)
    assert bench.kafka.rates == {**STOP, ALICE: 65_536}
    bench.kafka.set_by_hand(ALICE, None)
    bench.look(15)
    assert bench.kafka.rates == STOP, "a quota that its owner removed is not set again"


def test_with_cover_listed_more_specific_quotas_are_left_alone_and_shown() -> None:
    bench = Bench(cover="listed")
    bench.kafka.rates[ALICE] = 9_000_000
    bench.reconcile(order(0.0))
    assert bench.kafka.rates == {ANY: 65_536, ALICE: 9_000_000}
    assert bench.metric("escapes", entity=str(ALICE)) == 1
    assert [each.entity for each in bench.states[-1].escaping] == [str(ALICE)]
    bench.kafka.set_by_hand(ALICE, None)
    bench.look(6)
    assert bench.metric("escapes", entity=str(ALICE)) is None


def test_a_stop_reaches_clients_without_an_id_and_each_client_id_keeps_a_quota_of_its_own(bench: Bench) -> None:
    app, of_app = Entity(client_id="app"), Entity(DEFAULT, "app")
    bench.kafka.rates |= {app: 30_000}
    bench.reconcile(order(0.5))
    assert bench.kafka.rates == {ANY: 500_000, app: 30_000}
    assert [state.clients_without_id_escape for state in bench.states] == [True]
    bench.reconcile(order(0.0, 2))
    assert bench.kafka.rates == {**STOP, app: 30_000, of_app: 30_000}
    last = bench.states[-1]
    assert (last.clients_without_id_escape, last.set_count, last.let_through_bytes_per_second) == (False, 2, 95_536)
    bench.restart()
    bench.reconcile(order(0.5, 3))
    assert (bench.kafka.rates, list(bench.kafka.originals)) == ({ANY: 500_000, app: 30_000}, [ANY])
    bench.reconcile(order(0.0, 4))
    bench.restart()
    assert bench.worker.release(Event()).left == {}
    assert (bench.kafka.rates, bench.kafka.originals) == ({app: 30_000}, {})


def test_the_steps_of_a_stop_are_those_of_the_default_client_id() -> None:
    bench = Bench({"client_id": "default", "base": 10_000_000}, max_told_wait="30s")
    bench.reconcile(order(0.0, valid_seconds=3600))
    for _ in range(12):
        assert {bench.kafka.rates[EVERY_USER], bench.kafka.rates[EACH]} == {bench.kafka.rates[ANY]}
        bench.look(5)
    assert bench.kafka.rates == STOP


CAROL, FREE = Entity("carol"), 10**15


def test_an_excluded_user_without_a_quota_is_kept_free_for_the_time_of_the_throttle() -> None:
    bench = Bench(exclude=["carol"])
    bench.kafka.rates[Entity("carol", "other")] = 5_000_000
    assert bench.worker.preflight() == []
    bench.reconcile(order(0.5))
    assert bench.kafka.rates == {ANY: 500_000, Entity("carol", "other"): 5_000_000, CAROL: FREE}
    assert {(e["entity"], e["reason"]) for e in bench.events} >= {("user=carol", "excluded_user")}
    assert bench.states[-1].let_through_bytes_per_second == 500_000
    assert bench.metric("bytes_per_second", entity="user=carol") is None, "no dashboard shows a petabyte a second"
    bench.restart()
    bench.reconcile(order(1.0, 2))
    assert (bench.kafka.rates, bench.kafka.originals) == ({Entity("carol", "other"): 5_000_000}, {})


def test_an_excluded_users_quota_that_is_removed_between_two_throttles_or_within_one_cancels_no_stop() -> None:
    bench = Bench(exclude=["carol"])
    bench.kafka.rates[CAROL] = 30_000_000
    bench.reconcile(order(0.5, valid_seconds=3600))
    assert bench.kafka.rates == {ANY: 500_000, CAROL: 30_000_000}
    bench.kafka.set_by_hand(CAROL, None)
    bench.look(6)
    assert bench.kafka.rates == {ANY: 500_000, CAROL: FREE}
    bench.reconcile(order(1.0, 2, valid_seconds=3600))
    assert bench.kafka.rates == {}
    bench.reconcile(order(0.0, 3, valid_seconds=3600))
    assert bench.kafka.rates == {**STOP, CAROL: FREE}
    bench.kafka.set_by_hand(CAROL, 30_000_000)
    bench.look(12)
    bench.reconcile(order(1.0, 4, valid_seconds=3600))
    assert (bench.kafka.rates, bench.kafka.originals) == ({CAROL: 30_000_000}, {})


def test_if_kafka_refuses_the_quota_of_an_excluded_user_they_are_named_and_the_rest_is_stopped() -> None:
    bench = Bench(exclude=["carol"])
    bench.kafka.refuses[CAROL] = PolicyViolationError()
    bench.reconcile(order(0.0))
    assert bench.kafka.rates == STOP
    assert (bench.events[-1]["outcome"], bench.events[-1]["entity"]) == ("failed", "user=carol")
    assert bench.metric("failing") == 1
    assert [state.not_set for state in bench.states] == [], "somebody is stopped"


@pytest.mark.parametrize("period", [12.0, 120.0])
def test_what_strimzis_user_operator_deletes_is_set_again_and_its_original_stays(bench: Bench, period: float) -> None:
    bench.kafka.rates[ALICE] = 4_000_000
    bench.reconcile(order(0.0, valid_seconds=36_000))
    for _ in range(5):
        bench.look(period)
        bench.kafka.set_by_hand(ALICE, None)
        bench.look(6)
        assert bench.kafka.rates[ALICE] == 65_536
    assert "changed_by_hand" not in {event["reason"] for event in bench.events}
    assert [each.entity for each in bench.states[-1].contested] == [str(ALICE)]
    bench.restart()
    bench.kafka.set_by_hand(ALICE, None)
    bench.reconcile(order(1.0, 2, valid_seconds=36_000))
    assert (bench.kafka.rates, bench.kafka.originals) == ({ALICE: 4_000_000}, {})


NOTHING_SET: dict[str, tuple[dict[Entity, int], dict[int, BrokerQuotaSettings], str]] = {
    "a callback": ({}, {1: BrokerQuotaSettings("io.example.Callback")}, "heeds no quotas"),
    "no original known": ({ANY: 65_536}, {1: BrokerQuotaSettings()}, "no record on the cluster"),
}


@pytest.mark.parametrize(("rates", "brokers", "why"), NOTHING_SET.values(), ids=NOTHING_SET)
def test_nothing_set_below_one_is_a_failure_whatever_the_reason(
    rates: dict[Entity, int], brokers: dict[int, BrokerQuotaSettings], why: str
) -> None:
    bench = Bench()
    bench.kafka.rates |= rates
    bench.kafka.brokers = brokers
    bench.reconcile(order(0.0))
    assert bench.metric("failing") == 1
    assert why in (bench.states[-1].not_set or "")
    bench.reconcile(order(1.0, 2))
    assert (bench.metric("failing"), bench.states[-1].not_set) == (0, None)


def test_a_tighter_quota_and_shadow_mode_are_no_failures(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 10_000
    bench.reconcile(order(0.5))
    assert (bench.metric("failing"), bench.states[-1].not_set, bench.states[-1].set_count) == (0, None, 1)
    bench.reconcile(order(0.5, 2, mode=Mode.SHADOW))
    assert (bench.metric("failing"), bench.states[-1].not_set) == (0, None)


@pytest.mark.parametrize("fails", ["refuses", "reads"])
def test_a_failure_while_nothing_is_set_is_in_the_reading(bench: Bench, fails: str) -> None:
    bench.reconcile(order(1.0))
    if fails == "refuses":
        bench.kafka.refuses = dict.fromkeys(STOP, PolicyViolationError())
    else:
        bench.kafka.fails = [KafkaTimeoutError("slow")] * ATTEMPTS
    bench.reconcile(order(0.0, 2))
    assert (bench.states[-1].factor, bench.states[-1].set_count, bench.metric("failing")) == (0.0, 0, 1)
    assert bench.states[-1].not_set
    bench.kafka.refuses = {}
    bench.reconcile(after=5)
    assert bench.states[-1].not_set is None


def test_a_late_decision_is_refused_by_name_and_changes_nothing(bench: Bench) -> None:
    bench.reconcile(order(0.5, 7))
    assert bench.reconcile(order(1.0, 6)) == [("refused", "fenced")]
    assert (bench.events[-1]["sequence"], bench.events[-1]["detail"]) == (6, "sequence 7 is in force")
    assert bench.kafka.rates == {ANY: 500_000}


@pytest.mark.parametrize(
    ("action", "factor", "rates"),
    [
        pytest.param("hold", 0.0, STOP, id="a stop stays a stop"),
        pytest.param("hold", 0.1, {ANY: 100_000}, id="a factor below the fallback stays"),
        pytest.param("hold", 1.0, {ANY: 250_000}, id="a factor above the fallback falls to it"),
        pytest.param("fallback", 0.0, {ANY: 250_000}, id="as the released plugin does"),
    ],
)
def test_a_query_that_dies_opens_no_gate(bench: Bench, action: str, factor: float, rates: dict[Entity, int]) -> None:
    bench.throttle = throttle(HARD, fallback_factor=0.25, expired_action=action)
    bench.worker = bench.made()
    decision = order(factor)
    bench.reconcile(decision)
    bench.reconcile(after=181)
    assert bench.kafka.rates == rates
    bench.restart(decision)
    bench.reconcile(after=3600)
    assert bench.kafka.rates == rates


def test_a_pause_leaves_every_quota_as_it_is_and_its_end_carries_out_what_is_decided(bench: Bench) -> None:
    until = bench.clock.now() + timedelta(hours=1)
    bench.kafka.rates[ANY] = 900_000
    bench.reconcile(order(0.25))
    paused = order(1.0, 2, mode=Mode.SHADOW, frozen_until=until)
    assert bench.reconcile(paused, after=5) == []
    assert bench.reconcile(after=30) == [], "not even verified"
    assert bench.kafka.rates[ANY] == 250_000
    bench.restart()
    assert bench.reconcile(paused) == [], "a restart while paused"
    assert bench.kafka.rates[ANY] == 250_000
    assert bench.reconcile(order(1.0, 3)) == [("applied", "decided")]
    assert bench.kafka.rates[ANY] == 900_000


def test_shadow_mode_says_what_it_would_and_takes_back_what_was_applied(bench: Bench) -> None:
    bench.reconcile(order(0.5))
    assert bench.reconcile(order(0.25, 2, mode=Mode.SHADOW)) == [("applied", "shadow")]
    assert bench.kafka.rates == {}
    assert bench.reconcile(after=5) == [("unchanged", "shadow")]
    assert bench.events[-1]["rate_bytes_per_second"] == 250_000


def test_what_was_just_set_is_looked_at_soon_and_then_at_the_interval(bench: Bench) -> None:
    pauses = []
    bench.reconcile(order(0.5, valid_seconds=3600))
    bench.reconcile(order(1.0, 2, valid_seconds=3600))
    for _ in range(3):
        pauses.append(bench.worker.pause_seconds())
        bench.reconcile(after=pauses[-1])
    assert pauses == [5.0, 60.0, 60.0]


def test_nothing_is_set_on_another_cluster_behind_the_address_until_it_is_decided_on(bench: Bench) -> None:
    bench.kafka.cluster_id = "old"
    bench.reconcile(order(0.5, 1, cluster_id="old"))
    assert bench.kafka.rates == {ANY: 500_000}
    bench.kafka.rates, bench.kafka.originals, bench.kafka.cluster_id = {}, {}, "new"
    bench.kafka.fails = [KafkaTimeoutError("gone")]  # its connections end with the cluster
    bench.look(60)
    bench.reconcile(order(0.0, 2, cluster_id="old"), after=1)
    assert bench.kafka.rates == {}
    assert bench.metric("failing") == 1
    detail = bench.events[-1]["detail"]
    assert "another Kafka cluster answers: its id is new, and the decision is about old" in detail
    assert "headgate adopt --cluster" in detail
    bench.reconcile(order(0.5, 3, cluster_id="new"), after=1)
    assert bench.kafka.rates == {ANY: 500_000}
    assert bench.kafka.originals[ANY].baseline is None
    bench.reconcile(order(1.0, 4, cluster_id="new"), after=1)
    assert bench.kafka.rates == {}


@pytest.mark.parametrize(
    ("error", "attempts"), [(KafkaTimeoutError(), ATTEMPTS), (ZeroDivisionError(), 1)], ids=["away", "ours"]
)
def test_a_failure_is_tried_again_and_said_once_until_all_is_well(
    bench: Bench, error: Exception, attempts: int
) -> None:
    bench.kafka.fails = [error] * 2 * attempts
    assert bench.reconcile(order(0.5)) == [("failed", "decided")]
    assert bench.events[-1]["attempt"] == attempts
    assert (bench.metric("failing"), bench.worker.pause_seconds(), len(bench.clock.waits)) == (1, 5.0, attempts - 1)
    assert bench.reconcile(order(0.5, 2)) == [], "a repeated decision does not hurry it"
    assert bench.reconcile(after=5) == [], "the same is not said again"
    assert bench.reconcile(after=5) == [("applied", "decided")]
    assert (bench.metric("failing"), bench.metric("applications_total", outcome="applied")) == (0, 1)


def test_a_new_decision_does_not_wait_for_the_pause_after_a_failure_nor_for_the_next_look(bench: Bench) -> None:
    bench.kafka.fails = [KafkaTimeoutError()] * ATTEMPTS
    bench.reconcile(order(0.5))
    assert bench.reconcile(order(0.25, 2)) == [("applied", "decided")]
    bench.kafka.fails = [KafkaTimeoutError()] * ATTEMPTS
    assert bench.reconcile(after=5) == [("failed", "decided")]
    assert bench.reconcile(after=5) == [("unchanged", "decided")], "that it is right again is said"
    assert bench.reconcile(after=4) == []
    bench.clock.advance(163)
    bench.worker.reconcile(Event())
    assert bench.worker.pause_seconds() == 3.0, "until the decision in force expires"


def test_while_the_cluster_may_be_anothers_nothing_is_set_or_said_and_then_at_once(bench: Bench) -> None:
    bench.worker.may_act = lambda: False
    assert bench.reconcile(order(0.5)) == []
    assert (bench.kafka.acts, bench.worker.pause_seconds(), bench.metric("failing")) == ([], 1.0, None)
    bench.worker.may_act = lambda: True
    assert bench.reconcile(after=1) == [("applied", "decided")]


def test_nothing_is_done_without_a_decision(bench: Bench) -> None:
    assert bench.reconcile() == []
    assert (bench.kafka.acts, bench.worker.pause_seconds()) == ([], 60.0)


def test_after_a_failure_it_connects_anew_and_leaves_nothing_open(bench: Bench) -> None:
    bench.kafka.fails = [KafkaTimeoutError("slow")]
    bench.reconcile(order(0.5))
    assert bench.kafka.clients == 1
    stop = Event()
    stop.set()
    bench.worker.run(stop)
    assert bench.kafka.clients == 0


def test_one_entity_that_is_refused_does_not_keep_the_others_back() -> None:
    bench = Bench(EVERYBODY, {"user": "alice", "base": 400_000})
    bench.kafka.refuses[ALICE] = PolicyViolationError()
    assert {outcome for outcome, _ in bench.reconcile(order(0.5))} == {"applied", "unchanged", "failed"}
    assert bench.events[-1]["entity"] == str(ALICE)
    assert bench.kafka.rates == {ANY: 500_000}
    bench.kafka.refuses.clear()
    assert [outcome for outcome, _ in bench.reconcile(after=5)] == ["applied"]
    assert bench.kafka.rates == {ANY: 500_000, ALICE: 200_000}


def test_settings_that_do_not_fit_are_refused_all_at_once_with_their_place() -> None:
    bench = Bench({"user": "default"}, EVERYBODY, exclude=["bob"])
    bench.kafka.brokers = dict.fromkeys((1, 2), BrokerQuotaSettings("io.example.Callback"))
    said = bench.worker.preflight()
    assert bench.kafka.clients == 0
    assert [line.removeprefix("clusters.payments.quotas: ")[:30] for line in said] == [
        "broker 1, 2 has client.quota.c", "entity user=<default> has neit",
    ]  # fmt: skip


@pytest.mark.parametrize("fails", [[], [KafkaTimeoutError("slow")]], ids=["it fits", "it does not answer yet"])
def test_no_other_settings_are_refused(bench: Bench, fails: list[Exception]) -> None:
    bench.kafka.fails = fails[:]
    assert bench.worker.preflight() == []
    assert bench.kafka.clients == 0


def test_a_refused_question_for_the_brokers_settings_is_no_obstacle_and_is_logged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: KafkaClient) -> dict[int, BrokerQuotaSettings]:
        raise ClusterAuthorizationFailedError

    monkeypatch.setattr(KafkaClient, "broker_settings", refuse)
    with capture_logs() as logs:
        assert bench.reconcile(order(0.5)) == [("applied", "decided")]
    assert [each["event"].endswith("a quota callback would not be noticed") for each in logs][:1] == [True]


def test_release_puts_back_all_there_was_whatever_is_decided(bench: Bench) -> None:
    bench.kafka.rates[ANY] = 900_000
    bench.reconcile(order(0.5))
    bench.restart()
    assert bench.worker.release(Event()).left == {}
    assert (bench.kafka.rates, bench.kafka.clients) == ({ANY: 900_000}, 1), "the one of the worker before"
    assert (bench.events[-1]["outcome"], bench.events[-1]["reason"]) == ("applied", "released")


def test_what_cannot_be_put_back_is_named(bench: Bench) -> None:
    bench.reconcile(order(0.5))
    bench.kafka.refuses[ANY] = PolicyViolationError()
    assert "all quotas" in bench.worker.release(Event()).left


def test_where_nothing_is_held_release_changes_nothing(bench: Bench) -> None:
    assert bench.worker.release(Event()) == Released({}, {})
    assert bench.kafka.acts == []


@pytest.mark.parametrize("settings", [True, False], ids=["scaled only", "no settings any more"])
def test_release_refuses_each_quota_that_may_be_ours_and_forget_names_its_cause(bench: Bench, settings: bool) -> None:
    bench.kafka.rates[ALICE] = 65_536
    bench.settings = bench.settings if settings else None
    bench.restart()
    assert list(bench.worker.release(Event()).left) == [str(ALICE)]
    bench.restart()
    assert bench.worker.release(Event(), ALICE) == Released({}, {}, {str(ALICE): 65_536})
    assert "confirmed" in {event["reason"] for event in bench.events}
    assert bench.kafka.rates == {ALICE: 65_536}


def test_an_entity_that_left_the_settings_is_put_back() -> None:
    bench = Bench(EVERYBODY, {"user": "alice", "base": 400_000})
    bench.reconcile(order(0.5))
    bench.settings = QuotaSettings.model_validate({"entities": [EVERYBODY]})
    bench.restart()
    bench.reconcile()
    assert bench.kafka.rates == {ANY: 500_000}
    assert list(bench.kafka.originals) == [ANY]


def descent(bench: Bench, *, seconds: float) -> list[tuple[float, int | None]]:
    """(seconds since now, rate) of each change, as the worker wakes itself."""
    start = bench.clock.monotonic()
    seen: list[tuple[float, int | None]] = []
    while (at := bench.clock.monotonic() - start) < seconds:
        bench.worker.reconcile(Event())
        rate = bench.kafka.rates.get(ANY)
        if not seen or seen[-1][1] != rate:
            seen.append((at, rate))
        bench.clock.advance(max(0.1, min(bench.worker.pause_seconds(), 5.0)))
    return seen


@pytest.mark.parametrize("before", [10_000_000, None], ids=["a quota in force", "only a base"])
def test_a_sudden_stop_goes_down_in_steps_that_tell_nobody_to_wait_too_long(before: int | None) -> None:
    bench = Bench({"client_id": "default", "base": 10_000_000}, max_told_wait="30s")
    if before is not None:
        bench.kafka.rates[ANY] = before
    assert bench.reconcile(order(0.0, valid_seconds=3600))[0] == ("applied", "stepping")
    steps = descent(bench, seconds=90)
    rates = [10_000_000, *(rate for _, rate in steps if rate is not None)]
    assert rates[-1] == 65_536
    assert steps[-1][0] <= 4 * 11 + 5
    assert all(b * 11 / a - 11 <= 30.0 for b, a in pairwise(rates))
    assert all(after - at >= 11.0 for (at, _), (after, _) in pairwise(steps))
    applied = [e for e in bench.events if e["outcome"] == "applied" and e["entity"] == str(ANY)]
    assert [e["reason"] for e in applied] == ["stepping"] * (len(steps) - 1) + ["decided"]
    bench.reconcile(order(1.0, 2, valid_seconds=3600))
    assert bench.kafka.rates.get(ANY) == before


def test_a_step_down_is_not_begun_anew_after_a_restart_sooner_than_the_window_is_empty() -> None:
    bench = Bench({"client_id": "default", "base": 10_000_000}, max_told_wait="30s")
    bench.reconcile(order(0.0, valid_seconds=3600))
    first = bench.kafka.rates[ANY]
    bench.restart()
    bench.reconcile(order(0.0, 2, valid_seconds=3600), after=1.0)
    assert bench.kafka.rates[ANY] == first
    assert descent(bench, seconds=90)[-1][1] == 65_536


def test_a_quota_that_is_put_back_on_the_way_down_makes_no_step_sooner() -> None:
    bench = Bench({"client_id": "default", "base": 10_000_000}, max_told_wait="30s")
    bench.reconcile(order(0.0, valid_seconds=3600))
    bench.look(10.9)
    bench.kafka.set_by_hand(ANY, None)
    bench.clock.advance(0.2)
    before = bench.kafka.acts[0][ANY] or 0
    ((_, after),) = descent(bench, seconds=10)
    assert after is not None
    assert before * 11 / after - 11 <= 30.0
    assert descent(bench, seconds=90)[-1][1] == 65_536
