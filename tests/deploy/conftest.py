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


@pytest.fixture(scope="package", autouse=True)
def _data_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep commands without a broker in their settings away from a loop that the user runs on this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("share")))
        yield
