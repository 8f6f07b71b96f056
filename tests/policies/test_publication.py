"""What differs or is due is published, under the next number."""

from datetime import UTC, datetime, timedelta

import pytest

from policies.decisions import Publication, RepeatSchedule
from policies.units import millis_of

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
    rare = RepeatSchedule(timedelta(days=2), valid_for=3)
    assert rare.due_ms(0) == timedelta(hours=8) // timedelta(milliseconds=1)
    assert rare.ends_at(NOW) - NOW == timedelta(days=1)
    assert MINUTE.ends_at(NOW) - NOW == timedelta(minutes=3)
