"""The times that people type."""

import time
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from deploy.console.shell import local_clock, read_instant, show_local
from deploy.console.terminal import SafeConsole
from policies.units import UserError

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # an hour ahead of UTC
    time.tzset()


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("12:30", "2026-11-23T11:30:00+00:00"),
        ("14:45", "2026-11-22T13:45:00+00:00"),
        ("9:05:07", "2026-11-23T08:05:07+00:00"),
        ("now", "2026-11-23T12:00:00+00:00"),
        ("10m ago", "2026-11-23T11:50:00+00:00"),
        ("1h30m ago", "2026-11-23T10:30:00+00:00"),
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21 08:00", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21T08:00+02:00", "2026-11-21T06:00:00+00:00"),
    ],
)
def test_a_time_is_read_as_it_is_meant(text: str, instant: str) -> None:
    assert read_instant("--at", text, NOON) == datetime.fromisoformat(instant)
    assert read_instant("--at", None) is None


@pytest.mark.parametrize("text", ["", "25:00", "yesterday", "ago", "10 ago", "99999999d ago", "14:45 Uhr"])
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UserError, match=r"--at: .* is not a time: write 14:45 \(local time\), '10m ago', or 2026-11"):
        read_instant("--at", text, NOON)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("since 2026-11-21 14:49:03 UTC by alice", "since 2026-11-21 15:49:03 CET by alice"),
        ("decided 2026-07-01T23:30:00.123Z, sequence 5", "decided 2026-07-02 01:30:00 CEST, sequence 5"),
        ("2026-99-99T00:00:00Z", "2026-99-99T00:00:00Z"),
        ("2026-11-21T14:49:03+02:00", "2026-11-21T14:49:03+02:00"),
        ("between 02:00 and 04:00", "between 02:00 and 04:00"),
    ],
)
def test_an_instant_is_shown_as_local_time_with_its_zone(text: str, shown: str) -> None:
    assert show_local(text) == shown
    assert local_clock(NOON) == "13:00:00 CET"


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, "15:49:03 CET"), (False, "14:49:03 UTC")])
def test_only_a_terminal_shows_local_times_also_in_tables(is_terminal: bool, shown: str) -> None:
    file, table = StringIO(), Table("since")
    table.add_row("2026-11-21 14:49:03 UTC")
    table.add_row(Text("2026-11-21 14:49:03 UTC"))
    console = SafeConsole(file=file, force_terminal=is_terminal, width=80, highlight=False)
    console.print(table, "2026-11-21 14:49:03 UTC")
    assert file.getvalue().count(shown) == 3
