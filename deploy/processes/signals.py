"""Stops the process in order on SIGINT and SIGTERM."""

import signal
import threading


def stop_on_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; a second SIGINT interrupts the process as usual."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        set_in_handler(stop)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def set_in_handler(event: threading.Event) -> None:
    """Set an event from a signal handler.

    A new thread sets it, because waiting for an event or setting it holds the event's lock for a moment. A handler that
    interrupts the main thread in that moment would wait for the lock forever.
    """
    threading.Thread(target=event.set, name="signal", daemon=True).start()
