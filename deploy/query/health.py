"""The query's health and metrics, from the progress it reports after each micro-batch."""

import re
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from py4j.protocol import Py4JError

from deploy.query.clock import ClockWatch
from streaming.operator import StepMark
from streaming.progress import BatchProgress

_START_SECONDS = 180.0
"""Time for the JVM's start and the first micro-batch before the query counts as stalled."""

_DURATION_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)


class QueryHealth:
    """Measures whether the query makes progress.

    Args:
        stall_seconds: without a finished batch or a step for this time, the query counts as stalled.
        steps: marks each step; None: the executors are on other machines, so only batches count.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        stall_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        steps: StepMark | None = None,
    ) -> None:
        self._steps = steps
        self.clock_watch = ClockWatch(registry, clock)
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._started = clock()
        self._last_batch: float | None = None
        self._failure: str | None = None
        self._duration = Histogram(
            "headgate_query_batch_duration_seconds",
            "Time a micro-batch took.",
            registry=registry,
            buckets=_DURATION_BUCKETS,
        )
        self._records = Counter("headgate_query_input_records", "Observed records read.", registry=registry)
        self._rate = Gauge(
            "headgate_query_input_records_per_second", "Input rate of the last micro-batch.", registry=registry
        )
        self._lag_records = Gauge(
            "headgate_query_lag_records", "Records in the observed topics after the last batch.", registry=registry
        )
        self._lag_seconds = Gauge(
            "headgate_query_lag_seconds", "Age of the last batch's oldest record when it began.", registry=registry
        )
        self._state_keys = Gauge("headgate_query_state_keys", "Keys (policy, cluster) with state.", registry=registry)
        self._state_bytes = Gauge("headgate_query_state_bytes", "Memory of its state store.", registry=registry)
        self._last = Gauge(
            "headgate_query_last_progress_timestamp_seconds", "When a micro-batch last finished.", registry=registry
        )
        self._restarts = Counter(
            "headgate_query_restarts", "Number of times the query was restarted.", registry=registry
        )

    def on_start(self) -> None:
        """Note that the query is starting, so its first batch may take longer."""
        self._started, self._last_batch = self._clock(), None

    def on_batch(self, batch: BatchProgress) -> None:
        """Note that a micro-batch has finished."""
        self.clock_watch.on_batch(batch)
        self._last_batch, self._failure = self._clock(), None
        self._duration.observe(batch.duration_seconds)
        self._records.inc(batch.input_records)
        self._rate.set(batch.input_records_per_second)
        self._lag_records.set(batch.lag_records)
        self._lag_seconds.set(batch.lag_seconds)
        self._state_keys.set(batch.state_keys)
        self._state_bytes.set(batch.state_bytes)
        self._last.set_to_current_time()

    def on_failure(self, reason: str) -> None:
        """Note that the query has failed and will be restarted."""
        self._failure = reason
        self._restarts.inc()

    def silent_seconds(self) -> float:
        """Seconds since the last finished batch."""
        return self._clock() - (self._started if self._last_batch is None else self._last_batch)

    def stalled_seconds(self) -> float | None:
        """Seconds without progress, if they exceed the limit."""
        silent = self.silent_seconds()
        if self._steps is not None:
            silent = min(silent, self._steps.seconds_ago())
        most = self._stall_seconds if self._last_batch is not None else max(_START_SECONDS, self._stall_seconds)
        return silent if silent > most else None

    def problem(self) -> str | None:
        """The problem as a sentence for /-/healthy; None without one."""
        if self._failure is not None:
            return f"the query failed and is being restarted: {self._failure}"
        stalled = self.stalled_seconds()
        return None if stalled is None else f"the query has made no progress for {stalled:.0f} s"

    def not_ready(self) -> str | None:
        """The reason for /-/ready to fail: no micro-batch has finished since the query started."""
        return None if self._last_batch is not None else "the query has not finished its first micro-batch"


_LONGEST = 300
_NAMED = re.compile(r"(?:[a-z]\w*\.)*([A-Z]\w*(?:Error|Exception))\b(?:: ?([^\n]*))?")
"""An exception's name, with or without its package, and its message on the same line."""
_WRAPPERS = frozenset(
    {"SparkException", "StreamingQueryException", "PythonException", "ExecutionException", "Py4JJavaError", "Exception"}
)
_ENDS = re.compile(r"\s*(?:SQLSTATE: \w+|Driver stacktrace:).*")


def cause_in_one_line(error: BaseException) -> str:
    """Return the root cause, such as ``RecordTooLargeException: The message is 26733012 bytes …``."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # Py4J asks the JVM, which may have died
        text = ""
    named = [found for found in _NAMED.finditer(text) if found[1] not in _WRAPPERS]
    # A stack trace ends with its root cause; without one, the root cause is at the end of the line.
    roots = [found for found in named if text[: found.start()].endswith("Caused by: ")] or named
    if roots:
        return _short(f"{roots[-1][1]}: {roots[-1][2] or ''}".rstrip(": "))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return _short(first)


def _short(line: str) -> str:
    told = _ENDS.sub("", line).strip()
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]} …"
