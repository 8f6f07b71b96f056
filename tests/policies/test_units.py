"""Durations, sizes and instants as people write and read them."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from policies.decisions import Alert
from policies.units import (
    ClosedEnum,
    Duration,
    Instant,
    PositiveDuration,
    Ratio,
    Size,
    format_duration,
    format_instant,
    from_millis,
    human_bytes,
    human_seconds,
    millis_of,
    parse_duration,
    show_number,
    to_millis,
)
from tests.cases import case, for_each
from tests.policies.scenario import GB, SOFT_AND_HARD, Run, log_dirs, throttle


@for_each(
    ("text", "seconds"),
    [
        ("0s", 0), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172_800), ("1.5h", 5400),
        ("1m30ms", 60.03), ("90m", 5400), ("1d1h1m1s1ms", 90_061.001),
    ],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@for_each("text", ["", "5", "s", "5 m", "-5m", "5M", "5m ", "1h30", "PT5M", "five minutes", "nan", ".5s"])
def test_what_is_no_duration_is_refused_with_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write it as "):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 30 + "d", "9" * 400 + "s", "36501d"])
def test_a_duration_beyond_a_century_is_refused_not_an_overflow(text: str) -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_duration(text)


@given(st.integers(0, 36_500 * 86_400_000))
def test_durations_round_trip_to_the_millisecond(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration
    assert millis_of(duration) == milliseconds


@for_each(("seconds", "text"), [(0, "0s"), (0.25, "250ms"), (300, "5m"), (5400, "1h30m"), (172_800, "2d")])
def test_durations_are_written_in_their_largest_units(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("value", [30, 1.5, None, ["5m"], True])
def test_a_duration_setting_needs_its_unit(value: object) -> None:
    with pytest.raises(ValidationError, match="write it with its unit"):
        TypeAdapter(Duration).validate_python(value)


@pytest.mark.parametrize("value", ["0s", "0.5ms", timedelta(0)])
def test_a_positive_duration_is_at_least_a_millisecond(value: object) -> None:
    with pytest.raises(ValidationError, match="longer than 0s"):
        TypeAdapter(PositiveDuration).validate_python(value)


@pytest.mark.parametrize("kind", [Duration, PositiveDuration], ids=["any", "positive"])
@pytest.mark.parametrize("value", [timedelta(seconds=-1), timedelta.max], ids=["negative", "endless"])
def test_a_duration_lies_between_zero_and_a_century(kind: type[timedelta], value: timedelta) -> None:
    with pytest.raises(ValidationError, match="must lie between"):
        TypeAdapter(kind).validate_python(value)


@for_each(
    ("value", "count"),
    [(0, 0), (42, 42), ("42", 42), ("5GB", 5 * 10**9), ("5GiB", 5 * 2**30), ("1.5kB", 1500), (2**63 - 1, 2**63 - 1)],
)
def test_sizes_are_decimal_binary_or_plain(value: object, count: int) -> None:
    assert TypeAdapter(Size).validate_python(value) == count


@for_each(
    "value",
    [-1, "-5GB", "", "GB", "5XB", "5 apples", float("nan"), float("inf"), 2**63, 10**400, "9" * 400 + "GB", True, [1]],
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Size).validate_python(value)


@given(st.integers(0, 2**63 - 1))
def test_sizes_round_trip(count: int) -> None:
    adapter: TypeAdapter[int] = TypeAdapter(Size)
    assert adapter.validate_json(adapter.dump_json(adapter.validate_python(count))) == count


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan"), float("inf"), -float("inf")])
def test_a_ratio_lies_between_0_and_1(value: float) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Ratio).validate_python(value)


@given(st.integers(0, 253_402_300_799_999))
@example(1001)  # 1.001 * 1000 is a hair below 1001
@example(2_147_483_648_001)
def test_instants_round_trip_as_milliseconds_exactly(milliseconds: int) -> None:
    assert to_millis(from_millis(milliseconds)) == milliseconds
    written = format_instant(from_millis(milliseconds))
    assert to_millis(datetime.fromisoformat(written)) == milliseconds


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001 - Hypothesis adds the zone
def test_milliseconds_are_rounded_down(instant: datetime) -> None:
    assert timedelta(0) <= instant - from_millis(to_millis(instant)) < timedelta(milliseconds=1)


def test_instants_are_written_in_utc_with_milliseconds() -> None:
    instant = datetime(2026, 11, 21, 9, 30, 0, 5999, timezone(timedelta(hours=1, minutes=30)))
    assert format_instant(instant) == "2026-11-21T08:00:00.005Z"
    assert TypeAdapter(Instant).dump_json(instant) == b'"2026-11-21T08:00:00.005Z"'


def test_an_instant_needs_its_zone() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        TypeAdapter(Instant).validate_python(datetime(2026, 11, 21))  # noqa: DTZ001 - that is the point


@for_each(
    ("value", "text"),
    [(0, "0"), (1.0, "1"), (1 / 3, "0.333"), (12.345, "12.3"), (999.4, "999"), (999.7, "1,000"), (65_536.0, "65,536")],
)
def test_numbers_in_sentences_have_three_digits_or_are_whole(value: float, text: str) -> None:
    assert show_number(value) == text


@for_each(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99.9e9, "99.9 GB"), (99.96e9, "100 GB"), (5e18, "5000 PB")],
)
def test_sizes_in_sentences(count: float, text: str) -> None:
    assert human_bytes(count) == text


@for_each(
    ("seconds", "text"),
    [(12.4, "12 s"), (99, "99 s"), (100, "2 min"), (2460, "41 min"), (12_600, "3.5 h"), (172_800, "2 days")],
)
def test_lengths_of_time_in_sentences(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


@for_each(
    ("text", "is_accepted"),
    [
        ("1970-01-01T00:00:00Z", True),
        ("9999-12-31T23:59:59Z", True),
        ("9999-12-31T23:59:59+23:59", True),
        ("1969-12-31T23:59:59Z", False),
        ("1970-01-01T00:00:00+00:01", False),
        ("9999-12-31T23:59:59-23:59", False),
        ("0001-01-01T00:00:00+23:59", False),
    ],
)
def test_an_instant_can_be_written_in_utc(text: str, is_accepted: bool) -> None:
    refused = contextlib.nullcontext() if is_accepted else pytest.raises(ValidationError, match="1970 and 9999 in UTC")
    with refused:
        TypeAdapter(Instant).validate_json(f'"{text}"', strict=True)


@pytest.mark.parametrize("kind", [Size, Duration])
def test_a_text_of_any_length_is_refused_at_once(kind: Any) -> None:
    for text in ("1" * 200_000 + "!", " " * 200_000 + "!"):
        with pytest.raises(ValidationError, match="is not a ") as refused:
            TypeAdapter(kind).validate_python(text)
        assert len(refused.value.errors()[0]["msg"]) < 300


SPELLED = {
    "a line that looks like one of ours": ("/a\nresolved: all is well", "/a\\nresolved: all is well"),
    "colours, and a bell": ("/a\x1b[31m\x07", "/a\\x1b[31m\\x07"),
    "a turned direction": ("/a\u202egol.", "/a\\u202egol."),
    "other scripts stay": ("/дані/диск 1", "/дані/диск 1"),
}


def test_control_characters_of_names_are_spelled_out_in_every_sentence() -> None:
    for named, (log_dir, spelled) in SPELLED.items():
        with case(named):
            run = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, {log_dir: 4 * GB}))
            assert f"broker 3 {spelled} has 4.0 GB free" in run.last.explanation
            assert run.limiting.log_dir == log_dir, "what programs read is as it was"
            [alert] = run.alerts
            assert spelled in alert.summary
            assert alert.explanation == alert.summary


def test_what_is_read_back_stays_as_it_was_written() -> None:
    [alert] = Run(throttle(SOFT_AND_HARD)).see(log_dirs(0, 3, {"/a\n\x1b": 4 * GB})).alerts
    assert Alert.model_validate_json(alert.model_dump_json()).summary == alert.summary


class Weather(ClosedEnum):
    """Of today."""

    RAIN = "rain", "Take an umbrella."
    SUN = "sun", "Leave it."


def test_a_member_is_its_word_and_says_what_it_means() -> None:
    assert Weather.RAIN.value == "rain"
    assert f"{Weather.RAIN}" == "rain"
    assert Weather.RAIN.meaning == "Take an umbrella."
    assert Weather("sun") is Weather.SUN


def test_a_member_that_explains_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="say what `fog` means"):

        class _Murk(ClosedEnum):
            FOG = "fog"
