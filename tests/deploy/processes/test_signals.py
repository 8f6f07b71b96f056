"""What signals do: the first asks to stop, the second ends."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from deploy.processes.signals import stop_on_signals

DEADLINE_SECONDS = 300.0

BUSY_WITH_AN_EVENT = """
import signal, threading
from deploy.processes.signals import set_in_handler
for number in range(100):
    event = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: set_in_handler(event))
    signal.setitimer(signal.ITIMER_REAL, (500 + number) / 1e6)
    while not event.wait(0):
        pass
"""
"""As good as always between taking and releasing the event's lock."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does with signals, the next one finds them as they were."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
