"""The one fence, as a table and as propositions."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import (
    LONGEST_VALIDITY,
    Decision,
    Fence,
    Passed,
    Publication,
    RepeatSchedule,
    ends_at,
    next_sequence,
    succeeds,
)
from policies.units import from_millis, millis_of, to_millis
from tests.cases import for_each
from tests.decisions import decided

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOON_MS = to_millis(NOON)


class Decided(Decision):
    valid_until: datetime | None


def made(sequence: int, valid_until: datetime | None = None, decided_at: datetime = NOON) -> Decision:
    return decided(Decided, sequence=sequence, valid_until=valid_until, decided_at=decided_at)


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def in_force(sequence: int, decided_at: datetime = NOON, appended_at: datetime = NOON) -> Passed:
    return Passed(sequence, decided_at, appended_at)


@for_each(
    ("new", "before", "passes"),
    [
        pytest.param(made(1), None, True, id="the first"),
        pytest.param(made(2), in_force(1), True, id="a higher sequence"),
        pytest.param(made(1), in_force(1), False, id="a repetition"),
        pytest.param(made(1), in_force(2, minutes(-1)), False, id="a late one, made before the append"),
        pytest.param(made(2, minutes(-1)), in_force(1), True, id="a higher sequence, though expired"),
        pytest.param(made(1, decided_at=minutes(0.1)), in_force(10**18), True, id="made after the append"),
        pytest.param(made(9, decided_at=minutes(0.1)), in_force(9), True, id="a number that a forged one used up"),
        pytest.param(made(2, NOON + timedelta(days=365)), in_force(1), False, id="an end in the far future"),
        pytest.param(made(2, NOON + timedelta(days=365)), None, False, id="the same, and nothing is in force"),
        pytest.param(made(10**18), in_force(1), True, id="any number, until the next decision"),
        pytest.param(
            made(9, decided_at=minutes(0.5)), in_force(9, minutes(0.5)), False,
            id="a repetition by a clock ahead of Kafka's",
        ),
        pytest.param(
            made(1), in_force(2, minutes(-1), NOON + timedelta(days=2)), True,
            id="in force since a time that Kafka's clock took back",
        ),
        pytest.param(made(1), in_force(2, minutes(-1), minutes(2)), False, id="brokers' clocks differ a little"),
    ],
)  # fmt: skip
def test_what_passes_the_fence(new: Decision, before: Passed | None, passes: bool) -> None:
    assert succeeds(new, before, minutes(1)) is passes


@dataclass
class Loop:
    """One that decides about a subject: a sequence of its own, which only grows."""

    sequence: int

    def decide(self, at: datetime) -> Decision:
        self.sequence += 1
        return made(self.sequence, at + timedelta(minutes=3), at)


SECOND = timedelta(seconds=1)


@for_each("ahead", [-1000, -1, 0, 1, 1000, 10**18])
def test_a_forged_record_fences_out_no_more_than_the_time_to_the_next_repeat(ahead: int) -> None:
    fence, loop = Fence[str](), Loop(NOON_MS)
    assert fence.passes("a", loop.decide(NOON), NOON + SECOND)
    fence.passes("a", made(loop.sequence + ahead, NOON + timedelta(days=1), minutes(600)), minutes(1))
    assert fence.passes("a", loop.decide(minutes(2)), minutes(2) + SECOND)


def test_of_two_loops_on_one_prefix_the_later_decision_holds_and_the_one_that_stays_is_heard() -> None:
    fence, first, second = Fence[str](), Loop(NOON_MS), Loop(NOON_MS + 10**6)
    for n in range(4):
        for k, loop in enumerate((first, second)):
            at = minutes(n + k / 2)
            assert fence.passes("a", loop.decide(at), at + SECOND)
    assert fence.passes("a", first.decide(minutes(9)), minutes(9) + SECOND), "the second has ended"


def test_a_batch_that_is_written_again_changes_nothing() -> None:
    fence, loop = Fence[str](), Loop(NOON_MS)
    batch = [loop.decide(NOON), loop.decide(NOON)]
    assert [fence.passes("a", each, NOON + SECOND) for each in batch] == [True, True]
    assert [fence.passes("a", each, minutes(1)) for each in batch] == [False, False]


def test_after_a_tombstone_any_decision_is_the_first() -> None:
    fence = Fence[str]()
    assert [fence.passes(key, made(9), NOON) for key in ("a", "a", "b")] == [True, False, True]
    fence.drop("a")
    assert [fence.passes(key, made(1), NOON) for key in ("a", "b")] == [True, False]


times = st.integers(NOON_MS - 10**6, NOON_MS + 10**6)
decisions = st.builds(made, st.integers(1, NOON_MS + 10**6), st.none() | times.map(from_millis))


@given(decisions)
def test_no_decision_succeeds_itself(one: Decision) -> None:
    assert not succeeds(one, in_force(one.sequence, one.decided_at), NOON)


@given(st.integers(0, 2**40), times, st.integers(0, 10**6))
def test_a_counter_that_was_lost_begins_above_all_it_gave(first_ms: int, later_ms: int, count: int) -> None:
    last = next_sequence(0, NOON_MS - 10**7, is_first=True)
    assert last == NOON_MS - 10**7
    assert next_sequence(last, first_ms, is_first=False) == last + 1
    # One number a millisecond at most was given meanwhile.
    given = last + min(count, later_ms - last - 1)
    assert next_sequence(0, later_ms, is_first=True) > given


def test_no_decision_is_valid_for_longer_than_consumers_believe() -> None:
    assert ends_at(NOON, timedelta(minutes=3)) == minutes(3)
    assert ends_at(NOON, timedelta(days=30)) == NOON + LONGEST_VALIDITY
    assert succeeds(made(1, ends_at(NOON, timedelta(days=30))), None, NOON)


# --- What differs or is due is published, under the next number.


NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
MINUTE = RepeatSchedule(timedelta(minutes=1), valid_for=3)


def test_numbers_of_one_step_differ() -> None:
    publication = Publication(1000, 7)
    assert [publication.next(is_first=is_first) for is_first in (False, True, False, True)] == [8, 1000, 1001, 1002]


@pytest.mark.parametrize(("repeat_at_ms", "due_ms"), [(None, 60_007), (50_000, 50_000), (70_000, 60_007)])
def test_other_settings_postpone_no_repeat(repeat_at_ms: int | None, due_ms: int) -> None:
    assert MINUTE.due_ms(7, repeat_at_ms) == due_ms


@pytest.mark.parametrize(
    ("interval", "valid_for", "expected"),
    [
        (timedelta(minutes=1), 3, timedelta(minutes=1)),
        (timedelta(hours=8), 3, timedelta(hours=8)),
        (timedelta(days=2), 3, timedelta(hours=8)),
        (timedelta(days=1), 2, timedelta(hours=12)),
        (timedelta(days=30), 1, timedelta(days=1)),
    ],
)
def test_what_is_repeated_is_so_before_it_has_run_out(interval: timedelta, valid_for: int, expected: timedelta) -> None:
    schedule = RepeatSchedule(interval, valid_for)
    assert schedule.due_ms(0) == millis_of(expected)
    assert NOW + (valid_for - 1) * expected < schedule.ends_at(NOW)


def test_no_decision_is_valid_for_more_than_a_day() -> None:
    assert RepeatSchedule(timedelta(days=2), valid_for=3).ends_at(NOW) - NOW == timedelta(days=1)
    assert MINUTE.ends_at(NOW) - NOW == timedelta(minutes=3)
