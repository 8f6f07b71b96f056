"""When a policy only watches: windows of the settings, and pauses by command."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.maintenance import MaintenanceWindow, PauseCommand, PolicyPause, commanded, next_edge_ms, quiet_at
from policies.switching.settings import SwitchingSettings
from policies.units import from_millis, to_millis

SATURDAY = datetime(2026, 11, 21, tzinfo=UTC)
NIGHTLY: dict[str, Any] = {"start": "23:00", "length": "2h"}
ON_SATURDAY: dict[str, Any] = {**NIGHTLY, "weekdays": ["sat"]}
ONCE: dict[str, Any] = {"start": "2026-11-21T10:00:00+02:00", "length": "90m"}


def window(block: dict[str, Any]) -> MaintenanceWindow:
    return MaintenanceWindow.model_validate(block)


def hours(number: float) -> datetime:
    return SATURDAY + timedelta(hours=number)


@pytest.mark.parametrize(
    ("block", "now", "until"),
    [
        (NIGHTLY, 22.99, None),
        (NIGHTLY, 23, 25),
        (NIGHTLY, 24.5, 25),
        (NIGHTLY, 25, None),
        (NIGHTLY, 0.5, 1),
        (ON_SATURDAY, 0.5, None),
        (ON_SATURDAY, 24.5, 25),
        (ON_SATURDAY, 47.5, None),
        (ONCE, 7.9, None),
        (ONCE, 8, 9.5),
        (ONCE, 9.5, None),
        (ONCE, 32.5, None),
        ({"start": "00:00", "length": "7d", "weekdays": ["sat"]}, 100, 168),
        ({"start": "00:00", "length": "2d"}, 1, 48),
    ],
)
def test_a_window_is_open_from_its_start_for_its_length(block: dict[str, Any], now: float, until: float | None) -> None:
    assert window(block).until(hours(now)) == (None if until is None else hours(until))


@pytest.mark.parametrize(("now", "start"), [(22.9, 23), (23, 47), (24, 47)])
def test_the_next_window_is_one_that_is_not_open_yet(now: float, start: float) -> None:
    assert window(NIGHTLY).next_start(hours(now)) == hours(start)


@given(st.sampled_from([NIGHTLY, ON_SATURDAY, ONCE]), st.integers(-400, 400))
def test_nothing_changes_before_the_next_edge(block: dict[str, Any], minutes: int) -> None:
    windows, now = [window(block)], hours(minutes / 2)
    edge_ms, is_quiet = next_edge_ms(None, windows, now), quiet_at(None, windows, now) is not None
    if edge_ms is None:
        assert not is_quiet
        return
    assert edge_ms > to_millis(now)
    assert (quiet_at(None, windows, from_millis(edge_ms)) is not None) is not is_quiet
    assert (quiet_at(None, windows, from_millis(edge_ms - 1)) is not None) is is_quiet


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"start": "25:00", "length": "1h"}, "start: '25:00' is neither HH:MM nor an instant such as 2026-12-01T02"),
        ({"start": "2026-12-01T02:00:00", "length": "1h"}, "is neither HH:MM nor an instant"),
        ({"start": "02:00", "length": "0s"}, "length"),
        ({"start": "02:00", "length": "8d"}, "a window lasts 7d at most; for longer use mode: shadow"),
        ({**ONCE, "weekdays": ["sat"]}, "weekdays: has no meaning with an instant"),
        ({**NIGHTLY, "weekdays": ["Saturday"]}, "weekdays"),
        ({"start": "02:00"}, "length"),
    ],
)
def test_a_window_that_is_none_is_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        window(block)


def test_a_switch_has_no_windows() -> None:
    with pytest.raises(ValidationError, match="headgate switch pause"):
        SwitchingSettings.model_validate({"maintenance": [NIGHTLY]})


def command(until: float | None, **more: str) -> PauseCommand:
    return PauseCommand(cluster="c", policy="throttle", until=None if until is None else hours(until), **more)


@pytest.mark.parametrize(
    ("commands", "until"),
    [
        ([(0, command(2))], 2),
        ([(0, command(2)), (1, command(None))], None),
        ([(0, command(2)), (1, command(5))], 5),
        ([(0, command(5)), (1, command(2))], 2),
        ([(3, command(2))], None),
        ([(0, command(10_000))], 30 * 24),
    ],
    ids=["paused", "resumed", "longer", "shorter", "over when it came", "thirty days at most"],
)
def test_the_last_command_counts(commands: list[tuple[float, PauseCommand]], until: float | None) -> None:
    pause = commanded(None, [(hours(at), each) for at, each in commands])
    assert pause == (None if until is None else PolicyPause(to_millis(hours(until)), "", "", keeps=True))


def test_who_paused_it_and_why_is_said() -> None:
    pause = commanded(None, [(hours(0), command(2, actor="alice@bastion", reason="disks swapped"))])
    quiet = quiet_at(pause, (), hours(1))
    assert quiet is not None
    assert quiet.why == "paused by alice@bastion: disks swapped"
    assert quiet_at(pause, (), hours(2)) is None
