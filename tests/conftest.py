"""Options of the whole suite, and how its property tests run.

They run the same examples each time, so that a failure in CI is a failure at home, and however slow the machine.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.progress import Progress

settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("headgate"), derandomize=False, max_examples=1500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headgate"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where servers for system tests come from, and how the order of their files is renewed."""
    parser.addoption(
        "--containers", action="store_true", help="Take servers from testcontainers (needs a Docker engine)."
    )
    parser.addoption("--write-seconds", action="store_true", help="Note how long each file of system tests took.")


def pytest_configure(config: pytest.Config) -> None:
    """Tell what goes on; a worker leaves that to who started it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(writes_seconds=config.getoption("--write-seconds")), "headgate progress")
