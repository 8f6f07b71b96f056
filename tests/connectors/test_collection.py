"""The ticker, in virtual time."""

from itertools import islice

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from structlog.typing import EventDict

from connectors.collection import (
    DETAIL_LENGTH,
    JITTER,
    ChangeFilter,
    OutcomeLog,
    PollMetrics,
    most_telling,
    one_line,
    ticks,
)
from policies.bookie_readings import BookieRacks
from policies.observations import Outcome, Reading
from tests.cases import for_each


class VirtualTime:
    """A clock that moves only when somebody waits or works."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self._stop_at = 1000.0 + stop_at

    def clock(self) -> float:
        return self.now

    def stopped_within(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now = min(self.now + seconds, self._stop_at)
        return self.now >= self._stop_at


def even(low: float, high: float) -> float:
    return (low + high) / 2


@for_each(
    ("jitter", "expected"),
    [(0.0, [0.0, 10.0, 20.0, 30.0]), (JITTER, [0.0, 11.0, 21.0, 31.0]), (-JITTER, [0.0, 9.0, 19.0, 29.0])],
)
def test_ticks_come_at_a_fixed_rate_whatever_the_work_takes_and_jitter_does_not_add_up(
    jitter: float, expected: list[float]
) -> None:
    time, seen = VirtualTime(), list[float]()

    def draw(low: float, high: float) -> float:
        assert (low, high) == (-0.1, 0.1)
        return jitter

    for _ in islice(ticks(10.0, time.stopped_within, clock=time.clock, draw=draw), 4):
        seen.append(round(time.now - 1000.0, 6))
        time.now += 3.0
    assert seen == expected


def test_missed_ticks_are_left_out() -> None:
    time = VirtualTime()
    numbers = []
    for number in islice(ticks(10.0, time.stopped_within, clock=time.clock, draw=even), 3):
        numbers.append((number, time.now - 1000.0))
        time.now += 25.0 if number == 0 else 0.0
    assert numbers == [(0, 0.0), (3, 30.0), (4, 40.0)]


def test_stop_ends_the_wait_and_the_ticks() -> None:
    time = VirtualTime(stop_at=25.0)
    assert list(ticks(10.0, time.stopped_within, clock=time.clock, draw=even)) == [0, 1, 2]
    assert time.now == 1025.0
    assert list(ticks(10.0, lambda _seconds: True)) == []


# No error of a poll ends a collector, and each is counted under its cluster.


def failures(registry: CollectorRegistry, cluster: str) -> float | None:
    return registry.get_sample_value("headgate_poll_failures_total", {"cluster": cluster})


def test_an_unexpected_error_is_counted_and_logged_and_goes_no_further() -> None:
    registry, polled = CollectorRegistry(), list[int]()
    metrics = PollMetrics(registry)

    def poll() -> None:
        raise RuntimeError("a bug")

    assert metrics.run_poll("payments", lambda: polled.append(1))
    assert (polled, failures(registry, "payments")) == ([1], None)
    with capture_logs() as lines:
        assert not metrics.run_poll("payments", poll)
    assert (failures(registry, "payments"), failures(registry, "orders")) == (1, None)
    assert [(line["event"], line["cluster"], line["exc_info"]) for line in lines] == [("poll failed", "payments", True)]


def test_what_is_no_error_ends_the_collector() -> None:
    def poll() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PollMetrics(CollectorRegistry()).run_poll("payments", poll)


# The log of readings, as an operator reads it: which cluster, what, how it ended before and now, and why.


OK, TIMEOUT = Outcome.OK, Outcome.TIMEOUT


def logged(*readings: tuple[Outcome, str | None]) -> list[EventDict]:
    log = OutcomeLog()
    with capture_logs() as lines:
        for outcome, detail in readings:
            log.note("racks", BookieRacks(cluster="c1", outcome=outcome, detail=detail), what="racks")
    return lines


@pytest.mark.parametrize(
    ("readings", "levels"),
    [
        pytest.param([(OK, None), (OK, None)], ["debug"], id="good from the start"),
        pytest.param([(TIMEOUT, "a"), (TIMEOUT, "b")], ["warning"], id="why it fails may be worded otherwise"),
        pytest.param([(OK, None), (TIMEOUT, "a"), (OK, None)], ["debug", "warning", "info"], id="fails and recovers"),
        pytest.param([(OK, None), (OK, "1 node"), (OK, "2 nodes")], ["debug", "warning", "warning"], id="good in part"),
        pytest.param([(TIMEOUT, "a"), (Outcome.UNREACHABLE, "a")], ["warning", "warning"], id="fails in another way"),
    ],
)
def test_a_reading_is_logged_when_it_ends_otherwise(
    readings: list[tuple[Outcome, str | None]], levels: list[str]
) -> None:
    assert [line["log_level"] for line in logged(*readings)] == levels


def test_a_line_names_the_cluster_and_the_thing_and_says_why() -> None:
    assert logged((OK, None), (TIMEOUT, "no answer"))[-1] == {
        "event": "reading changed", "log_level": "warning", "cluster": "c1", "what": "racks", "outcome": "timeout",
        "before": "ok", "detail": "no answer",
    }  # fmt: skip


def test_a_forgotten_key_is_logged_anew() -> None:
    log = OutcomeLog()
    with capture_logs() as lines:
        for _ in range(2):
            log.note("racks", BookieRacks(cluster="c1", outcome=OK))
            log.keep_only(["bookies"])
    assert [line["log_level"] for line in lines] == ["debug", "debug"]


# A reading is published when it has changed, when it is due again, and never else.


def racks(groups: int = 0, outcome: Outcome = Outcome.OK) -> BookieRacks:
    return BookieRacks(cluster="c1", outcome=outcome, groups={f"g{number}": {} for number in range(groups)})


class Filter:
    """One that republishes after 15 s, in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.published: list[Reading] = []
        self.filter = ChangeFilter(self.published.append, 15.0, lambda: self.now)

    def offer(self, reading: Reading, key: str = "a", after: float = 1.0) -> list[Reading]:
        """What is published of it."""
        self.now += after
        self.published.clear()
        self.filter.publish_if_due(key, reading)
        return list(self.published)


