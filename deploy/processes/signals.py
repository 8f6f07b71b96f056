"""What the signals of a person or a platform mean: stop."""

import signal
import threading


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set; a second SIGINT interrupts as usual."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        set_in_handler(stop)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def set_in_handler(event: threading.Event) -> None:
    """Set an event from the handler of a signal.

    A thread of its own does so: who waits for an event, or sets it, holds its lock for a moment, and a handler that
    interrupts it just then would wait for that lock for ever.
    """
    threading.Thread(target=event.set, name="signal", daemon=True).start()
