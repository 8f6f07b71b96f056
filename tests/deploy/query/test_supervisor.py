"""The supervisor's care for the query, in virtual time: failures counted, pauses, giving up, draining."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException

from deploy.query import supervisor
from deploy.query.supervisor import QueryHealth, QuerySupervisor, cause_in_one_line, running_in_background
from policies.units import UserError, parse_duration
from streaming.operator import StepMark
from streaming.query import BatchProgress
from streaming.settings import CheckpointPlace, StreamSettings
from tests.cases import for_each

IDLE = BatchProgress(0, 0.1, 0, 0.0, 0, 0.0, 0, 0)

FAILED = StreamingQueryException("[STREAM_FAILED] Query failed\n\n at org.apache.spark")
LOST_JVM = Py4JNetworkError("Answer from Java side is empty")


class Time:
    """The module `time`, as far as it is used, and what happens as it passes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.passed: list[Callable[[float], None]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for told in self.passed:
            told(self.now)


class Stop(threading.Event):
    """An event whose waiting takes virtual time; set at a given moment."""

    def __init__(self, time: Time, at_seconds: float = float("inf")) -> None:
        super().__init__()
        self._time = time
        self._at = time.now + at_seconds
        self.pauses: list[float] = []
        time.passed.append(self._look)

    def _look(self, now: float) -> None:
        if now >= self._at:
            self.set()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self._time.sleep(timeout)
        return self.is_set()


@dataclass
class Course:
    """How one start of the query goes: after so many seconds it raises `end`, or ends by itself.

    It finishes a batch each second unless it is silent. `at_start` is raised instead of starting at all.
    """

    seconds: float = float("inf")
    end: Exception | None = None
    silent: bool = False
    at_start: Exception | None = None
    at_drain: Exception | None = None


class Loop:
    """A supervisor with everything around it, the query among that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *courses: Course, **options: Any) -> None:
        """Options: the seconds until it is stopped, the limit of restarts, and the checkpoint."""
        self.time = Time()
        self.courses = list(courses)
        self.said: list[str] = []
        self.sessions: list[MagicMock] = []
        self.may_drain, self.is_ours = threading.Event(), True
        self.may_drain.set()
        self.registry = CollectorRegistry()
        self.health = QueryHealth(self.registry, 60.0, self.time.monotonic)
        self.stopping = Stop(self.time, options.get("stop_after", float("inf")))
        limit = options.get("restart_limit", 3)
        self.settings = StreamSettings(restart_limit=limit, stall_timeout=parse_duration("60s"))
        self.checkpoint = CheckpointPlace.parse(options.get("checkpoint", "/nowhere"))
        query: Any = self
        tick, is_ours = lambda: self.said.append("ticked"), lambda: self.is_ours
        self.supervisor = QuerySupervisor(self._open_session, query, self.health, tick, is_ours)
        monkeypatch.setattr(supervisor, "time", self.time)
        monkeypatch.setattr(supervisor, "is_alive", lambda session: session.alive)
        monkeypatch.setattr(supervisor, "stop_session", lambda session: self.said.append("session stopped"))

    def run(self) -> "Loop":
        self.supervisor.run(self.stopping)
        return self

    def _open_session(self) -> Any:
        self.said.append("session opened")
        self.sessions.append(MagicMock(alive=True))
        return self.sessions[-1]

    def start(self, session: Any) -> "Loop":
        assert session is self.sessions[-1]
        self.course, self.began = self.courses.pop(0) if self.courses else Course(), self.time.now
        if self.course.at_start is not None:
            raise self.course.at_start
        self.said.append("query started")
        if isinstance(self.course.end, Py4JNetworkError):
            session.alive = False  # found out at the next start
        return self

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        self.time.sleep(timeout)
        if self.time.now - self.began < self.course.seconds:
            if not self.course.silent:
                self.health.on_batch(IDLE)
            return False
        if self.course.end is not None:
            raise self.course.end
        return True

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        self.said.append("drained")
        if self.course.at_drain is not None:
            raise self.course.at_drain
        assert self.may_drain.wait(30)

    def stop(self) -> None:
        self.may_drain.set()
        self.said.append("query stopped")

    @property
    def restarts(self) -> float | None:
        return self.registry.get_sample_value("headgate_query_restarts_total")


def test_it_runs_until_it_is_stopped_and_closes_what_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, stop_after=100).run()
    expected = ["session opened", "ticked", "query started", "drained", "query stopped", "session stopped"]
    assert loop.said == expected, "the tick is there when the query first looks"
    assert (loop.restarts, loop.stopping.pauses, loop.health.problem()) == (0, [], None)
    stopped_before = Loop(monkeypatch, stop_after=0)
    stopped_before.stopping.set()
    assert stopped_before.run().said == []


@for_each(
    ("course", "is_ours", "said"),
    [
        (Course(silent=True), True, "query started"),
        (Course(5, FAILED), True, "query started"),
        (Course(), False, "query started"),
        (Course(), True, "drained"),
        (Course(at_drain=LOST_JVM), True, "drained"),
    ],
    ids=["waits for no first batch", "it ends then: no failure", "another has its share", "a batch", "the JVM is lost"],
)
def test_a_stop_ends_the_query(monkeypatch: pytest.MonkeyPatch, course: Course, is_ours: bool, said: str) -> None:
    loop = Loop(monkeypatch, course, stop_after=5)
    loop.is_ours = is_ours
    assert loop.run().said[-3:] == [said, "query stopped", "session stopped"]
    assert (loop.restarts, loop.health.problem()) == (0, None)


def test_a_drain_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_DRAIN_SECONDS", 0.05)
    loop = Loop(monkeypatch, stop_after=10)
    loop.may_drain.clear()
    loop.run()
    assert loop.said[-3:] == ["drained", "query stopped", "session stopped"]


@for_each(
    ("course", "reason"),
    [
        (Course(5, FAILED), "[STREAM_FAILED] Query failed"),
        (Course(5), "the query ended by itself"),
        (Course(silent=True), "no progress for 181 s"),
        (Course(at_start=OSError("no space left")), "no space left"),
        (Course(at_start=ConnectionRefusedError()), "ConnectionRefusedError"),
    ],
)
def test_a_failure_restarts_it_and_says_why(monkeypatch: pytest.MonkeyPatch, course: Course, reason: str) -> None:
    said: list[str | None] = []
    loop = Loop(monkeypatch, course, stop_after=400)
    loop.time.passed.append(lambda now: said.append(loop.health.problem()))
    loop.run()
    assert f"the query failed and is being restarted: {reason}" in said
    assert loop.restarts == 1
    assert loop.health.problem() is None
    assert loop.said[-4:] == ["query started", "drained", "query stopped", "session stopped"]
    assert loop.said.count("session opened") == 1, "the session is kept"


def test_a_lost_jvm_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, Course(5, LOST_JVM), stop_after=60).run()
    assert loop.said.count("session opened") == loop.said.count("session stopped") == 2
    assert [session.streams.addListener.call_count for session in loop.sessions] == [1, 1]


@for_each(
    ("course", "restart_limit", "pauses"),
    [(Course(1, FAILED), 9, [1, 2, 4, 8, 16, 30, 30, 30, 30]), (Course(61, FAILED), 1, [1] * 9)],
    ids=["in a row", "long apart: not in a row"],
)
def test_pauses_double_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, course: Course, restart_limit: int, pauses: list[float]
) -> None:
    loop = Loop(monkeypatch, *[course] * 9, restart_limit=restart_limit, stop_after=1000).run()
    assert (loop.stopping.pauses, loop.restarts) == (pauses, 9)


@for_each(
    ("course", "restart_limit", "says"),
    [
        (Course(1, FAILED), 3, r"^The query failed 4 times in a row; the last time: \[STREAM_FAILED\]"),
        (Course(1, FAILED), 0, "^The query failed 1 times"),
        (Course(silent=True), 2, "failed 3 times in a row; the last time: no progress for 181 s"),
    ],
)
def test_it_gives_up(monkeypatch: pytest.MonkeyPatch, course: Course, restart_limit: int, says: str) -> None:
    loop = Loop(monkeypatch, *[course] * 9, restart_limit=restart_limit)
    with pytest.raises(UserError, match=says):
        loop.run()
    assert loop.restarts == restart_limit
    assert loop.said[-1] == "session stopped", "it leaves no JVM behind"


def test_a_state_that_another_build_wrote_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = StreamingQueryException(
        "[STREAM_FAILED]\nstreaming.key_state.UnreadableStateError: format 9: do this\n\tat"
    )
    loop = Loop(monkeypatch, Course(1, failed))
    with pytest.raises(UserError, match=r"^The query cannot go on\. UnreadableStateError: format 9: do this$"):
        loop.run()
    assert (loop.restarts, loop.said[-1]) == (0, "session stopped")


SLOW_WORKER = (
    "[STREAM_FAILED] Query failed\nCaused by: java.net.SocketTimeoutException: "
    "Timed out while waiting for the Python worker to connect back\n\tat org.apache.spark.api.python"
)
SLOW_DRIVER_WORKER = "[STREAM_FAILED] Query failed: Python worker failed to connect back."


@for_each("said", [SLOW_WORKER, SLOW_DRIVER_WORKER])
def test_a_worker_that_starts_too_late_is_retried_and_no_failure(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """A busy machine starts it too late."""
    slow = StreamingQueryException(said)
    loop = Loop(monkeypatch, *[Course(12, slow, silent=True)] * 6, restart_limit=0, stop_after=400).run()
    assert (loop.restarts, loop.stopping.pauses) == (6, [1, 2, 4, 8, 16, 30])
    courses = [Course(12, slow, silent=True), Course(1, FAILED)] * 2
    with pytest.raises(UserError, match=r"^The query failed 2 times in a row; the last time: \[STREAM_FAILED\]"):
        Loop(monkeypatch, *courses, restart_limit=1).run()


def test_the_second_failure_with_a_damaged_checkpoint_is_the_last_and_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It does not mend by itself."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").touch()
    remedy = "start again with `headgate checkpoint reset`, which lists the losses$"
    for restart_limit, failures in ((0, 1), (9, 2)):
        loop = Loop(monkeypatch, *[Course(1, FAILED)] * 9, restart_limit=restart_limit, checkpoint=tmp_path)
        with pytest.raises(UserError, match=rf"failed {failures} times.*\n.*metadata: .*: {remedy}"):
            loop.run()
    remote = "s3a://loop/checkpoint"
    with pytest.raises(UserError, match=rf"checkpoint {remote}, .*`hadoop fs -mv {remote}"):
        Loop(monkeypatch, *[Course(1, FAILED, silent=True)] * 2, restart_limit=0, checkpoint=remote).run()


def test_a_stop_during_a_pause_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, *[Course(1, FAILED)] * 9, restart_limit=9, stop_after=20).run()
    assert loop.said[-1] == "session stopped"
    assert loop.time.now < 1000 + 40


def test_what_nobody_foresaw_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, Course(1, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert loop.said[-2:] == ["query stopped", "session stopped"]


# --- When the query counts as healthy, stalled and ready, in virtual time; and what it counts.


STALL_SECONDS, START_SECONDS = 60.0, 180.0


class Watched:
    """A query's health with its clock and registry."""

    def __init__(self, stall_seconds: float = STALL_SECONDS, steps: StepMark | None = None) -> None:
        self.time, self.registry = Time(), CollectorRegistry()
        self.health = QueryHealth(self.registry, stall_seconds, self.time.monotonic, steps)

    def wait(self, seconds: float) -> "Watched":
        self.time.sleep(seconds)
        return self

    def start(self) -> "Watched":
        self.health.on_start()
        return self

    def batch(self, **fields: Any) -> "Watched":
        self.health.on_batch(replace(IDLE, **fields))
        return self

    def fail(self, reason: str = "the JVM is gone") -> "Watched":
        self.health.on_failure(reason)
        return self

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"headgate_query_{name}")


