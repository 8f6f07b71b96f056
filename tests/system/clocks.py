"""A clock of its own for a process and all it starts, which leaps when told to; the machine's stays as it is.

It takes Debian's package libfaketime, which answers the questions for the time of day; monotonic clocks go on truly.
"""

import os
from pathlib import Path

_LIBRARY = "libfaketimeMT.so.1"


def why_no_clock() -> str | None:
    """Why no process can have a clock of its own here, for a test's skip; None when one can."""
    return None if _library() is not None else "a clock of its own needs Debian's package libfaketime"


class Clock:
    """How far the clock of a process is ahead of the true one.

    Args:
        file: where it is kept.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, ahead_seconds: int) -> None:
        """Leap; the process notices within a second."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{ahead_seconds:+d}\n")
        beside.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that has it."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else each timed wait of a JVM would be over at once.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def _library() -> Path | None:
    places = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
    found = (path for place in places for path in Path("/").glob(f"{place[1:]}/{_LIBRARY}"))
    return next((path for path in found if os.access(path, os.R_OK)), None)
