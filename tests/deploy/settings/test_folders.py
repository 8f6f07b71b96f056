"""The default folders, for users with a home and without."""

from pathlib import Path

import pytest

from deploy.settings.application import user_folder
from policies.units import UserError


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: the user has no name, and HOME is not set."""
    monkeypatch.delenv("HOME", raising=False)

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_a_variable_of_xdg_needs_no_home(monkeypatch: pytest.MonkeyPatch, no_home: None) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/var/lib")
    assert user_folder("XDG_DATA_HOME", ".local/share") == Path("/var/lib/headgate")


def test_without_home_and_variable_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch, no_home: None) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(UserError, match="this user has no home folder: set HOME, XDG_DATA_HOME, or data_dir and jars"):
        user_folder("XDG_DATA_HOME", ".local/share")
