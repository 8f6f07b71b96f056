"""Confirmation by identity: a difference counts when a second reading repeats it, whatever the numbers are."""

from collections.abc import Mapping
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.confirmation import Doubts, confirm, find_missing
from tests.cases import for_each

CONFIRM_MS = 10
TEN, STRANGERS = ({f"{kind}{n}": "" for n in range(10)} for kind in "ms")
Found = tuple[Mapping[str, str], Doubts]
START: Found = (TEN, ())

members = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("12"), max_size=8)
gaps = st.integers(1, 20)
histories = st.lists(st.tuples(gaps, members), max_size=12)
SETTLED = dict.fromkeys("abcd", "1")


def read(before: Found, at_ms: int, shown: Mapping[str, str]) -> Found:
    return confirm(*before, shown, at_ms, CONFIRM_MS)


def read_all(start: Found, history: list[tuple[int, dict[str, str]]]) -> tuple[Found, int]:
    def follow(last: tuple[Found, int], each: tuple[int, dict[str, str]]) -> tuple[Found, int]:
        at_ms = last[1] + each[0]
        return read(last[0], at_ms, each[1]), at_ms

    return reduce(follow, history, (start, 0))


def without(name: str) -> dict[str, str]:
    return {each: value for each, value in TEN.items() if each != name}


@pytest.mark.parametrize("strangers", [0, 5, 10], ids=["none came", "half as many came", "as many came"])
def test_missing_members_stay_whatever_number_of_strangers_came(strangers: int) -> None:
    believed, doubts = read(START, 100, dict.fromkeys(sorted(STRANGERS)[:strangers], ""))
    assert believed == TEN
    assert find_missing(doubts) == dict.fromkeys(TEN, 100)


def test_two_readings_that_agree_only_on_what_is_missing_confirm_no_stranger() -> None:
    believed, doubts = read(read(START, 100, STRANGERS), 110, {"other": ""})
    assert believed == {}
    assert {doubt.name for doubt in doubts} == {"other", *STRANGERS}


def test_a_changed_value_is_believed_when_a_second_reading_shows_the_same_one() -> None:
    first = read(START, 100, {**TEN, "m1": "x"})
    assert first[0] == TEN
    assert read(first, 110, {**TEN, "m1": "y"})[0] == TEN
    assert read(first, 110, {**TEN, "m1": "x"}) == ({**TEN, "m1": "x"}, ())


def test_a_new_member_is_believed_at_once_and_may_be_acted_on_when_a_second_reading_shows_it() -> None:
    more = {**TEN, "new": ""}
    believed, (doubt,) = read(START, 100, more)
    assert (believed, doubt.may_be_acted_on(100)) == (more, False)
    believed, (doubt,) = read((believed, (doubt,)), 105, more)
    assert (believed, doubt.may_be_acted_on(105)) == (more, True)
    assert read((believed, (doubt,)), 110, more) == (more, ())
    believed, (doubt,) = read((believed, (doubt,)), 107, TEN)
    assert (believed, doubt.may_be_acted_on(107)) == (more, False), "one reading does not prove its absence either"
    _, (doubt,) = read((believed, (doubt,)), 109, TEN)
    assert not doubt.may_be_acted_on(109), "a second reading in a row shows that it is missing"


def test_strangers_that_are_most_of_a_reading_wait_for_confirmation() -> None:
    more = {**TEN, **STRANGERS, "one more": ""}
    first = read(START, 100, more)
    assert first[0] == TEN
    assert read(first, 110, more) == (more, ())
    half = {**TEN, **STRANGERS}
    assert read(START, 100, half)[0] == half


@for_each("other", [STRANGERS, without("m1"), {**TEN, "m1": "x"}, {}])
def test_readings_that_contradict_each_other_in_turn_change_nothing_and_the_doubt_has_one_beginning(
    other: dict[str, str],
) -> None:
    found = START
    for at_ms in range(100, 1000, 50):
        found = read(found, at_ms, other if at_ms % 100 else TEN)
        if at_ms >= 150:
            assert found[0] == TEN
            assert {(doubt.since_ms, doubt.row_ms) for doubt in found[1]} == {(150, at_ms)}
    for at_ms in (1000, 1010):
        found = read(found, at_ms, other)
    assert found == (other, ()), "two readings in a row that agree confirm it"


def test_a_new_member_that_comes_and_goes_stays_and_is_not_acted_on() -> None:
    found = START
    for at_ms in range(100, 1000, 50):
        found = read(found, at_ms, TEN if at_ms % 100 else {**TEN, "new": ""})
        assert found[0] == {**TEN, "new": ""}
        assert not found[1][0].may_be_acted_on(at_ms)


def test_a_member_that_comes_and_goes_holds_up_no_other() -> None:
    found = START
    for at_ms in range(100, 140, 4):
        found = read(found, at_ms, TEN if at_ms % 8 else without("m1"))
    gone = {name: value for name, value in without("m1").items() if name != "m2"}
    assert read(read(found, 141, gone), 151, {**gone, "m1": ""})[0] == without("m2")


@given(histories, members, gaps)
def test_a_reading_that_the_next_one_contradicts_takes_and_changes_nothing(
    history: list[tuple[int, dict[str, str]]], odd: dict[str, str], gap: int
) -> None:
    before, at_ms = read_all(START, [*history, (CONFIRM_MS, SETTLED), (CONFIRM_MS, SETTLED)])
    assert before == (SETTLED, ())
    there = read(before, at_ms + gap, odd)
    back = read(there, at_ms + gap + 1, SETTLED)
    for believed, _ in (there, back, read(back, at_ms + gap + 1 + CONFIRM_MS, SETTLED)):
        assert believed.items() >= SETTLED.items()
    assert read(back, at_ms + gap + 1 + CONFIRM_MS, SETTLED) == (SETTLED, ())


@given(histories, members)
def test_what_is_read_twice_is_confirmed_whatever_was_read_before(
    history: list[tuple[int, dict[str, str]]], last: dict[str, str]
) -> None:
    assert read_all(START, [*history, (1, last), (CONFIRM_MS, last)])[0] == (last, ())


@given(histories, members)
def test_nothing_is_taken_or_changed_that_the_last_reading_shows(
    history: list[tuple[int, dict[str, str]]], last: dict[str, str]
) -> None:
    before, at_ms = read_all(START, history)
    believed, _ = read(before, at_ms + 5, last)
    assert {item for item in before[0].items() if item in last.items()} <= set(believed.items())
    assert set(believed.items()) - set(before[0].items()) <= set(last.items())


@given(histories)
def test_the_believed_members_differ_from_the_last_reading_in_doubted_ones_only(
    history: list[tuple[int, dict[str, str]]],
) -> None:
    (believed, doubts), _ = read_all(START, history)
    shown = history[-1][1] if history else TEN
    assert {name for name, _ in believed.items() ^ shown.items()} <= {doubt.name for doubt in doubts}
    assert all(doubt.since_ms <= doubt.row_ms and doubt.shown == shown.get(doubt.name) for doubt in doubts)