STALLS = [
    ("just started", Watched().start().wait(START_SECONDS), None),
    ("slow to start", Watched().start().wait(START_SECONDS + 1), 181.0),
    ("slow to start, with more patience", Watched(stall_seconds=300).start().wait(299), None),
    ("beyond that patience", Watched(stall_seconds=300).start().wait(301), 301.0),
    ("working", Watched().start().wait(9).batch().wait(STALL_SECONDS), None),
    ("stalled", Watched().start().wait(9).batch().wait(STALL_SECONDS + 1), 61.0),
    ("working again", Watched().start().batch().wait(100).batch().wait(1), None),
    ("started again", Watched().start().batch().wait(100).start().wait(100), None),
    ("started again and slow", Watched().start().batch().wait(100).start().wait(200), 200.0),
]


def test_a_long_batch_whose_steps_go_on_is_no_stall(tmp_path: Path) -> None:
    """A restart would lose the steps that were done, and the same batch would be as long again."""
    steps = StepMark(tmp_path / "steps")
    watched = Watched(steps=steps).start().batch().wait(STALL_SECONDS + 1)
    assert watched.health.stalled_seconds() == STALL_SECONDS + 1
    steps.mark()
    assert watched.health.stalled_seconds() is None


@for_each(("watched", "seconds"), [s[1:] for s in STALLS], ids=[s[0] for s in STALLS])
def test_a_stall_is_silence_for_longer_than_it_may_take(watched: Watched, seconds: float | None) -> None:
    problem = None if seconds is None else f"the query has made no progress for {seconds:.0f} s"
    assert (watched.health.stalled_seconds(), watched.health.problem()) == (seconds, problem)


