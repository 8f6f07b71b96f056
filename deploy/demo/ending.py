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


class Shutdown:
    """Handles SIGINT, SIGTERM and SIGHUP (a closed terminal): the first ends the demo in order, a second at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set by the first signal if `in_order` is true."""
        self.in_order = False
        """False until everything runs: until then a signal ends the process at once."""
        self._signal: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    @property
    def status(self) -> int | None:
        """The exit status after a signal; None without one."""
        return None if self._signal is None else 128 + self._signal

    def _on_signal(self, number: int, _frame: object) -> None:
        first, self._signal = self._signal is None, number
        if not (first and self.in_order):
            raise SystemExit(self.status)
        set_in_handler(self.stop)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder and remove it at the end; remove the folders of demos that were killed, too."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # A demo that is still running holds the lock.
        with suppress(OSError), (old / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (folder / "unlocked").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(folder / _LOCK)  # only now, so that no other demo sees it before it is held
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
