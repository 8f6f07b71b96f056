"""Common code of all collectors: schedule, change filter, errors, metrics, and checks for the doctor."""

import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Any, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import TypeAdapter, ValidationError

from connectors.redaction import without_secrets
from policies.observations import Outcome, Reading
from policies.units import printable_line

# Logs the outcome of readings when it changes, not at each poll.

_log = structlog.get_logger(__name__)


class OutcomeLog:
    """The outcome of the last reading of each key. Several threads may share it if each has its own keys."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[Outcome, str | None]] = {}

    def note(self, key: Hashable, reading: Reading, /, **what: object) -> None:
        """Log a reading whose outcome differs from the one before.

        `what` has further fields of the log line.
        """
        is_ok = reading.outcome is Outcome.OK
        # The detail of a failed reading may vary each time, so it does not count; the detail of a good reading does.
        now = (reading.outcome, reading.detail if is_ok else None)
        before, self._last[key] = self._last.get(key), now
        if before == now:
            return
        good = _log.debug if before is None else _log.info
        log = good if is_ok and reading.detail is None else _log.warning
        ended = {"outcome": reading.outcome.value, "before": before and before[0].value, "detail": reading.detail}
        log("reading changed", cluster=reading.cluster, **what, **ended)

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """Drop all other keys."""
        wanted = set(keys)
        self._last = {key: value for key, value in self._last.items() if key in wanted}


# The schedule of polls: a fixed rate with jitter, until a stop.

_random = random.SystemRandom()

JITTER = 0.1
"""Maximum shift of a tick as a fraction of the interval, so that many collectors do not poll at the same time."""


def ticks(
    interval_seconds: float,
    stopped_within: Callable[[float], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    draw: Callable[[float, float], float] = _random.uniform,
) -> Iterator[int]:
    """Yield the number of each tick, the first at once, until stopped.

    The rate is fixed: neither jitter nor the duration of a poll moves later ticks. A tick that is due during a long
    poll is skipped. `stopped_within` waits at most the given seconds, and returns whether to stop.
    """
    start = clock()
    number, jitter = 0, 0.0
    while True:
        due = start + (number + jitter) * interval_seconds
        if stopped_within(max(0.0, due - clock())):
            return
        yield number
        number = max(number + 1, math.floor((clock() - start) / interval_seconds) + 1)
        jitter = draw(-JITTER, JITTER)


# Common metrics of all collectors, and a guard that no error in a poll ends a collector.

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class PollMetrics:
    """The metrics of all collectors of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.polls = Counter(
            "headgate_polls", "Attempts to read, by outcome.", ("cluster", "outcome"), registry=registry
        )
        self.failures = Counter(
            "headgate_poll_failures", "Polls that ended in an unexpected error.", ("cluster",), registry=registry
        )
        self.seconds = Histogram(
            "headgate_poll_seconds",
            "Duration of a poll of a whole cluster.",
            ("cluster",),
            buckets=_SECONDS,
            registry=registry,
        )

        self.shortest = Gauge(
            "headgate_poll_interval_seconds",
            "The shortest present interval between readings of a broker of a Kafka cluster: less than `poll_interval` "
            "while one of its volumes comes near a limit.",
            ("cluster",),
            registry=registry,
        )

    def forget(self, cluster: str) -> None:
        """Remove the series of a cluster that this process does not read any more, because they would look current."""
        for metric in (self.polls, self.failures, self.seconds, self.shortest):
            metric.remove_by_labels({"cluster": cluster})

    def run_polls(self, cluster: str, interval_seconds: float, stop: Event, poll: Callable[[], None]) -> None:
        """Poll at a fixed rate until `stop` is set, whatever goes wrong in a poll."""
        for _ in ticks(interval_seconds, stop.wait):
            self.run_poll(cluster, poll)

    def run_poll(self, cluster: str, poll: Callable[[], None]) -> bool:
        """Poll, and return whether there was no unexpected error; an error is counted and logged."""
        try:
            poll()
        except Exception:
            self.failures.labels(cluster).inc()
            _log.exception("poll failed", cluster=cluster)
            return False
        return True


# The base of all collectors: polls one cluster periodically, and publishes its readings, failures included.


