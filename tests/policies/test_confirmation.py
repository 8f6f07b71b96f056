"""Confirmation by identity: a difference counts when a second reading repeats it, whatever the numbers are."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.confirmation import Confirmation, PendingDifferences, SetReading, confirm
from tests.cases import for_each

CONFIRM_MS, VALIDITY_MS = 10, 100
TEN, STRANGERS = (frozenset(f"{kind}{n}" for n in range(10)) for kind in "ms")
START = Confirmation(TEN, PendingDifferences(), is_held=False)

members = st.frozensets(st.sampled_from("abcdefgh"), min_size=0, max_size=8)
gaps = st.integers(1, 20)
histories = st.lists(st.tuples(gaps, members), max_size=12)


def read(before: Confirmation, at_ms: int, names: frozenset[str], source: str = "zk") -> Confirmation:
    reading = SetReading(names, at_ms, source)
    return confirm(before.believed, before.pending, reading, confirm_ms=CONFIRM_MS, validity_ms=VALIDITY_MS)


def read_all(start: Confirmation, history: list[tuple[int, frozenset[str]]]) -> tuple[Confirmation, int]:
    def follow(last: tuple[Confirmation, int], each: tuple[int, frozenset[str]]) -> tuple[Confirmation, int]:
        at_ms = last[1] + each[0]
        return read(last[0], at_ms, each[1]), at_ms

    return reduce(follow, history, (start, 0))


def confirmed(found: Confirmation) -> frozenset[str]:
    return found.pending.confirmed(found.believed)


def test_the_first_reading_is_believed() -> None:
    first = confirm(None, PendingDifferences(), SetReading(TEN, 5), confirm_ms=CONFIRM_MS, validity_ms=VALIDITY_MS)
    assert first == START


@pytest.mark.parametrize("strangers", [0, 5, 10], ids=["none came", "half as many came", "as many came"])
def test_most_members_missing_is_not_believed_whatever_number_of_strangers_came(strangers: int) -> None:
    found = read(START, 100, frozenset(sorted(STRANGERS)[:strangers]))
    assert (found.is_held, found.believed, confirmed(found)) == (True, TEN, TEN)


def test_two_readings_that_agree_confirm_it() -> None:
    first = read(START, 100, STRANGERS)
    assert confirmed(read(first, 109, STRANGERS)) == TEN
    second = read(first, 110, STRANGERS)
    assert (second.believed, confirmed(second), second.is_held) == (STRANGERS, STRANGERS, False)


def test_two_readings_that_agree_only_on_what_is_missing_confirm_no_stranger() -> None:
    found = read(read(START, 100, STRANGERS), 110, frozenset({"other"}))
    assert (found.believed, confirmed(found)) == (frozenset({"other"}), frozenset())


def test_half_of_the_members_may_be_missing_at_once_and_are_kept_until_that_is_confirmed() -> None:
    half = frozenset(sorted(TEN)[:5])
    found = read(START, 100, half)
    assert (found.is_held, found.believed, confirmed(found), found.pending.keep_missing(half)) == (
        False,
        half,
        TEN,
        TEN,
    )


def test_one_new_member_counts_for_alerts_at_once_and_for_orders_when_it_is_confirmed() -> None:
    more = TEN | {"new"}
    found = read(START, 100, more)
    assert (found.believed, found.pending.keep_missing(more), confirmed(found)) == (more, more, TEN)
    assert confirmed(read(found, 110, more)) == more


def test_strangers_that_are_most_of_a_reading_count_for_no_alert_until_they_are_confirmed() -> None:
    more = TEN | STRANGERS | {"one more"}
    found = read(START, 100, more)
    assert (found.believed, found.pending.keep_missing(more)) == (more, TEN)
    half = TEN | STRANGERS
    assert read(START, 100, half).pending.keep_missing(half) == half


def test_collectors_that_contradict_each_other_are_named_and_the_confirmed_set_stands() -> None:
    ours, theirs = TEN, STRANGERS
    found = START
    for at_ms in range(100, 300, 10):
        found = read(found, at_ms, theirs if at_ms % 20 else ours, "b" if at_ms % 20 else "a")
        assert (found.believed, confirmed(found)) == (TEN, TEN)
    assert found.pending.disputed_by == ("a", "b")
    assert found.pending.is_disputed(299, VALIDITY_MS)
    assert not found.pending.is_disputed(500, VALIDITY_MS)


def test_two_collectors_that_agree_in_the_end_dispute_nothing() -> None:
    found = read(read(START, 100, STRANGERS, "a"), 105, STRANGERS, "b")
    assert found.pending.disputed_by == ()
    assert read(found, 110, STRANGERS, "a").believed == STRANGERS


@for_each("other", [STRANGERS, TEN - {"m1"}, TEN | {"new"}, frozenset()])
@for_each("source", ["zk", ""])
def test_members_that_come_and_go_within_one_collector_s_readings_change_nothing_after_a_while(
    other: frozenset[str], source: str
) -> None:
    found, believed = START, []
    for at_ms in range(100, 180, 4):
        found = read(found, at_ms, other if at_ms % 8 else TEN, source)
        believed.append(found.believed)
    assert set(believed[5:]) == {TEN}
    assert found.pending.unstable_names(at_ms, VALIDITY_MS) == other ^ TEN
    for at_ms in (200, 210):
        found = read(found, at_ms, other, source)
    assert found.believed == confirmed(found) == other, "two readings that agree confirm it"
    assert read(found, 400, other).pending.changes == ()


def test_an_unstable_member_holds_up_no_other() -> None:
    found = START
    for at_ms in range(100, 140, 4):
        found = read(found, at_ms, TEN if at_ms % 8 else TEN - {"m1"})
    found = read(found, 142, TEN - {"m1", "m2"} | {"new"})
    assert (found.believed, found.is_held) == (TEN - {"m2"} | {"new"}, False)


@given(histories, members, gaps)
def test_a_reading_that_the_next_one_contradicts_confirms_nothing(
    history: list[tuple[int, frozenset[str]]], odd: frozenset[str], gap: int
) -> None:
    settled = [(CONFIRM_MS, frozenset("abcd")), (CONFIRM_MS, frozenset("abcd"))]
    before, at_ms = read_all(START, [*history, *settled])
    there = read(before, at_ms + gap, odd)
    back = read(there, at_ms + gap + 1, frozenset("abcd"))
    assert confirmed(there) == confirmed(back) == back.believed == frozenset("abcd")


@given(histories, members)
def test_what_is_read_twice_is_confirmed_whatever_was_read_before(
    history: list[tuple[int, frozenset[str]]], last: frozenset[str]
) -> None:
    found, _ = read_all(START, [*history, (1, last), (CONFIRM_MS, last)])
    assert (found.believed, confirmed(found), found.is_held) == (last, last, False)


@given(histories, members)
def test_nothing_is_confirmed_that_the_last_reading_contradicts(
    history: list[tuple[int, frozenset[str]]], last: frozenset[str]
) -> None:
    before, at_ms = read_all(START, history)
    after = read(before, at_ms + 5, last)
    assert confirmed(after) - confirmed(before) <= last
    assert (confirmed(before) - confirmed(after)).isdisjoint(last)


@given(histories)
def test_the_confirmed_set_is_never_further_from_the_believed_one_than_the_doubt_says(
    history: list[tuple[int, frozenset[str]]],
) -> None:
    found, _ = read_all(START, history)
    pending = found.pending
    assert confirmed(found) ^ found.believed <= pending.missing_names() | pending.new_names()
    assert pending.missing_names() <= confirmed(found)
    assert pending.new_names().isdisjoint(confirmed(found))
