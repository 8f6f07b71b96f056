"""Options of the whole suite, and how its property tests run.

Property tests run the same few examples each time, so that a failure in CI can be repeated anywhere. `make thorough`
draws hundreds of random ones.
"""

import gc
import os
import random
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.progress import Progress

settings.register_profile(
    "headgate",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=5,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("headgate"), derandomize=False, max_examples=300)
settings.register_profile("explore", settings.get_profile("thorough"), max_examples=1500)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "headgate")
settings.load_profile(_PROFILE)
if _PROFILE == "headgate":
    # Hypothesis draws constants from the source of all loaded modules, which depend on the order of the tests.
    providers._get_local_constants = lambda: providers._local_constants


_SHARING = ("tests/toy/", "tests/deploy/test_distributions.py", "tests/connectors/exporter/page/test_in_chromium.py")

# Log lines without colours: rendering a traceback in colours takes half a second.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

_LOGGING = structlog.get_config()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Log as if no test before had set up the logging of a command."""
    structlog.configure(**_LOGGING)
    if (options := sys.modules.get("deploy.console.options")) is not None:
        vars(options).update(_has_log=False, _set_up_again=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for the servers of system tests, and for the order of tests."""
    parser.addoption(
        "--containers", action="store_true", help="Take servers from testcontainers (needs a Docker engine)."
    )
    parser.addoption("--shuffle", type=int, metavar="SEED", help="Run the tests in a random order.")
    parser.addoption(
        "--golden", choices=("bytes", "content"), default="bytes",
        help="Compare recorded courses byte for byte, or without ids, sequences and evidence.",
    )  # fmt: skip
    parser.addoption("--write-seconds", action="store_true", help="Note how long each file of system tests took.")


def pytest_configure(config: pytest.Config) -> None:
    """Show the progress of the tests; a worker leaves that to the process that started it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(writes_seconds=config.getoption("--write-seconds")), "headgate progress")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any], dict[str, Any]]:
    """Send no keywords from a worker: nothing reads them, and they take an eighth of the cost of an empty test."""
    return (yield) | {"keywords": {}}


def pytest_sessionstart() -> None:
    """Collect no garbage while thousands of tests are collected, because all of them stay in memory."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect only garbage that tests leave behind."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that share an expensive fixture first, because an idle worker takes the last tests of another."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SHARING))
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's local time is 5:45 h ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    assert time.timezone == -(5 * 60 + 45) * 60
    yield
    monkeypatch.undo()
    time.tzset()
