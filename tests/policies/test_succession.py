"""The one fence, as a table and as propositions."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.succession import (
    FARTHEST_AHEAD,
    LONGEST_VALIDITY,
    ends_at,
    has_expired,
    next_sequence,
    succeeds,
)
from policies.units import from_millis, to_millis

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOON_MS = to_millis(NOON)


@dataclass(frozen=True)
class Decision:
    sequence: int
    expires_at: datetime | None = None
    decided_at: datetime = NOON


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.mark.parametrize(
    ("new", "in_force", "passes"),
    [
        pytest.param(Decision(1), None, True, id="the first"),
        pytest.param(Decision(2), Decision(1), True, id="a higher sequence"),
        pytest.param(Decision(1), Decision(1), False, id="a repeat"),
        pytest.param(Decision(1), Decision(2), False, id="a late one"),
        pytest.param(Decision(2, minutes(-1)), Decision(1, minutes(1)), True, id="a higher sequence, though expired"),
        pytest.param(Decision(1, minutes(1)), Decision(2, minutes(0)), True, id="a valid one after one that expired"),
        pytest.param(Decision(1, minutes(1)), Decision(2, minutes(0.1)), False, id="a late one while one is valid"),
        pytest.param(Decision(1, minutes(0)), Decision(2, minutes(0)), False, id="both expired"),
        pytest.param(Decision(1), Decision(2, minutes(0)), True, id="one without end after one that expired"),
        pytest.param(Decision(1, minutes(1)), Decision(2), False, id="one without end expires never"),
        pytest.param(Decision(10**18), Decision(1), False, id="a sequence from the far future"),
        pytest.param(Decision(2, NOON + timedelta(days=365)), Decision(1), False, id="an end in the far future"),
        pytest.param(Decision(10**18), None, False, id="a forged one is not even the first"),
    ],
)
def test_what_passes_the_fence(new: Decision, in_force: Decision | None, passes: bool) -> None:
    assert succeeds(new, in_force, now=NOON, appended_at=NOON) is passes


@pytest.mark.parametrize(
    ("new", "passes"),
    [
        pytest.param(Decision(1, decided_at=minutes(1)), True, id="made after the append"),
        pytest.param(Decision(1, decided_at=minutes(0)), False, id="made before it: the repetition of an older record"),
        pytest.param(Decision(9, decided_at=minutes(1)), True, id="the same sequence, which a forged one has used up"),
        pytest.param(Decision(9, decided_at=NOON), False, id="a repetition"),
        pytest.param(Decision(10**18, decided_at=minutes(1)), False, id="a sequence from the far future"),
    ],
)
def test_what_yields_to_later_ones_fences_none_of_them_out(new: Decision, passes: bool) -> None:
    at = minutes(1)
    assert succeeds(new, Decision(9), now=at, appended_at=at, yields_since=NOON) is passes
    assert not succeeds(Decision(1, decided_at=at), Decision(9), now=at, appended_at=at), "what does not yield"


def test_a_repetition_succeeds_nothing_by_a_clock_ahead_of_kafkas_either() -> None:
    ahead = Decision(9, decided_at=minutes(0.5))
    assert not succeeds(ahead, ahead, now=NOON, appended_at=NOON, yields_since=NOON)


def test_what_is_too_far_ahead_counts_from_when_its_record_was_appended() -> None:
    forged = Decision(to_millis(NOON + 2 * FARTHEST_AHEAD))
    assert not succeeds(forged, None, now=NOON + 5 * FARTHEST_AHEAD, appended_at=NOON)


times = st.integers(NOON_MS - 10**6, NOON_MS + 10**6)
decisions = st.builds(Decision, st.integers(1, NOON_MS + 10**6), st.none() | times.map(from_millis))


@given(decisions, decisions)
def test_of_two_valid_decisions_at_most_one_succeeds_the_other(one: Decision, other: Decision) -> None:
    assume(not has_expired(one, NOON) and not has_expired(other, NOON))
    forth = succeeds(one, other, now=NOON, appended_at=NOON)
    back = succeeds(other, one, now=NOON, appended_at=NOON)
    assert forth + back == (one.sequence != other.sequence)


@given(decisions)
def test_no_decision_succeeds_itself(one: Decision) -> None:
    assert not succeeds(one, one, now=NOON, appended_at=NOON)


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
    assert succeeds(Decision(1, ends_at(NOON, timedelta(days=30))), None, now=NOON, appended_at=NOON)


def test_what_was_given_while_kafkas_clock_was_a_year_ahead_fences_nothing_out_afterwards() -> None:
    in_a_year = NOON + timedelta(days=365)
    leapt, true = Decision(to_millis(in_a_year), in_a_year), Decision(NOON_MS, minutes(5))
    assert succeeds(leapt, None, now=NOON, appended_at=in_a_year)
    assert succeeds(true, leapt, now=NOON, appended_at=NOON)
    assert not succeeds(leapt, true, now=NOON, appended_at=NOON)
