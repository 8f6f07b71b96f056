"""What a batch's time was corrected by is known as long as the batch may be repeated or told of, whoever does that."""

import json
from pathlib import Path

import pytest

from deploy.query.clock import ClockNotes
from streaming.clocks import BatchClock

DAY_MS = 86_400_000


def planned(folder: Path, *numbers: int) -> None:
    """As Spark writes it, each batch a second after the one before."""
    (folder / "offsets").mkdir(exist_ok=True)
    for number in numbers:
        conditions = json.dumps({"batchTimestampMs": 1000 * number})
        (folder / "offsets" / str(number)).write_text(f"v1\n{conditions}\n{{}}")


def test_while_the_clocks_agree_nothing_is_noted(tmp_path: Path) -> None:
    notes = ClockNotes(tmp_path)
    assert notes.begin(0) == BatchClock()
    planned(tmp_path, 0, 1)
    assert notes.begin(0) == BatchClock()
    assert notes.ahead_ms_of(1) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


@pytest.mark.parametrize("is_another", [False, True], ids=["the same process", "another"])
def test_the_batch_that_was_planned_last_keeps_its_correction_and_so_do_those_before(
    tmp_path: Path, is_another: bool
) -> None:
    notes = ClockNotes(tmp_path)
    notes.begin(0)
    planned(tmp_path, *range(3))
    clock = notes.begin(DAY_MS)
    assert [clock.ahead_ms_at(ms) for ms in (2000, 2001, 3000)] == [0, DAY_MS, DAY_MS]
    planned(tmp_path, 3, 4)
    notes = ClockNotes(tmp_path) if is_another else notes
    clock = notes.begin(0)
    assert [clock.ahead_ms_at(ms) for ms in (4000, 5000)] == [DAY_MS, 0]
    assert [notes.ahead_ms_of(batch) for batch in range(7)] == [0, 0, 0, DAY_MS, DAY_MS, 0, 0]
    assert (tmp_path / "clock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_readable", [True, False], ids=["", "a checkpoint elsewhere"])
def test_timers_are_late_where_the_clock_they_were_set_by_was_ahead_of_the_one_there_is(
    tmp_path: Path, *, is_readable: bool
) -> None:
    planned(tmp_path, 0)
    notes = ClockNotes(tmp_path if is_readable else None)
    late = []
    for batch, ahead_ms in enumerate((0, DAY_MS, DAY_MS, 0, -DAY_MS, 0)):
        notes.begin(ahead_ms)
        late.append(notes.leaves_timers_late)
        planned(tmp_path, batch + 1)
    assert late == [False, False, False, True, True, False]


def test_what_was_noted_of_batches_that_were_never_planned_is_forgotten(tmp_path: Path) -> None:
    notes = ClockNotes(tmp_path)
    planned(tmp_path, 0)
    notes.begin(DAY_MS)
    notes.begin(0)
    planned(tmp_path, 1, 2)
    assert ClockNotes(tmp_path).begin(0) == BatchClock()
    assert notes.ahead_ms_of(2) == 0


def test_a_new_checkpoint_has_none_of_the_old_ones(tmp_path: Path) -> None:
    notes = ClockNotes(tmp_path)
    planned(tmp_path, *range(5))
    notes.begin(DAY_MS)
    planned(tmp_path, 5)
    for path in (tmp_path / "offsets").iterdir():
        path.unlink()
    assert notes.begin(0) == BatchClock()
    assert notes.ahead_ms_of(5) == 0


@pytest.mark.parametrize("content", ["", "{}", "[[1]]", "[1, 2]", '[["a", 1]]'])
def test_notes_that_cannot_be_read_are_none(tmp_path: Path, content: str) -> None:
    planned(tmp_path, 0)
    (tmp_path / "clock").write_text(content)
    assert ClockNotes(tmp_path).begin(0) == BatchClock()


def test_where_only_spark_reads_the_checkpoint_nothing_is_noted() -> None:
    notes = ClockNotes(None)
    assert notes.begin(DAY_MS) == BatchClock(DAY_MS)
    assert notes.ahead_ms_of(3) == DAY_MS
