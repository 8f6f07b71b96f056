"""The times that people type."""

import time
from datetime import UTC, datetime

import pytest

from deploy.commands.times import read_instant
from policies.errors import UserError

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
        ("10m ago", "2026-11-23T11:50:00+00:00"),
        ("1h30m ago", "2026-11-23T10:30:00+00:00"),
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21 08:00", "2026-11-21T08:00:00+00:00"),
        ("2026-11-21T08:00+02:00", "2026-11-21T06:00:00+00:00"),
    ],
)
def test_a_time_is_read_as_it_is_meant(text: str, instant: str) -> None:
    assert read_instant("--at", text, NOON) == datetime.fromisoformat(instant)


@pytest.mark.parametrize("text", ["", "25:00", "yesterday", "ago", "10 ago", "99999999d ago", "14:45 Uhr"])
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UserError, match=r"--at: .* is not a time: write 14:45 \(local time\), '10m ago', or 2026-11"):
        read_instant("--at", text, NOON)


def test_no_time_is_none() -> None:
    assert read_instant("--at", None) is None
