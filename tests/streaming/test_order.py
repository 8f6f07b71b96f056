"""When an observation counts from: the order of offsets holds, whatever a clock says."""

import contextlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.records import ObservedRecord
from policies.signatures import REPEATED_MS, Author, Serial, Signatures
from policies.wire import BadRecordError
from streaming.clocks import CLOCK_JUMP_MS
from streaming.order import FARTHEST_MS, Order, ReadPosition

NOW = 1_800_000_000_000
SIGNED_TOPIC = "headgate.observed.log-dirs"
SIGNATURES = Signatures({Author.OBSERVER: (b"k" * 64,)})
DAY_MS = 86_400_000


def record(offset: int, appended_ms: int, partition: int = 0) -> ObservedRecord:
    return ObservedRecord("t", partition, offset, appended_ms, b"")


def times(*appended_ms: int, places: tuple[ReadPosition, ...] = (), now_ms: int = NOW, first: int = 0) -> list[int]:
    order = Order(places, now_ms)
    return [order.effective_ms(record(first + n, ms)) for n, ms in enumerate(appended_ms)]


@pytest.mark.parametrize(
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


def signed(offset: int, signed_ms: int, appended_ms: int) -> ObservedRecord:
    signature = SIGNATURES.sign(SIGNED_TOPIC, "c", b"", signed_ms)
    return ObservedRecord(SIGNED_TOPIC, 0, offset, appended_ms, b"", None, b"c", signature)


@pytest.mark.parametrize(
    ("signed_at", "appended", "believed"),
    [
        (-REPEATED_MS, 0, True),
        (-REPEATED_MS - 1, 0, False),
        (-60_000, 0, False),
        (60_000, 0, True),
    ],
    ids=["just late", "repeated", "repeated after a minute", "a clock ahead"],
)
def test_a_record_signed_long_before_what_came_earlier_is_a_repetition(
    signed_at: int, appended: int, believed: bool
) -> None:
    first = Order((), NOW, SIGNATURES)
    first.effective_ms(signed(0, NOW, NOW))
    order = Order(first.positions(), NOW, SIGNATURES)
    refused = contextlib.nullcontext() if believed else pytest.raises(BadRecordError, match=r"unsigned: .* repeated")
    with refused:
        order.require_signed(signed(1, NOW + signed_at, NOW + appended))


def test_one_clock_that_is_ahead_makes_no_other_record_old() -> None:
    first = Order((), NOW, SIGNATURES)
    first.effective_ms(signed(0, NOW + 250_000, NOW))
    Order(first.positions(), NOW, SIGNATURES).require_signed(signed(1, NOW + 1, NOW + 2))


def test_what_nobody_checked_leaves_no_mark() -> None:
    """Else a forged time would shut out whoever signs, once signatures are required."""
    first = Order((), NOW, Signatures(SIGNATURES.keys, required=False))
    first.effective_ms(signed(0, NOW, NOW))
    assert [place.signed_ms for place in first.positions()] == [0]


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


def numbered(
    number: int, *, partition: int = 0, offset: int = 0, at_ms: int = NOW, sender: str = "a" * 16
) -> ObservedRecord:
    """A record that was signed at `NOW` and appended at `at_ms`."""
    signature = SIGNATURES.sign(SIGNED_TOPIC, "c", b"", NOW, Serial(sender, number))
    return ObservedRecord(SIGNED_TOPIC, partition, 0, at_ms, b"", None, b"c", signature)


@pytest.mark.parametrize(
    ("again", "is_new"),
    [
        (numbered(8), True),
        (numbered(1, sender="b" * 16), True),
        (numbered(7), False),
        (numbered(6), False),
        (numbered(7, partition=3), False),
    ],
    ids=["next", "another sender", "same", "earlier", "another partition"],
)
def test_a_senders_record_counts_once_in_whichever_partition(again: ObservedRecord, is_new: bool) -> None:
    first = Order((), NOW, SIGNATURES)
    first.require_new(numbered(7))
    order = Order(first.positions(), NOW, SIGNATURES, first.senders())
    with contextlib.nullcontext() if is_new else pytest.raises(BadRecordError, match=r"unsigned: .* repeated"):
        order.require_new(again)


def test_a_record_counts_from_shortly_after_its_signing_time_at_the_latest() -> None:
    order = Order((), NOW + 250_000, SIGNATURES)
    assert order.effective_ms(numbered(1, at_ms=NOW + 250_000)) == NOW + REPEATED_MS


def signed_by(sender: int, number: int, signed_ms: int, appended_ms: int) -> ObservedRecord:
    signature = SIGNATURES.sign(SIGNED_TOPIC, "c", b"", signed_ms, Serial(f"{sender:016x}", number))
    return ObservedRecord(SIGNED_TOPIC, 0, appended_ms - NOW, appended_ms, b"", None, b"c", signature)


def take(records: Iterable[ObservedRecord], before: Order) -> tuple[Order, list[ObservedRecord]]:
    """Take records as one batch; returns the order after it, and those that count."""
    order, counted = Order(before.positions(), NOW, SIGNATURES, before.senders()), []
    for each in records:
        with contextlib.suppress(BadRecordError):
            order.require_signed(each)
            order.require_new(each)
            order.effective_ms(each)
            counted.append(each)
    return order, counted


TOLERANCE_MS = SIGNATURES.tolerance_ms


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-TOLERANCE_MS, TOLERANCE_MS), st.integers(1, 60_000), st.booleans()),
        max_size=40,
    ),
    st.data(),
)
def test_no_record_counts_twice_however_clocks_differ_and_whenever_it_is_repeated(
    sent: list[tuple[int, int, int, bool]], data: st.DataObject
) -> None:
    order, now_ms, read = Order((), NOW, SIGNATURES), NOW, list[ObservedRecord]()
    for number, (sender, ahead_ms, later_ms, is_repeated) in enumerate(sent):
        now_ms += later_ms
        if read and is_repeated:
            captured = data.draw(st.sampled_from(read))
            order, counted = take([captured._replace(appended_ms=now_ms, offset=now_ms - NOW, partition=1)], order)
            assert counted == []
        order, counted = take([signed_by(sender, number, now_ms + ahead_ms, now_ms)], order)
        read += counted


def test_as_many_agents_as_a_cluster_may_have_members_are_remembered() -> None:
    records = [signed_by(sender, 1, NOW + sender, NOW + sender) for sender in range(1000)]
    order, counted = take(records, Order((), NOW, SIGNATURES))
    assert counted == records
    assert take([each._replace(partition=1, appended_ms=NOW + 5000) for each in records], order)[1] == []


def test_senders_are_forgotten_once_the_signing_time_alone_shows_a_repetition() -> None:
    order, _ = take(
        [signed_by(sender, 1, NOW + sender * 10_000, NOW + sender * 10_000) for sender in range(200)],
        Order((), NOW, SIGNATURES),
    )
    assert [int(each.sender, 16) for each in order.senders()] == [196, 197, 198, 199]
