"""The second query of a checkpoint, and the second actuator of a cluster, is told who is first and ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.settings import Settings
from deploy.sole_use import sole_actuators, sole_query
from policies.errors import UserError

_HOLD = """
import sys
from deploy.settings import Settings
from deploy.sole_use import sole_query
with sole_query(Settings(data_dir=sys.argv[1])):
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
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(settings.data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=f"process {held.pid} on"):
            sole_query(settings).__enter__()
        held.kill()
        held.wait()
        with sole_query(settings):
            """At once."""


def test_each_cluster_has_one_actuator_and_what_was_taken_before_is_given_back(settings: Settings) -> None:
    with sole_actuators(settings, ["a", "b/../c"]):
        with sole_actuators(settings, ["x"]):
            """Another cluster's."""
        with pytest.raises(UserError, match=r"decided about b/\.\./c is carried out by another process"):
            sole_actuators(settings, ["x", "b/../c"]).__enter__()
        with sole_actuators(settings, ["x"]):
            """It was given back."""
