"""Supervises the query: restarts it with back-off when it fails or stalls, and ends the process rather than hang."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deploy.query.checkpoint import Checkpoint, begin_anew
from policies.units import UserError
from streaming.operator import StepMark
from streaming.query import BatchProgress, Query, listen
from streaming.session import is_alive, kill_jvm, stop_session

# The query's health and metrics, from the progress it reports after each micro-batch.

_START_SECONDS = 180.0
"""Time for the JVM's start and the first micro-batch before the query counts as stalled."""

_DURATION_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
_GAUGES = {
    "input_records_per_second": "Input rate of the last micro-batch.",
    "lag_records": "Records in the observed topics after the last batch.",
    "lag_seconds": "Age of the last batch's oldest record when it began.",
    "state_keys": "Keys (policy, cluster) with state.",
    "state_bytes": "Memory of its state store.",
}
"""The values of `BatchProgress` that are metrics as they are."""


class QueryHealth:
    """Measures whether the query makes progress. Without a batch or step for `stall_seconds`, it counts as stalled."""

    def __init__(
        self,
        registry: CollectorRegistry,
        stall_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        steps: StepMark | None = None,
    ) -> None:
        self._steps = steps
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
        self._gauges = {
            name: Gauge(f"headgate_query_{name}", help_text, registry=registry) for name, help_text in _GAUGES.items()
        }
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
        self._last_batch, self._failure = self._clock(), None
        self._duration.observe(batch.duration_seconds)
        self._records.inc(batch.input_records)
        for name, gauge in self._gauges.items():
            gauge.set(getattr(batch, name))
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
        line = f"{roots[-1][1]}: {roots[-1][2] or ''}".rstrip(": ")
    else:
        line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    line = _ENDS.sub("", line).strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 1
_DRAIN_SECONDS = 10.0
_HANG_SECONDS = 10.0
"""If a stalled query does not stop within this time, its JVM hangs and is killed."""
_LONGEST_PAUSE_SECONDS = 30.0
_BUSY_MACHINE = "connect back"
"""Spark's cause contains it when a new Python worker takes longer than the 10 s that Spark allows. Until the worker
connects it has imported nothing of the query, so the failure is no sign that the query is at fault."""
_HOPELESS = "UnreadableStateError"
"""Another version or build wrote the state: each restart would fail in the same way. The error has the remedy."""


class QueryFailedError(Exception):
    """The query ended or stalled; the message says why, in one line."""


_FAILURES = (QueryFailedError, Py4JError, PySparkException, OSError)
"""A lost JVM appears as an error of Py4J or of its socket."""


@dataclass
class QuerySupervisor:
    """Runs the query until `stop` is set, and opens another session when its JVM was lost.

    `tick` triggers a first batch, in which timers fire that were due while no query ran.
    """

    open_session: Callable[[], SparkSession]
    query: Query
    health: QueryHealth
    tick: Callable[[], None]
    may_drain: Callable[[], bool]
    _session: SparkSession | None = field(default=None, init=False)

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set.

        Raises UserError after too many failures in a row, for a damaged checkpoint, and for an unreadable state.
        """
        restarts = failures = 0
        try:
            while not stop.is_set():
                started = time.monotonic()
                try:
                    self._run_query(stop)
                except _FAILURES as error:
                    reason = cause_in_one_line(error)
                    if stop.is_set():
                        _log.info("the query ended before it was drained", reason=reason)
                        return
                    has_run = time.monotonic() - started > self.query.settings.stall_timeout.total_seconds()
                    if has_run and self.health.not_ready() is None:
                        restarts = failures = 0
                    restarts, failures = restarts + 1, failures + (_BUSY_MACHINE not in reason)
                    self._on_failure(error, reason, failures)
                    stop.wait(min(0.5 * 2**restarts, _LONGEST_PAUSE_SECONDS))
        finally:
            self._close_session()

    def _on_failure(self, error: Exception, reason: str, failures: int) -> None:
        if reason.startswith(_HOPELESS):
            raise UserError(f"The query cannot go on. {reason}") from error
        is_given_up = failures > self.query.settings.restart_limit
        # Damage does not disappear by itself. Try once more, because the disk may only have been full at that moment.
        remedy = self._remedy(is_given_up=is_given_up) if is_given_up or failures > 1 else None
        if is_given_up or remedy:
            said = f"The query failed {failures} times in a row; the last time: {reason}"
            raise UserError(f"{said}\n{remedy}" if remedy else said) from error
        self.health.on_failure(reason)
        _log.warning("query failed, restarting it", reason=reason, failures=failures)

    def _remedy(self, *, is_given_up: bool) -> str | None:
        place = self.query.checkpoint
        checkpoint = Checkpoint(place)
        if place.folder is not None and (not checkpoint.exists or checkpoint.damage is not None):
            return checkpoint.damage
        if not is_given_up or self.health.not_ready() is None:
            return None
        named = f"If the reason names a file of the checkpoint {checkpoint}, that file is damaged"
        return f"{named}: {begin_anew(place)}"

    def _run_query(self, stop: threading.Event) -> None:
        self.health.on_start()
        session = self._open()
        with _stopping_hung_query(session, self.health):
            self.tick()
            query = self.query.start(session)
            try:
                self._watch(query, stop)
                # The first batch takes seconds, and a signal during the start should not wait for it.
                if self.health.not_ready() is None and self.may_drain():
                    self._drain(query)
            finally:
                with suppress(*_FAILURES):
                    query.stop()

    def _watch(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Return when the query is to be stopped."""
        while not stop.is_set():
            if query.awaitTermination(_CHECK_SECONDS):
                raise QueryFailedError("the query ended by itself")
            if (stalled := self.health.stalled_seconds()) is not None:
                raise QueryFailedError(f"no progress for {stalled:.0f} s")

    def _drain(self, query: StreamingQuery) -> None:
        """Let the query decide on the readings from before the stop, within a limit; without it, nothing is lost."""
        drained = threading.Event()

        def drain() -> None:
            with suppress(*_FAILURES):
                query.processAllAvailable()
            drained.set()

        # On a separate thread, because the call waits as long as records keep coming, or forever if the JVM hangs.
        threading.Thread(target=drain, name="drain", daemon=True).start()
        drained.wait(_DRAIN_SECONDS)

    def _open(self) -> SparkSession:
        if self._session is not None and not is_alive(self._session):
            self._close_session()
        if self._session is None:
            self._session = self.open_session()
            listen(self._session, self.health.on_batch, self.query.settings.spark_internals)
        return self._session

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            stop_session(session)


def _stopping_hung_query(session: SparkSession, health: QueryHealth) -> AbstractContextManager[None]:
    """Kill a hanging JVM: every call to it would wait forever, so only its death lets this process continue."""

    def watch(over: threading.Event) -> None:
        while not over.wait(_CHECK_SECONDS):
            if health.stalled_seconds() is not None and not over.wait(_HANG_SECONDS):
                _log.warning("the JVM hangs, killing it")
                kill_jvm(session)
                return

    return running_in_background("jvm-watch", watch)


@contextmanager
def running_in_background(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` until the block ends, which sets its event (then it must return soon), or until it returns itself."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
