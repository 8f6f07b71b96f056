"""When an observation counts from: the order of offsets holds, whatever a clock says."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.wire import ObservedRecord
from streaming.key_state import CLOCK_JUMP_MS, FARTHEST_MS, Order, ReadPosition
from tests.cases import for_each

NOW = 1_800_000_000_000
DAY_MS = 86_400_000


def record(offset: int, appended_ms: int, partition: int = 0) -> ObservedRecord:
    return ObservedRecord("t", partition, offset, appended_ms, b"")


def times(*appended_ms: int, places: tuple[ReadPosition, ...] = (), now_ms: int = NOW, first: int = 0) -> list[int]:
    order = Order(places, now_ms)
    return [order.effective_ms(record(first + n, ms)) for n, ms in enumerate(appended_ms)]


@for_each(
    ("appended", "expected"),
    [
        ([-3000, -2000, -1000], [-3000, -2000, -1000]),
        ([-3000, -3000, -3000], [-3000, -2999, -2998]),
        ([-1000, -2000, 0], [-1000, -999, 0]),
        ([-1000, -1000 - DAY_MS, -DAY_MS, -500], [-1000, 0, 1, 2]),
        ([-DAY_MS, -1000], [-DAY_MS, -1000]),
        ([CLOCK_JUMP_MS, -1000, 0], [1000, 1001, 1002]),
    ],
    ids=["true", "ties", "a little back", "a day back", "a day of silence", "ahead"],
)
def test_times_grow_with_offsets(appended: list[int], expected: list[int]) -> None:
    assert [at - NOW for at in times(*(NOW + ms for ms in appended))] == expected


@given(st.lists(st.integers(-2 * DAY_MS, CLOCK_JUMP_MS), max_size=40), st.integers(1, 39))
def test_no_record_counts_from_before_an_earlier_offset_wherever_batches_are_cut(appended: list[int], cut: int) -> None:
    order, found = Order((), NOW), []
    for offset, ms in enumerate(appended):
        if offset == cut:
            order = Order(order.positions(), NOW)
        found.append(order.effective_ms(record(offset, NOW + ms)))
    assert all(before < after for before, after in pairwise(found))
    assert all(at <= NOW + FARTHEST_MS for at in found)


def test_records_that_are_read_again_count_from_when_they_did() -> None:
    order = Order((), NOW)
    first = [order.effective_ms(record(n, NOW - 1_000_000 + n)) for n in range(10)]
    again = Order(order.positions(), NOW + 5000)
    assert [again.effective_ms(record(n, NOW - 1_000_000 + n)) for n in range(10)] == first


def test_partitions_have_clocks_of_their_own() -> None:
    order = Order((), NOW)
    order.effective_ms(record(5, NOW, partition=0))
    assert order.effective_ms(record(6, NOW - 1000, partition=1)) == NOW - 1000


@pytest.mark.parametrize("ahead_ms", [0, CLOCK_JUMP_MS, CLOCK_JUMP_MS + 1, DAY_MS])
def test_a_record_of_a_broker_whose_clock_is_ahead_counts_from_its_batch(ahead_ms: int) -> None:
    assert NOW <= Order((), NOW).effective_ms(record(0, NOW + ahead_ms)) <= NOW + 1000


def test_what_is_kept_of_places_is_bounded() -> None:
    order = Order((), NOW)
    for partition in range(1000):
        order.effective_ms(record(0, NOW + partition, partition=partition))
    assert len(order.positions()) == 64
    assert order.positions()[-1].partition == 999