class Collector(ABC):
    """Reads one cluster periodically. `publish` is called with each reading, from any thread; it must not block."""

    def __init__(
        self, cluster: str, poll_interval: timedelta, publish: Callable[[Reading], None], metrics: PollMetrics
    ) -> None:
        self._cluster = cluster
        self._poll_seconds = poll_interval.total_seconds()
        self._publish = publish
        self._metrics = metrics
        self._outcome_log = OutcomeLog()
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set, whatever goes wrong in a poll."""
        self._stop = stop
        try:
            self._metrics.run_polls(self._cluster, self._poll_seconds, stop, self.poll_once)
        finally:
            self.close()

    def poll_once(self) -> None:
        """Poll, and measure how long it takes."""
        self._measure(self._poll)

    @abstractmethod
    def _poll(self) -> None:
        """Read the cluster, and publish the readings."""

    def close(self) -> None:  # noqa: B027 - some use shared connections only
        """Close the connections that the collector has opened; the next poll opens new ones."""

    def _measure(self, poll: Callable[[], None]) -> None:
        started = time.monotonic()
        poll()
        self._metrics.seconds.labels(self._cluster).observe(time.monotonic() - started)

    def _publish_reading(self, reading: Reading, /, **subject: Hashable) -> None:
        """Publish a reading, count it, and log a change of the outcome for its subject."""
        if self._stop.is_set():
            return  # the reading was interrupted
        self._publish(reading)
        self._metrics.polls.labels(self._cluster, reading.outcome.value).inc()
        self._outcome_log.note(tuple(subject.values()), reading, **subject)


# The readings from before a collector's start, as far as the collector needs them.

Kind = TypeVar("Kind", bound=Reading)


ReadingHistory = Callable[[timedelta, Event], Iterable[Kind]]
"""Returns the last reading of each subject, read back as far as the duration; returns early when the event is set."""


def no_history(history: timedelta, stop: Event, /) -> tuple[()]:  # noqa: ARG001 - as at the very first start
    """Return no reading."""
    return ()


# Publishes changed readings, and repeats unchanged ones before they look stale.

ReadingT = TypeVar("ReadingT", bound=Reading)


class ChangeFilter(Generic[ReadingT]):
    """The last published reading of each subject. Use it from one thread; `publish` must not block."""

    def __init__(
        self, publish: Callable[[ReadingT], None], republish_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._publish = publish
        self._republish_seconds = republish_seconds
        self._clock = clock
        self._published: dict[str, tuple[ReadingT, float]] = {}
        self._outcome_log = OutcomeLog()

    def publish_if_due(
        self, key: str, reading: ReadingT, *, at_least_every: float = math.inf, fetched_at: float | None = None
    ) -> None:
        """Publish a reading if it is due, and log it if its outcome changed.

        `at_least_every` is a shorter interval of repetition in seconds. `fetched_at` is the time of the fetch, for a
        reading with an age.
        """
        now = self._clock()
        before = self._published.get(key)
        due_seconds = min(self._republish_seconds, at_least_every)
        if before is None or before[0] != reading or now - before[1] >= due_seconds:
            age_ms = None if fetched_at is None else max(0, round((now - fetched_at) * 1000))
            self._publish(reading if age_ms is None else reading.model_copy(update={"age_ms": age_ms}))
            self._published[key] = reading, now
        self._outcome_log.note(key, reading, what=key)

    def republish_others(self, key: str) -> None:
        """Publish the next reading of each other key in any case, because their state is unknown for the moment."""
        self._published = {each: value for each, value in self._published.items() if each == key}

    def keep_only(self, keys: Iterable[str]) -> None:
        """Drop all other keys."""
        wanted = set(keys)
        self._published = {key: value for key, value in self._published.items() if key in wanted}
        self._outcome_log.keep_only(wanted)


# The outcome and short reason of a failed reading, with the same words for all connectors.

Document = TypeVar("Document")

DETAIL_LENGTH = 200
"""Longer details are cut."""

_MOST_TELLING_FIRST = (
    Outcome.UNAUTHORIZED,
    Outcome.UNSUPPORTED,
    Outcome.ERROR,
    Outcome.TIMEOUT,
    Outcome.UNREACHABLE,
    Outcome.ABSENT,
)


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """The exceptions that reading one kind of system may raise; any other is a fault of ours."""

    expected: tuple[type[Exception], ...]
    outcome_of: Callable[[BaseException], Outcome]
    detail_of: Callable[[BaseException], str]

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Return the fields `outcome` and `detail` of the reading for an error."""
        return {"outcome": self.outcome_of(error), "detail": self.detail_of(error)}


def whole_line(text: str) -> str:
    """Return a text as one line, without secrets that a server has quoted."""
    return printable_line(" ".join(without_secrets(text).split()))


def one_line(text: str) -> str:
    """Make a reading's detail: `whole_line`, of at most `DETAIL_LENGTH`."""
    line = whole_line(text)
    return line if len(line) <= DETAIL_LENGTH else f"{line[: DETAIL_LENGTH - 1]}…"


def rank(outcome: Outcome) -> int:
    """Return a sort key for failures: the lower, the more it helps to find the fault."""
    return _MOST_TELLING_FIRST.index(outcome)


def most_telling(outcomes: Collection[Outcome]) -> Outcome:
    """Return the failure that helps most to find the fault; unreachable if there is none."""
    return min(outcomes, key=rank, default=Outcome.UNREACHABLE)


def parse_document(kind: TypeAdapter[Document], data: bytes) -> Document:
    """Parse JSON; raises ValueError with the first problem, and without the content."""
    try:
        return kind.validate_json(data)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def first_problem(error: ValidationError) -> str:
    """Return the place and the reason of the first problem in a document, without its content."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]


# One check of a connected system: whether Headgate has the rights there that the settings need.
#
# A check changes nothing. Policies yield checks for their actuators (`PolicyConnectors.probes`). Collectors need
# none, because their readings show missing rights.


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a check."""

    outcome: Outcome
    detail: str
    """A few words, without a secret."""
    remedies: tuple[str, ...] = ()
    """Remedies: sentences, or command lines of other tools."""
    seconds: float | None = None
    """The duration, if it is less than that of the whole check."""
    is_open: bool = False
    """Whether it works, and others may do more there than they should."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A check. It may block; an exception that it raises is reported as a fault of ours."""

    system: str
    """The system: ``loop Kafka``, ``payments: ZooKeeper``."""
    asks: str
    """The subject: ``quotas``."""
    ask: Callable[[], ProbeResult]
