"""What a collector of bookies publishes, from a source that a test controls and over HTTP."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics, ReadErrors
from connectors.http.client import MAX_CONNECTIONS
from connectors.isolation.collector import BookieCollector, BookieSource, LeftSeconds, PulsarBookies
from connectors.isolation.groups import RackStore
from connectors.isolation.registration import WatchedBookies, WatchedPulsarBookies
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies, NamespaceAffinity
from policies.observations import Outcome, Reading
from policies.units import parse_duration
from tests.cases import for_each

ERRORS = ReadErrors((OSError,), lambda error: Outcome.UNREACHABLE, str)
HOUR = 3600.0


@dataclass
class Published:
    """What was published, for whoever waits for it."""

    readings: list[Reading] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, reading: Reading) -> None:
        with self.changed:
            self.readings.append(reading)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[list[Reading]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.readings), 30)

    def count(self, kind: type[Reading]) -> int:
        return sum(isinstance(reading, kind) for reading in self.readings)


class Source(BookieSource):
    """Fails as `fails` says, at one kind of reading."""

    errors = ERRORS
    name = "headgate/collector/test"

    def __init__(self) -> None:
        super().__init__("c1", WatchedBookies())
        self.poll_interval, self.affinity_seconds, self.poll_limit_seconds = timedelta(hours=1), HOUR, 5.0
        self.fails: dict[str, Exception] = {}
        self.limits_seconds: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.groups: dict[str, Any] = {}
        self.closed = False

    def read_bookies(self, left_seconds: LeftSeconds) -> Bookies:
        self._do("bookies")
        self.limits_seconds.append(left_seconds())
        return Bookies(cluster=self.cluster, outcome=Outcome.OK, writable=(), read_only=(), known=())

    def read_racks(self, left_seconds: LeftSeconds) -> BookieRacks:
        self._do("racks")
        self.limits_seconds.append(left_seconds())
        return BookieRacks(cluster=self.cluster, outcome=Outcome.OK, groups=self.groups)

    def read_affinity(self, left_seconds: LeftSeconds) -> BookieAffinity:
        self._do("affinity")
        return BookieAffinity(cluster=self.cluster, outcome=Outcome.OK, namespaces={})

    def open_store(self) -> RackStore:
        raise AssertionError("a collector only reads")

    def close(self) -> None:
        self.closed = True

    def _do(self, what: str) -> None:
        self.meanwhile()
        if what in self.fails:
            raise self.fails[what]


@pytest.fixture
def published() -> Published:
    return Published()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def collector(source: Source, published: Published, registry: CollectorRegistry) -> BookieCollector:
    return BookieCollector(source, published.take, PollMetrics(registry))


def outcomes(published: Published) -> list[tuple[type[Reading], Outcome, str | None]]:
    return [(type(reading), reading.outcome, reading.detail) for reading in published.readings]


OK, AWAY = Outcome.OK, Outcome.UNREACHABLE


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ({}, [(Bookies, OK, None), (BookieRacks, OK, None)]),
        ({"bookies": OSError("x")}, [(Bookies, AWAY, "x"), (BookieRacks, OK, None)]),
        ({"racks": OSError("x")}, [(Bookies, OK, None), (BookieRacks, AWAY, "x")]),
    ],
    ids=["all is well", "no bookies", "no groups"],
)
def test_each_reading_fails_by_itself(
    source: Source,
    collector: BookieCollector,
    published: Published,
    registry: CollectorRegistry,
    fails: dict[str, Exception],
    expected: list[tuple[type[Reading], Outcome, str | None]],
) -> None:
    source.fails = fails
    collector.poll_once()
    assert outcomes(published) == expected
    for outcome in (OK, AWAY):
        count = sum(each is outcome for _, each, _ in expected)
        labels = {"cluster": "c1", "outcome": outcome.value}
        assert (registry.get_sample_value("headgate_polls_total", labels) or 0) == count
    assert registry.get_sample_value("headgate_poll_seconds_count", {"cluster": "c1"}) == 1


def test_an_error_that_is_no_observation_is_not_published(
    source: Source, collector: BookieCollector, published: Published
) -> None:
    source.fails = {"racks": RuntimeError("a bug")}
    with pytest.raises(RuntimeError):
        collector.poll_once()
    assert [kind for kind, _, _ in outcomes(published)] == [Bookies]


def test_bookies_and_groups_share_a_time_limit(source: Source, collector: BookieCollector) -> None:
    collector.poll_once()
    first, second = source.limits_seconds
    assert 0 < second < first <= 5.0


def running(collector: BookieCollector, stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=collector.run, args=(stop,))
    thread.start()
    return thread


def test_hints_are_followed_by_a_few_polls_long_before_the_next_is_due(
    source: Source, collector: BookieCollector, published: Published
) -> None:
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda readings: {type(each) for each in readings} == {Bookies, BookieRacks, BookieAffinity})
    before = published.count(BookieRacks)
    for _ in range(100):
        collector.hint("whatever kazoo says")
    published.wait_for(lambda _: published.count(BookieRacks) > before)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert source.closed
    assert published.count(BookieRacks) < 20
    assert published.count(BookieAffinity) == 1, "the affinity is not read for that"


def test_what_a_stop_cut_short_is_not_published(
    source: Source, collector: BookieCollector, published: Published
) -> None:
    stop = threading.Event()
    source.meanwhile = stop.set
    thread = running(collector, stop)
    thread.join(30)
    assert not thread.is_alive()
    assert published.readings == []


def test_a_reading_beyond_what_one_may_hold_is_an_error_that_says_so(
    source: Source, collector: BookieCollector, published: Published
) -> None:
    source.groups = {"g": {"b" * 300: {}}}
    collector.poll_once()
    assert [(type(r), r.outcome) for r in published.readings] == [(Bookies, Outcome.OK), (BookieRacks, Outcome.ERROR)]
    assert (published.readings[1].detail or "").startswith("more or longer than a reading may hold: groups.g.")


PATIENCE_SECONDS = 120.0
AFFINITY = "/persistence/bookieAffinity"
PRIMARY = {"bookkeeperAffinityGroupPrimary": "g1"}


class Pulsar:
    """A cluster's REST: what it says by path; how many are asking at once, and at most.

    `before` is called with the path of each request before it is answered.
    """

    def __init__(self, answers: dict[str, Any], *, before: Callable[[str], object] = lambda path: None) -> None:
        self.answers = answers
        self.paths: list[str] = []
        self.most = 0
        self._asking = 0
        self._before = before
        self._lock = threading.Lock()
        self.admin = AdminApi(PulsarAdmin(admin_url="http://pulsar:8080"), httpx.MockTransport(self._take))

    def _take(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self._asking += 1
            self.most = max(self.most, self._asking)
            self.paths.append(request.url.path)
        self._before(request.url.path)
        with self._lock:
            self._asking -= 1
        answer = self.answers.get(request.url.path.removeprefix("/admin/v2"), 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx.Response(answer, json={"reason": "no"})
        return httpx.Response(200, json=answer)


def of_namespaces(count: int) -> dict[str, Any]:
    names = [f"t/n{number}" for number in range(count)]
    return {"/tenants": ["t"], "/namespaces/t": names} | {f"/namespaces/{name}{AFFINITY}": PRIMARY for name in names}


def pulsar_collector(pulsar: Pulsar, publish: Callable[[Reading], None], **settings: Any) -> BookieCollector:
    metrics = PollMetrics(CollectorRegistry())
    watched = WatchedPulsarBookies(bookie_url="http://127.0.0.1:9", **settings)
    return BookieCollector(PulsarBookies("c1", watched, pulsar.admin), publish, metrics)


def affinity_of(pulsar: Pulsar, **settings: Any) -> BookieAffinity:
    readings: list[Reading] = []
    pulsar_collector(pulsar, readings.append, **settings).poll_affinity_once()
    (reading,) = readings
    assert isinstance(reading, BookieAffinity)
    return reading


def test_only_namespaces_with_affinity_are_told_and_only_their_persistence_is_asked_for() -> None:
    answers = {
        "/tenants": ["a", "b", "gone"],
        "/namespaces/a": ["a/x", "a/y", "a/gone"],
        "/namespaces/b": [],
        f"/namespaces/a/x{AFFINITY}": {**PRIMARY, "bookkeeperAffinityGroupSecondary": "g2,"},
        f"/namespaces/a/y{AFFINITY}": {},
        "/namespaces/a/x/persistence": {"bookkeeperEnsemble": 5, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2},
    }
    pulsar = Pulsar(answers)
    assert affinity_of(pulsar).namespaces == {
        "a/x": NamespaceAffinity(primary=("g1",), secondary=("g2",), ensemble_size=5, write_quorum=3, ack_quorum=2)
    }
    assert [path for path in pulsar.paths if path.endswith("/persistence")] == ["/admin/v2/namespaces/a/x/persistence"]


@pytest.mark.parametrize("refused", ["/clusters", "/clusters/c/namespaceIsolationPolicies"])
def test_policies_of_brokers_that_may_not_be_read_keep_nothing_else_from_being_told(refused: str) -> None:
    reading = affinity_of(Pulsar({**of_namespaces(2), "/clusters": ["c"], refused: 403}))
    assert (reading.outcome, len(reading.namespaces), reading.broker_policies) == (Outcome.OK, 2, None)


def test_sixteen_requests_are_under_way_at_once_and_no_more() -> None:
    sixteen = threading.Barrier(16)

    def await_the_others(path: str) -> None:
        if path.endswith(AFFINITY):
            sixteen.wait(PATIENCE_SECONDS)

    pulsar = Pulsar(of_namespaces(192), before=await_the_others)
    assert len(affinity_of(pulsar).namespaces) == 192
    assert pulsar.most == MAX_CONNECTIONS == 16


@for_each(
    ("answer", "outcome"),
    [(500, "error"), (403, "unauthorized"), (httpx.ReadTimeout("x"), "timeout"), ([], "error")],
    ids=["refused", "forbidden", "silent", "another shape"],
)
def test_one_namespace_that_cannot_be_read_fails_the_whole_reading(answer: Any, outcome: str) -> None:
    reading = affinity_of(Pulsar(of_namespaces(50) | {f"/namespaces/t/n3{AFFINITY}": answer}))
    assert (reading.outcome.value, reading.namespaces) == (outcome, {})
    assert "/admin/v2/namespaces/t/n3" in (reading.detail or "")


def test_a_walk_longer_than_its_interval_is_a_timeout_that_names_the_setting() -> None:
    reading = affinity_of(Pulsar(of_namespaces(500)), affinity_interval=parse_duration("1ms"))
    assert (reading.outcome, "affinity_interval, 0.001 s" in (reading.detail or "")) == (Outcome.TIMEOUT, True)
