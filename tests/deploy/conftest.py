"""What tests of the command share."""

import os
from collections.abc import Iterator
from functools import cache

import pytest
import typer.main
import typer.testing

build_command = cache(typer.main.get_command)


@pytest.fixture(scope="package", autouse=True)
def _commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep commands without a broker in their settings away from a loop that the user runs on this machine.

    Typer builds all commands for each call, which takes 15 ms, most of what a command in this process takes: here once.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("share")))
        for module in ("main.get_command", "testing._get_command"):
            patched.setattr(f"typer.{module}", build_command)
        yield


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADGATE_")]:
        monkeypatch.delenv(name)
