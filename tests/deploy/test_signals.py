"""What signals do: the first asks to stop, the second ends; SIGHUP reads the settings again, good or bad."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.settings import Settings
from deploy.settings_file import load_settings
from deploy.signals import SettingsReload, stop_on_signals
from policies.errors import UserError

DEADLINE_SECONDS = 300.0

BUSY_WITH_AN_EVENT = """
import signal, threading
from deploy.signals import set_in_handler
for number in range(100):
    event = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: set_in_handler(event))
    signal.setitimer(signal.ITIMER_REAL, (500 + number) / 1e6)
    while not event.wait(0):
        pass
"""
"""As good as always between taking and releasing the event's lock."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does with signals, the next one finds them as they were."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_asks_to_stop(number: signal.Signals) -> None:
    stop = stop_on_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.wait(DEADLINE_SECONDS)


def test_a_signal_that_interrupts_whoever_waits_for_its_event_is_heard() -> None:
    child = subprocess.run([sys.executable, "-c", BUSY_WITH_AN_EVENT], timeout=DEADLINE_SECONDS)
    assert child.returncode == 0


def test_a_second_ctrl_c_interrupts_whatever_is_waited_for() -> None:
    stop_on_signals()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_sigterm_would_end_the_process() -> None:
    stop_on_signals()
    signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class EndsAfter(threading.Event):
    """The part's stop event: not set until it was looked at so often, and never waited for."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


class World:
    """The part that reads settings again, and settings that are good or bad."""

    def __init__(self) -> None:
        self.loads: list[Callable[[], Settings]] = []
        self.registry = CollectorRegistry()
        self.end_run = threading.Event()
        self.reload = SettingsReload(lambda: self.loads.pop(0)())
        self._run = self.reload.watch(self.registry, self.end_run)

    def asked(self, load: Callable[[], Settings]) -> None:
        """SIGHUP comes while the settings are these, and the part runs until it has looked at them."""
        self.loads.append(load)
        signal.raise_signal(signal.SIGHUP)
        self._run(EndsAfter(1))

    def successful(self) -> float | None:
        return self.registry.get_sample_value("headgate_settings_last_reload_successful")


def bad() -> Settings:
    raise UserError("http.port: must be a number")


def good() -> Settings:
    return Settings.model_validate({"http": {"port": 7777}})


def test_without_a_signal_nothing_is_read_again() -> None:
    world = World()
    world._run(EndsAfter(1))
    assert (world.end_run.is_set(), world.successful(), world.reload.take()) == (False, 1, None)


def test_good_settings_end_the_run_and_are_what_the_next_one_begins_with() -> None:
    world = World()
    world.asked(good)
    assert world.end_run.is_set()
    taken = world.reload.take()
    assert taken is not None
    assert taken.http.port == 7777
    assert world.reload.take() is None, "once"


def test_bad_settings_change_nothing_and_a_metric_says_so() -> None:
    world = World()
    world.asked(bad)
    assert (world.end_run.is_set(), world.successful(), world.reload.take()) == (False, 0, None)


def nested(tmp_path: Path) -> Callable[[], Settings]:
    file = tmp_path / "nested.yaml"
    file.write_text("a: " + "[" * 1000 + "]" * 1000)
    return lambda: load_settings(file)


def failing() -> Settings:
    raise RecursionError


@pytest.mark.parametrize("load", [nested, lambda _: failing], ids=["nested a thousand deep", "a fault of ours"])
def test_settings_that_cannot_be_read_at_all_end_nothing(
    tmp_path: Path, load: Callable[[Path], Callable[[], Settings]]
) -> None:
    world = World()
    world.asked(load(tmp_path))
    assert (world.end_run.is_set(), world.successful(), world.reload.take()) == (False, 0, None)


def test_good_ones_after_bad_ones_count() -> None:
    world = World()
    world.asked(bad)
    world.asked(good)
    assert world.end_run.is_set()
    assert world.reload.take() is not None
