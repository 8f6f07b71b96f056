"""Batches and records put together again; what is missing is said."""

import pytest

from policies.policy import Batch, Range
from policies.units import from_millis
from policies.wire import KEPT_BYTES, MAX_RECORD_BYTES, ObservedRecord
from streaming.replay import make_recording, needed_offsets

NAME, TOPIC = "observed.log-dirs", "h.observed.log-dirs"


def batch(number: int, start: int | None, end: int, at: int | None = None) -> Batch:
    taken = (Range(topic=NAME, partition=0, start=start, end=end),) if end != start else ()
    return Batch(number=number, at=from_millis(at if at is not None else 1000 + number), taken=taken)


def records(*offsets: int) -> list[ObservedRecord]:
    return [ObservedRecord(TOPIC, 0, offset, 900, b"%d" % offset) for offset in offsets]


def offsets_of(told: list[Batch], *offsets: int) -> list[list[int]]:
    return [[r.offset for r in each.records] for each in make_recording(told, records(*offsets), "h").batches]


def test_each_batch_gets_its_records_whatever_order_they_are_read_in() -> None:
    told = [batch(0, None, 3), batch(1, 3, 3), batch(2, 3, 5)]
    assert offsets_of(told, 4, 0, 3, 1, 2, 9) == [[0, 1, 2], [], [3, 4]]
    found = make_recording(told, records(4, 0, 3, 1, 2), "h")
    assert found.flaws == []
    assert [each.begins_run for each in found.batches] == [True, False, False]
    assert [each.now_ms for each in found.batches] == [1000, 1001, 1002]


def test_what_is_told_again_after_a_restart_counts_once() -> None:
    told = [batch(0, None, 1), batch(1, 1, 2), batch(0, None, 1), batch(1, 1, 2), batch(2, 2, 3)]
    assert offsets_of(told, 0, 1, 2) == [[0], [1], [2]]


def test_a_new_checkpoint_begins_a_run_that_takes_everything_again() -> None:
    told = [batch(0, None, 1), batch(1, 1, 2), batch(0, None, 2, at=5000), batch(1, 2, 3, at=5001)]
    assert offsets_of(told, 0, 1, 2) == [[0], [1], [0, 1], [2]]
    assert [each.begins_run for each in make_recording(told, records(0, 1, 2), "h").batches] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("told", "offsets", "flaw"),
    [
        ([batch(7, 2, 3)], (2,), "had taken 7 batches before"),
        ([batch(0, None, 1), batch(2, 1, 2)], (0, 1), "after batch 0 comes 2"),
        ([batch(0, None, 1), batch(1, 1, 3)], (0, 1), "records from offset 1 to 3 are gone"),
    ],
)
def test_why_it_may_differ_from_live_is_said(told: list[Batch], offsets: tuple[int, ...], flaw: str) -> None:
    (said,) = make_recording(told, records(*offsets), "h").flaws
    assert flaw in said


def test_of_a_record_that_is_too_large_the_head_alone_is_taken() -> None:
    large = ObservedRecord(TOPIC, 0, 0, 900, b"x" * (MAX_RECORD_BYTES + 1))
    ((taken,),) = (each.records for each in make_recording([batch(0, None, 1)], [large], "h").batches)
    assert taken.cut is not None
    assert (taken.cut.bytes, len(taken.value or b"")) == (MAX_RECORD_BYTES + 1, KEPT_BYTES)


def test_only_what_the_batches_took_needs_to_be_read() -> None:
    assert needed_offsets([batch(0, None, 3), batch(1, 3, 5)], "h") == {(TOPIC, 0): (None, 5)}
    assert needed_offsets([batch(8, 20, 30), batch(9, 30, 35)], "h") == {(TOPIC, 0): (20, 35)}
