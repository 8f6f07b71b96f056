"""How fast producers may fill disks so that a loop on this machine can follow, at each moment of a run."""

import re
import threading
import time
from typing import Self

from tests.system.loop import http_get
from tests.system.machine import machine_seconds

_LOOK_SECONDS = 0.25
_ENDED = re.compile(r"^headgate_query_last_progress_timestamp_seconds (\S+)", re.MULTILINE)
_AGE = re.compile(r"^headgate_query_lag_seconds (\S+)", re.MULTILINE)


class Pace:
    """A rate that gives the loop a disk's reserve to react in, by how long its own batches are behind just now.

    What a loop needs beyond that (to decide wrongly, to carry nothing out) slows nobody down: then the disk fills.

    Args:
        port: where the loop's metrics are.
        reserve_bytes: what may be written while it reacts.
        least: bytes per second, however slow it is.
        most: bytes per second, however fast it is.
    """

    def __init__(self, port: int, *, reserve_bytes: int, least: float, most: float) -> None:
        self._port = port
        self._reserve_bytes = reserve_bytes
        self._least, self._most = least, most
        self._ended, self._age_seconds = time.time(), 0.0
        self.slowest_seconds = 0.0
        """The longest reaction that was seen, in seconds of the machine itself."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="pace", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def __call__(self) -> float:
        """Bytes per second now. While no batch ends it falls, also when nobody answers who could say so."""
        return min(self._most, max(self._least, self._reserve_bytes / max(self._reaction_seconds(), 0.001)))

    def _reaction_seconds(self) -> float:
        return self._age_seconds + max(0.0, time.time() - self._ended)

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            answer = http_get(self._port, "/metrics")
            ended, age = (found.search(answer[1] if answer else "") for found in (_ENDED, _AGE))
            if ended is not None and age is not None:
                self._ended, self._age_seconds = float(ended[1]), float(age[1])
            took_seconds = machine_seconds(time.monotonic() - self._reaction_seconds())
            self.slowest_seconds = max(self.slowest_seconds, took_seconds)
