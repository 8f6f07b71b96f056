"""What tests of the command share."""

import time
from collections.abc import Iterator

import pytest


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's local time is 5:45 h ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    assert time.timezone == -(5 * 60 + 45) * 60
    yield
    monkeypatch.undo()
    time.tzset()
