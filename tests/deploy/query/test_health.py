"""When the query counts as healthy, stalled and ready, in virtual time; and what it counts."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.query.supervisor import QueryHealth
from streaming.operator import StepMark
from streaming.query import BatchProgress
from tests.cases import for_each

STALL_SECONDS = 60.0
START_SECONDS = 180.0


class Clock:
    """A monotonic clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Watched:
    """A query's health with its clock and registry."""

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        self.clock = Clock()
        self.registry = CollectorRegistry()
        self.health = QueryHealth(self.registry, stall_seconds, self.clock)

    def wait(self, seconds: float) -> "Watched":
        self.clock.seconds += seconds
        return self

    def start(self) -> "Watched":
        self.health.on_start()
        return self

    def batch(self, **fields: Any) -> "Watched":
        self.health.on_batch(batch(**fields))
        return self

    def fail(self, reason: str = "the JVM is gone") -> "Watched":
        self.health.on_failure(reason)
        return self

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"headgate_query_{name}")


def batch(**fields: Any) -> BatchProgress:
    plain: dict[str, Any] = {
        "batch_id": 1,
        "duration_seconds": 0.18,
        "input_records": 3,
        "input_records_per_second": 27.0,
        "lag_records": 5,
        "lag_seconds": 0.5,
        "state_keys": 4,
        "state_bytes": 51_200,
    }
    return BatchProgress(**plain | fields)


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
    clock, steps = Clock(), StepMark(tmp_path / "steps")
    health = QueryHealth(CollectorRegistry(), STALL_SECONDS, clock, steps)
    health.on_start()
    health.on_batch(batch())
    clock.seconds += STALL_SECONDS + 1
    assert health.stalled_seconds() == STALL_SECONDS + 1
    steps.mark()
    assert health.stalled_seconds() is None


@for_each(("watched", "seconds"), [s[1:] for s in STALLS], ids=[s[0] for s in STALLS])
def test_a_stall_is_silence_for_longer_than_it_may_take(watched: Watched, seconds: float | None) -> None:
    assert watched.health.stalled_seconds() == seconds
    problem = None if seconds is None else f"the query has made no progress for {seconds:.0f} s"
    assert watched.health.problem() == problem


@pytest.mark.parametrize(
    ("watched", "ready"),
    [
        (Watched(), False),
        (Watched().start().wait(9), False),
        (Watched().start().batch(), True),
        (Watched().start().batch().wait(1000), True),
        (Watched().start().batch().start(), False),
    ],
    ids=["made", "starting", "first batch", "stalled", "starting again"],
)
def test_it_is_ready_with_its_first_batch(watched: Watched, ready: bool) -> None:
    assert watched.health.not_ready() == (None if ready else "the query has not finished its first micro-batch")


def test_its_silence_counts_from_the_last_batch_or_from_the_start() -> None:
    watched = Watched().start().wait(3)
    assert watched.health.silent_seconds() == 3
    assert watched.batch().wait(2).health.silent_seconds() == 2
    assert watched.start().wait(1).health.silent_seconds() == 1


def test_a_failure_is_a_problem_until_a_batch_finishes() -> None:
    watched = Watched().start().batch().fail("Kafka is away").start()
    assert watched.health.problem() == "the query failed and is being restarted: Kafka is away"
    assert watched.batch().health.problem() is None


def test_what_a_batch_says_is_shown() -> None:
    watched = Watched().start().batch().batch(input_records=2, lag_records=0, lag_seconds=0.1, duration_seconds=0.4)
    shown = {
        "input_records_total": 5,
        "input_records_per_second": 27,
        "lag_records": 0,
        "lag_seconds": 0.1,
        "state_keys": 4,
        "state_bytes": 51_200,
        "batch_duration_seconds_count": 2,
        "batch_duration_seconds_sum": pytest.approx(0.58),
        "restarts_total": 0,
    }
    assert {name: watched.value(name) for name in shown} == shown
    assert (watched.value("last_progress_timestamp_seconds") or 0) > 0


def test_every_restart_is_counted() -> None:
    assert Watched().fail().fail().value("restarts_total") == 2
