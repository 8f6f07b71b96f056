"""The second query of a checkpoint is told who is first, and ends or waits its turn."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.query.checkpoint import sole_query, sole_query_in_turn
from deploy.settings.application import Settings
from policies.units import UserError

_HOLD = """
import sys
from pathlib import Path
from types import SimpleNamespace
from deploy.query.checkpoint import sole_query
data, folder = map(Path, sys.argv[1:])
place = SimpleNamespace(folder=folder, uri=folder.as_uri())
# As of `Settings`, which take a second to load.
with sole_query(SimpleNamespace(checkpoint=lambda: place, create_data_dir=lambda: data)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def test_a_second_query_on_a_checkpoint_is_refused_with_the_process_that_has_it(settings: Settings) -> None:
    says = rf"in use by another query, process {os.getpid()} on .*: stop that one"
    with sole_query(settings), pytest.raises(UserError, match=says):
        sole_query(settings).__enter__()
    with sole_query(settings):
        """It is free again."""


def test_queries_on_two_checkpoints_do_not_meet(settings: Settings, tmp_path: Path) -> None:
    other = Settings.model_validate(
        {"data_dir": str(settings.data_dir), "stream": {"checkpoint_dir": str(tmp_path / "new/other")}}
    )
    with sole_query(settings), sole_query(other):
        """Both run."""


def test_a_killed_query_leaves_its_checkpoint_to_the_next(settings: Settings) -> None:
    folders = [str(settings.data_dir), str(settings.checkpoint().folder)]
    held = subprocess.Popen([sys.executable, "-c", _HOLD, *folders], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"process {held.pid} on"):
            sole_query(settings).__enter__()
        held.kill()
        held.wait()
        with sole_query(settings):
            """At once."""


def test_who_waits_its_turn_has_it_when_the_one_before_has_ended(settings: Settings) -> None:
    entered, began, stop = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        with sole_query_in_turn(settings, stop) as is_ours:
            assert is_ours
            entered.set()
            stop.wait(30)

    with sole_query(settings):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert began.wait(30)
        assert not entered.wait(0.5), "the one before has not ended"
    assert entered.wait(30)
    stop.set()
    waiting.join(30)
    with sole_query(settings):
        """It was given back."""


def test_who_is_stopped_while_it_waits_has_no_turn(settings: Settings) -> None:
    stop = threading.Event()
    with sole_query(settings):
        threading.Timer(0.3, stop.set).start()
        with sole_query_in_turn(settings, stop) as is_ours:
            assert not is_ours
