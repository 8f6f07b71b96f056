"""The mark of the last step: a batch may last long as long as its steps go on."""

import time
from pathlib import Path

import pytest

from streaming import operator
from streaming.operator import StepMark


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(operator, "_marked_at", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_step_is_marked_once_a_second(tmp_path: Path, clock: list[float]) -> None:
    mark = StepMark(tmp_path / "steps")
    assert mark.seconds_ago() == float("inf")
    for now, expected in [(1000.0, 0.0), (1000.5, 0.5), (1001.5, 0.0)]:
        clock[0] = now
        mark.mark()
        assert mark.seconds_ago() == expected


def test_a_mark_from_before_the_machines_start_and_a_torn_one_do_not_count(tmp_path: Path, clock: list[float]) -> None:
    mark = StepMark(tmp_path / "steps")
    mark.mark()
    clock[0] = 5.0
    assert mark.seconds_ago() == float("inf")
    mark.file.write_text("")
    assert mark.seconds_ago() == float("inf")


def test_a_mark_that_cannot_be_written_stops_no_step(tmp_path: Path, clock: list[float]) -> None:
    assert clock
    StepMark(tmp_path / "gone" / "steps").mark()
