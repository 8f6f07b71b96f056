"""What every collector of bookies does, however it reaches them: on a source that says what a test wants."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics, ReadErrors
from connectors.isolation.collector import BookieCollector, BookieSource, LeftSeconds
from connectors.isolation.groups import RackStore
from connectors.isolation.registration import WatchedBookies
from policies.bookie_readings import BookieAffinity, BookieRacks, Bookies
from policies.observations import Outcome, Reading

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


def test_a_hint_is_followed_by_a_poll_long_before_the_next_is_due(
    source: Source, collector: BookieCollector, published: Published
) -> None:
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda readings: {type(each) for each in readings} == {Bookies, BookieRacks, BookieAffinity})
    before = published.count(BookieRacks)
    collector.hint("whatever kazoo says")
    published.wait_for(lambda _: published.count(BookieRacks) > before)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert source.closed
    assert published.count(BookieAffinity) == 1, "the affinity is not read for that"


def test_a_hundred_hints_in_a_row_are_not_a_hundred_polls(collector: BookieCollector, published: Published) -> None:
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda _: published.count(BookieRacks) >= 1)
    for _ in range(100):
        collector.hint()
    published.wait_for(lambda _: published.count(BookieRacks) >= 2)
    stop.set()
    thread.join(30)
    assert published.count(BookieRacks) < 20


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
