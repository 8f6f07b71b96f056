"""Clocks of processes that leap while they run, by a small library that is preloaded and adds to the time of day.

libfaketime cannot be used: it leaves out waits of C11, which librdkafka uses, so that those last as long as the leap.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("leap.c")
_PROGRAMS = ("java", "others")


def why_no_leaps() -> str | None:
    """Why no clock can leap here; None where they can."""
    if not Path("/proc/self/maps").exists():
        return "the library is written for Linux"
    return None if shutil.which("gcc") else "gcc is not installed"


class Clocks:
    """A clock of its own for each of some parts, right at first.

    Args:
        folder: for the library, and for what the clocks differ by.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "leap.so"
        folder.mkdir(parents=True)
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)

    def environment(self, part: str) -> dict[str, str]:
        """For a process, and whatever it starts."""
        if not (self._folder / part).exists():
            self.set_right(part)
        return {"LD_PRELOAD": str(self._library), "LEAP_FOLDER": str(self._folder / part)}

    def leap(self, part: str, seconds: int, *, java: bool = True, others: bool = True) -> None:
        """From now on a part's clock is so much ahead of the machine's: that of its JVM, of all else, or both."""
        for program, leaps in zip(_PROGRAMS, (java, others), strict=True):
            self._write(part, program, seconds if leaps else 0)

    def set_right(self, part: str) -> None:
        """It is the machine's again."""
        self.leap(part, 0)

    def _write(self, part: str, program: str, seconds: int) -> None:
        """In place, as processes have the file mapped."""
        path = self._folder / part / program
        path.parent.mkdir(exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, struct.pack("l", seconds), 0)
        finally:
            os.close(file)
