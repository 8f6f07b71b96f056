"""What every collector of bookies does, however it reaches them: on a source that says what a test wants."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics, ReadErrors
from connectors.isolation.collector import BookieCollector, LeftSeconds
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


class Collector(BookieCollector[LeftSeconds]):
    """Its source fails as `fails` says: at connecting, or at one kind of reading."""

    def __init__(self, published: Published, registry: CollectorRegistry, poll_seconds: float = HOUR) -> None:
        super().__init__(
            "c1",
            poll_interval=timedelta(seconds=poll_seconds),
            poll_limit_seconds=5.0,
            affinity_seconds=HOUR,
            errors=ERRORS,
            publish=published.take,
            metrics=PollMetrics(registry),
        )
        self.fails: dict[str, Exception] = {}
        self.limits_seconds: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.closed = False

    def connect(self, left_seconds: LeftSeconds) -> LeftSeconds:
        self._do("connect")
        return left_seconds

    def read_bookies(self, source: LeftSeconds) -> Bookies:
        self._do("bookies")
        self.limits_seconds.append(source())
        return Bookies(cluster=self._cluster, outcome=Outcome.OK, writable=(), read_only=(), known=())

    def read_racks(self, source: LeftSeconds) -> BookieRacks:
        self._do("racks")
        return BookieRacks(cluster=self._cluster, outcome=Outcome.OK, groups={})

    def read_affinity(self, source: LeftSeconds) -> BookieAffinity:
        self._do("affinity")
        return BookieAffinity(cluster=self._cluster, outcome=Outcome.OK, namespaces={})

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
def collector(published: Published, registry: CollectorRegistry) -> Collector:
    return Collector(published, registry)


def outcomes(published: Published) -> list[tuple[type[Reading], Outcome, str | None]]:
    return [(type(reading), reading.outcome, reading.detail) for reading in published.readings]


OK, AWAY = Outcome.OK, Outcome.UNREACHABLE


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ({}, [(Bookies, OK, None), (BookieRacks, OK, None)]),
        ({"bookies": OSError("x")}, [(Bookies, AWAY, "x"), (BookieRacks, OK, None)]),
        ({"racks": OSError("x")}, [(Bookies, OK, None), (BookieRacks, AWAY, "x")]),
        ({"connect": OSError("x")}, [(Bookies, AWAY, "x"), (BookieRacks, AWAY, "x")]),
    ],
    ids=["all is well", "no bookies", "no groups", "no connection"],
)
def test_each_reading_fails_by_itself(
    collector: Collector,
    published: Published,
    registry: CollectorRegistry,
    fails: dict[str, Exception],
    expected: list[tuple[type[Reading], Outcome, str | None]],
) -> None:
    collector.fails = fails
    collector.poll_once()
    assert outcomes(published) == expected
    for outcome in (OK, AWAY):
        count = sum(each is outcome for _, each, _ in expected)
        labels = {"cluster": "c1", "outcome": outcome.value}
        assert (registry.get_sample_value("headgate_polls_total", labels) or 0) == count
    assert registry.get_sample_value("headgate_poll_seconds_count", {"cluster": "c1"}) == 1


def test_an_error_that_is_no_observation_is_not_published(collector: Collector, published: Published) -> None:
    collector.fails = {"racks": RuntimeError("a bug")}
    with pytest.raises(RuntimeError):
        collector.poll_once()
    assert [kind for kind, _, _ in outcomes(published)] == [Bookies]


def test_bookies_and_groups_share_a_time_limit(collector: Collector) -> None:
    collector.poll_once()
    (limit_seconds,) = collector.limits_seconds
    assert 0 < limit_seconds <= 5.0


def running(collector: Collector, stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=collector.run, args=(stop,))
    thread.start()
    return thread


def test_a_hint_is_followed_by_a_poll_long_before_the_next_is_due(collector: Collector, published: Published) -> None:
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda readings: {type(each) for each in readings} == {Bookies, BookieRacks, BookieAffinity})
    before = published.count(BookieRacks)
    collector.hint("whatever kazoo says")
    published.wait_for(lambda _: published.count(BookieRacks) > before)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert collector.closed
    assert published.count(BookieAffinity) == 1, "the affinity is not read for that"


def test_a_hundred_hints_in_a_row_are_not_a_hundred_polls(collector: Collector, published: Published) -> None:
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda _: published.count(BookieRacks) >= 1)
    for _ in range(100):
        collector.hint()
    published.wait_for(lambda _: published.count(BookieRacks) >= 2)
    stop.set()
    thread.join(30)
    assert published.count(BookieRacks) < 20


def test_a_poll_that_breaks_ends_nothing_and_is_counted(published: Published, registry: CollectorRegistry) -> None:
    collector = Collector(published, registry, poll_seconds=0.01)
    collector.fails = {"racks": RuntimeError("a bug")}
    stop = threading.Event()
    thread = running(collector, stop)
    published.wait_for(lambda _: published.count(Bookies) >= 3)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    failures: Any = registry.get_sample_value("headgate_poll_failures_total", {"cluster": "c1"})
    assert failures >= 2


def test_what_a_stop_cut_short_is_not_published(collector: Collector, published: Published) -> None:
    stop = threading.Event()
    collector.meanwhile = stop.set
    thread = running(collector, stop)
    thread.join(30)
    assert not thread.is_alive()
    assert published.readings == []


def test_a_reading_beyond_what_one_may_hold_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    published = Published()
    collector = Collector(published, CollectorRegistry())
    too_long: dict[str, dict[str, Any]] = {"g": {"b" * 300: {}}}
    monkeypatch.setattr(
        collector, "read_racks", lambda _: BookieRacks(cluster="c1", outcome=Outcome.OK, groups=too_long)
    )
    collector.poll_once()
    assert [(type(r), r.outcome) for r in published.readings] == [(Bookies, Outcome.OK), (BookieRacks, Outcome.ERROR)]
    assert (published.readings[1].detail or "").startswith("more or longer than a reading may hold: groups.g.")