def test_it_is_ready_with_the_first_batch_of_each_start_and_stays_so_when_it_stalls() -> None:
    watched, starting = Watched(), "the query has not finished its first micro-batch"
    assert [watched.health.not_ready(), watched.start().wait(9).health.not_ready()] == [starting] * 2
    assert [watched.batch().health.not_ready(), watched.wait(1000).health.not_ready()] == [None] * 2
    assert watched.start().health.not_ready() == starting


def test_its_silence_counts_from_the_last_batch_or_from_the_start() -> None:
    watched = Watched().start()
    assert watched.wait(3).health.silent_seconds() == 3
    assert watched.batch().wait(2).health.silent_seconds() == 2
    assert watched.start().wait(1).health.silent_seconds() == 1


def test_a_failure_is_a_problem_until_a_batch_finishes() -> None:
    watched = Watched().start().batch().fail("Kafka is away").start()
    assert watched.health.problem() == "the query failed and is being restarted: Kafka is away"
    assert watched.batch().health.problem() is None


def test_what_a_batch_says_is_shown() -> None:
    first = {"duration_seconds": 0.18, "input_records": 3, "input_records_per_second": 9.0, "lag_records": 5}
    last = {"input_records": 2, "lag_seconds": 0.1, "duration_seconds": 0.4, "state_keys": 4, "state_bytes": 51_200}
    watched = Watched().fail().fail().start().batch(**first).batch(**last)
    shown = {
        "input_records_total": 5, "input_records_per_second": 0, "lag_records": 0, "lag_seconds": 0.1,
        "state_keys": 4, "state_bytes": 51_200, "restarts_total": 2,
        "batch_duration_seconds_count": 2, "batch_duration_seconds_sum": pytest.approx(0.58),
    }  # fmt: skip
    assert {name: watched.value(name) for name in shown} == shown
    assert (watched.value("last_progress_timestamp_seconds") or 0) > 0