@pytest.fixture
def given() -> Filter:
    return Filter()


def test_the_same_again_is_not_published_before_it_is_due(given: Filter) -> None:
    given.offer(racks())
    assert given.offer(racks(), after=14.9) == []
    assert given.offer(racks(), after=0.1) == [racks()]
    assert given.offer(racks(), after=14.9) == []


def test_a_change_is_published_at_once_and_so_is_the_change_back(given: Filter) -> None:
    given.offer(racks())
    assert given.offer(racks(groups=1), after=0.0) == [racks(groups=1)]
    assert given.offer(racks(), after=0.0) == [racks()]


def test_a_forgotten_key_is_published_anew(given: Filter) -> None:
    given.offer(racks(), key="a")
    given.offer(racks(), key="b")
    given.filter.keep_only(["b"])
    assert given.offer(racks(), key="a") == [racks()]
    assert given.offer(racks(), key="b") == []
    given.filter.republish_others("a")
    assert given.offer(racks(), key="a") == []
    assert given.offer(racks(), key="b") == [racks()], "nothing was known of it for a while"


def test_the_log_tells_how_readings_end_also_of_those_that_are_not_published(given: Filter) -> None:
    with capture_logs() as lines:
        for outcome in (Outcome.OK, Outcome.OK, Outcome.TIMEOUT, Outcome.OK):
            given.offer(racks(outcome=outcome))
    assert [(line["what"], line["outcome"]) for line in lines] == [("a", "ok"), ("a", "timeout"), ("a", "ok")]


# What a failed reading says, alike for all connectors.


FAILURES = [outcome for outcome in Outcome if outcome is not Outcome.OK]


def test_a_detail_is_one_line_and_short() -> None:
    assert one_line("  no\n answer\tin   time ") == "no answer in time"
    assert len(one_line("x" * 999)) == DETAIL_LENGTH


def test_a_refused_login_says_more_than_any_silence() -> None:
    assert most_telling(FAILURES) is Outcome.UNAUTHORIZED
    assert most_telling([Outcome.UNREACHABLE, Outcome.TIMEOUT]) is Outcome.TIMEOUT
    assert most_telling([]) is Outcome.UNREACHABLE
