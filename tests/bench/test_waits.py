"""How long records waited, from when they were appended and what batches took."""

from bench.waits import waits_ms
from streaming.progress import BatchProgress


def batch(began_ms: int, seconds: float, records: int) -> BatchProgress:
    return BatchProgress(0, seconds, records, 0.0, 0, 0.0, 0, 0, began_ms)


def test_each_record_waits_for_the_end_of_the_batch_that_took_it() -> None:
    batches = [batch(1000, 0.5, 2), batch(1500, 0.0, 0), batch(2000, 1.0, 1)]
    assert waits_ms(batches, [900, 950, 1400]) == [550.0, 600.0, 1600.0]


def test_what_was_left_from_before_is_taken_first() -> None:
    assert waits_ms([batch(1000, 0.5, 3)], [900], undecided=2) == [600.0]


def test_records_that_no_batch_took_are_left_out() -> None:
    assert waits_ms([batch(1000, 0.5, 1)], [900, 990]) == [600.0]