# --- Work running_in_background a block: it runs while the block does, and has ended when that ends, however it ends.


@for_each("error", [None, LookupError()])
def test_it_works_while_the_block_runs_and_has_ended_with_it(error: Exception | None) -> None:
    began, ended = threading.Event(), threading.Event()

    def work(over: threading.Event) -> None:
        began.set()
        over.wait(60)
        ended.set()

    with suppress(LookupError), running_in_background("test-work", work):
        assert began.wait(60)
        assert not ended.is_set()
        if error is not None:
            raise error
    assert ended.is_set()


# --- The last line of a process that gives up names the cause, whatever it was wrapped in.


_STAGE = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in "
    "stage 7.0 failed 1 times, most recent failure: Lost task 0.0 in stage 7.0 (TID 9) (127.0.0.1 executor driver): "
)
_TRACE = "\n\tat org.apache.kafka.clients.producer.KafkaProducer.doSend(KafkaProducer.java:1)\n\nDriver stacktrace:"


@for_each(
    ("said", "cause"),
    [
        (
            f"{_STAGE}org.apache.kafka.common.errors.RecordTooLargeException: The message is 26733012 bytes.{_TRACE}",
            "RecordTooLargeException: The message is 26733012 bytes.",
        ),
        (
            "An error\nCaused by: org.apache.spark.SparkException: Task failed\n\tat x\n"
            "Caused by: java.io.FileNotFoundException: /c/offsets/0 (gone)\n\tat y(Z.java:1)",
            "FileNotFoundException: /c/offsets/0 (gone)",
        ),
        (
            f"{_STAGE}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "host.py", line 1, in recall\n'
            "streaming.host.UnreadableStateError: state format 9 is newer than 1\n",
            "UnreadableStateError: state format 9 is newer than 1",
        ),
        ("[STREAM_FAILED] it ended SQLSTATE: XXKST", "[STREAM_FAILED] it ended"),
        ("the query ended by itself", "the query ended by itself"),
        ("", "RuntimeError"),
        ("x" * 1000, "x" * 300 + " …"),
    ],
)
def test_the_root_is_told_in_one_line(said: str, cause: str) -> None:
    assert cause_in_one_line(RuntimeError(said)) == cause


def test_an_error_whose_jvm_has_died_is_told_by_its_type() -> None:
    class JvmAskingError(Py4JError):  # type: ignore[misc]
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert cause_in_one_line(JvmAskingError()) == "JvmAskingError"
