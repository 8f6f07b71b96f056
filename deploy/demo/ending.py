"""Cleans up however the demo ends: signals, and the demo's working folder."""

import fcntl
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.processes.signals import set_in_handler

_PREFIX = "headgate-demo-"
_LOCK = "lock"


class Ending:
    """What SIGINT, SIGTERM and SIGHUP (a closed terminal) do: end what runs in order, and at once when repeated."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set by the first signal, once `in_order`."""
        self.in_order = False
        self._signal: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    @property
    def status(self) -> int | None:
        """The exit status a signal asks for; None where none came."""
        return None if self._signal is None else 128 + self._signal

    def _on_signal(self, number: int, _frame: object) -> None:
        first, self._signal = self._signal is None, number
        if not (first and self.in_order):
            raise SystemExit(self.status)
        set_in_handler(self.stop)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder that is gone at the end; so are those of demos that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    """Remove the folder of a demo that lives no more; one that lives holds the lock."""
    with suppress(OSError), (folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
